"""A worker and its children exit with their supervisor; a script on the user's terminal does not."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipetune.core import restoration

WORKER = """
import subprocess, sys, time
from pipetune.worker.exits import exit_with_supervisor

assert "tensorflow" not in sys.modules, "its import takes seconds, in which the supervisor may exit as well"
child = subprocess.Popen(["sleep", "600"])
print(child.pid, exit_with_supervisor(int(sys.argv[1])), flush=True)
time.sleep(600)
"""


def piped(words: list[str], write_end: int, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", *words]
    return subprocess.Popen(command, pass_fds=[write_end], stdout=subprocess.PIPE, text=True, **more)


@contextmanager
def started(*, own_group: bool) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A worker, and the supervisor's end of its pipe; the worker is killed at the end."""
    read_end, write_end = os.pipe()
    with piped([WORKER, str(write_end)], write_end, start_new_session=own_group) as process:
        os.close(write_end)
        try:
            yield process, read_end
        finally:
            process.kill()


@pytest.mark.slow
def test_worker_and_its_children_exit_with_supervisor() -> None:
    with started(own_group=True) as (process, read_end):
        _, watched = process.stdout.readline().split()
        assert watched == "True" and process.poll() is None
        os.close(read_end)
        assert process.wait(30) == -signal.SIGKILL
        ended, _, _ = select.select([process.stdout], [], [], 30)  # closed once the child, which shares it, has exited
        assert ended and process.stdout.read() == ""


@pytest.mark.exhaustive
def test_script_on_users_terminal_is_not_watched() -> None:
    with started(own_group=False) as (process, read_end):
        child, watched = process.stdout.readline().split()
        os.kill(int(child), signal.SIGKILL)
        os.close(read_end)
        assert watched == "False"


RECORDING = """
import sys, time
from pipetune.core import file_events, undo
from pipetune.worker.exits import exit_with_supervisor

journal = undo.UndoJournal(sys.argv[2])
file_events.set_journal(journal)
journal.confirm_training(journal.begin_generation())
open(sys.argv[3], "w").write("of the loop")
exit_with_supervisor(int(sys.argv[1]), undo=sys.argv[2])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_changed_files_are_restored_when_supervisor_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = tmp_path / "own"
    own.write_text("precious")
    with contextlib.ExitStack() as supervisor:
        folder = supervisor.enter_context(restoration.journal_folder())
        read_end, write_end = os.pipe()
        environment = {**os.environ, restoration.UNDO_VARIABLE: folder}
        words = [RECORDING, str(write_end), folder, str(own)]
        process = piped(words, write_end, env=environment, start_new_session=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        assert own.read_text() == "of the loop"
        process.stdout.close()
        os.close(write_end)
    os.close(read_end)  # the supervisor has exited and released its lock
    assert process.wait(30) == -signal.SIGKILL
    end = time.monotonic() + 30
    while own.read_text() != "precious" and time.monotonic() < end:
        time.sleep(0.05)
    assert own.read_text() == "precious"


LOOPS = """
import tensorflow as tf
from pipetune.core.messages import Job, MessageWriter, Mode
from pipetune.worker.observation import ObservedRun

open("script.py", "w").write(
    "import tensorflow as tf\\nfile = open('out', 'w')\\n"
    "for _ in range(17):\\n    file.writelines('a' for _ in tf.data.Dataset.range(2))\\nfile.write('end')\\n"
)
job = Job(Mode.ANALYZE, int(sys.argv[1]), script="script.py", undo=".")
ObservedRun(job, MessageWriter(int(sys.argv[1])), lambda *_: 0).run()
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_what_a_script_has_not_flushed_at_its_end_is_written(tmp_path: Path) -> None:
    """Its process exits after the work on what its loops have read; files are flushed before the first loops alone."""
    read_end, write_end = os.pipe()
    with piped([f"import sys\n{LOOPS}", str(write_end)], write_end, cwd=tmp_path) as process:
        os.close(write_end)
        process.wait(120)
    os.close(read_end)
    assert (tmp_path / "out").read_text() == f"{'aa' * 17}end"
