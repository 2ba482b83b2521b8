"""Exits a worker, with all it started, when its supervisor dies: SIGKILL leaves the supervisor no chance to do it."""

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
    """Starts a thread that kills this process group once the other end of the pipe is closed.

    Args:
        descriptor: the write end of a pipe that the supervisor reads until this process has exited.
        undo: the folder of undo journals, "" for none. Another process then restores what they recorded.

    Returns:
        False, without a thread, if this process does not lead its group: a script that shares its user's terminal
        (`pipetune run`) is independent, and goes on.
    """
    if os.getpgrp() != os.getpid():
        return False
    threading.Thread(target=_wait, args=(descriptor, undo), name="pipetune-orphaned", daemon=True).start()
    return True


def _wait(descriptor: int, undo: str) -> None:
    poller = select.poll()
    poller.register(descriptor, 0)  # POLLERR, when nobody reads any more, is reported without being requested
    poller.poll()
    if undo:
        with contextlib.suppress(OSError):  # the next command then restores instead
            _start_restoration()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _start_restoration() -> None:
    """Restores what killed commands left behind, in a process that outlives this one."""
    subprocess.Popen(
        [sys.executable, "-P", "-m", "pipetune.core.restoration"],
        env={name: value for name, value in os.environ.items() if name != VARIABLE},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
