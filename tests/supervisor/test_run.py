"""Workers of `pipetune run`, on the user's terminal, and of `pipetune doctor`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.supervisor.monitoring import Timeouts
from pipetune.supervisor.single_worker import read_machine, run_with_plan
from pipetune.supervisor.target import Target
from tests.core.sessions import MACHINE

pytestmark = pytest.mark.slow

ROOT = str(Path(__file__).resolve().parents[2])
RUNNER = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from pipetune.core.messages import *
from pipetune.core.settings import Command
from pipetune.core.session import Session
from tests.core.sessions import MACHINE
job = read_job(Path(sys.argv[1]))
send = MessageWriter(job.message_descriptor).send
what = os.environ["FAKE"]
if what == "machine":
    print("TensorFlow chatters")
    assert job.mode is Mode.DOCTOR and job.settings.device == "cpu"
    send(SessionSaved(Session("0.1.0", Command(), machine=MACHINE)))
elif what == "absent":
    send(AnalysisFailed("There is no GPU.", "Leave --device out.", 5))
    send(WorkerFinished(5))
    sys.exit(5)
elif what == "dies":
    os._exit(3)
elif what == "runs":
    assert job.mode is Mode.RUN
    together = os.getpgrp() == os.getpgid(os.getppid())
    print("in:", input(), "plan:", Path(job.plan).name, "arguments:", job.arguments, "group:", together)
    send(LogLine("The plan is applied to train."))
elif what == "raises":
    send(ScriptFailed("Traceback: of the user\\n"))
    send(WorkerFinished(3))
    sys.exit(3)
elif what == "handles ctrl-c":
    def finish(*_):
        print("saved after Ctrl-C", flush=True)
        send(WorkerFinished(0))
        os._exit(0)
    signal.signal(signal.SIGINT, finish)
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
send(WorkerFinished(0))
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, str]:
    path = tmp_path / "worker.py"
    path.write_text(RUNNER.format(root=ROOT))
    return sys.executable, str(path)


def test_machine_is_read_by_worker(command: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "machine")
    assert read_machine("cpu", worker_command=command).machine == MACHINE


@pytest.mark.parametrize(("what", "says", "code"), [("absent", "no GPU", 5), ("dies", "status 3", 1)])
def test_worker_that_cannot_read_machine_is_reported(
    command: tuple[str, str], monkeypatch: pytest.MonkeyPatch, what: str, says: str, code: int
) -> None:
    monkeypatch.setenv("FAKE", what)
    with pytest.raises(PipetuneError, match=says) as caught:
        read_machine("gpu", worker_command=command, limits=Timeouts(start=10))
    assert caught.value.exit_code == code


def run(command: tuple[str, str], what: str, options: str = "") -> subprocess.CompletedProcess[str]:
    """Calls `run_with_plan` in a process with its own input and output."""
    program = (
        f"import sys; sys.path.insert(0, {ROOT!r})\n"
        "from pathlib import Path\n"
        "from pipetune.supervisor.single_worker import run_with_plan\n"
        "from pipetune.supervisor.target import Target\n"
        "target = Target(script='train.py', arguments=('--epochs', '3'), directory='.')\n"
        f"sys.exit(run_with_plan(target, Path('plan.json'), worker_command={command!r}{options}))\n"
    )
    environment, words = {**os.environ, "FAKE": what}, [sys.executable, "-c", program]
    return subprocess.run(words, input="typed\n", capture_output=True, text=True, check=False, env=environment)


def test_run_uses_terminal(command: tuple[str, str]) -> None:
    done = run(command, "runs")
    assert (done.returncode, done.stderr) == (0, "pipetune: The plan is applied to train.\n")
    assert done.stdout == "in: typed plan: plan.json arguments: ('--epochs', '3') group: True\n"


def test_output_of_the_script_can_go_to_standard_error(command: tuple[str, str]) -> None:
    done = run(command, "runs", ", prints_to_stderr=True")
    assert (done.returncode, done.stdout) == (0, "")
    assert "in: typed plan: plan.json" in done.stderr and "pipetune: The plan is applied to train.\n" in done.stderr


@pytest.mark.parametrize(
    ("what", "code", "out", "err"),
    [("raises", 3, "", "Traceback: of the user\n"), ("handles ctrl-c", 130, "saved after Ctrl-C\n", "")],
)
def test_run_prints_traceback_of_script_and_leaves_ctrl_c_to_it(
    command: tuple[str, str], what: str, code: int, out: str, err: str
) -> None:
    done = run(command, what)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_worker_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="cannot be started") as caught:
        run_with_plan(Target(script="train.py"), tmp_path, worker_command=("/nonexistent/python",))
    assert caught.value.exit_code == 1
