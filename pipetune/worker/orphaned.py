"""A worker whose supervisor was killed ends, with all it started: nobody hears it any more, and nobody would end it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading

from pipetune.core.restoration import VARIABLE


def end_without_supervisor(descriptor: int, *, undo: str = "") -> bool:
    """Ends this process and its group once the other end of its pipe is closed; False where the group is not its own.

    A script that shares the terminal of its user (`pipetune run`) runs for itself, and goes on.

    Args:
        descriptor: the end of the pipe that is written to, which a supervisor reads until this process has ended.
        undo: the folder of undo journals; "" for none. What they recorded is put back by another process.
    """
    if os.getpgrp() != os.getpid():
        return False
    threading.Thread(target=_wait, args=(descriptor, undo), name="pipetune-orphaned", daemon=True).start()
    return True


def _wait(descriptor: int, undo: str) -> None:
    poller = select.poll()
    poller.register(descriptor, 0)  # that nobody reads is reported unasked
    poller.poll()
    if undo:
        with contextlib.suppress(OSError):  # then the next command does it
            _start_restoration()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _start_restoration() -> None:
    """Puts back what killed commands left, in a process that does not end with this one."""
    subprocess.Popen(
        [sys.executable, "-P", "-m", "pipetune.core.restoration"],
        env={name: value for name, value in os.environ.items() if name != VARIABLE},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
