"""A worker does not outlive its supervisor, nor does what it started; a script that runs for its user does."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

WORKER = """
import subprocess, sys, time
from pipetune.worker.orphaned import end_without_supervisor

child = subprocess.Popen(["sleep", "600"])
print(child.pid, end_without_supervisor(int(sys.argv[1])), flush=True)
time.sleep(600)
"""


@contextmanager
def started(*, own_group: bool) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A worker, and the end of its pipe that its supervisor reads; both have ended afterwards."""
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(write_end)],
        pass_fds=[write_end],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=own_group,
    ) as process:
        os.close(write_end)
        try:
            yield process, read_end
        finally:
            process.kill()


def test_a_worker_ends_with_its_supervisor_and_all_it_started_too() -> None:
    with started(own_group=True) as (process, read_end):
        assert process.stdout is not None
        _, watched = process.stdout.readline().split()
        assert watched == "True" and process.poll() is None
        os.close(read_end)
        assert process.wait(30) == -signal.SIGKILL
        ended, _, _ = select.select([process.stdout], [], [], 30)  # at its end when the child, which has it too, is
        assert ended and process.stdout.read() == ""


def test_a_script_of_the_users_terminal_goes_on() -> None:
    with started(own_group=False) as (process, read_end):
        assert process.stdout is not None
        child, watched = process.stdout.readline().split()
        os.kill(int(child), signal.SIGKILL)
        os.close(read_end)
        assert watched == "False"
