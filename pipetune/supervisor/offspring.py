"""Ends a worker together with everything it started.

The worker leads its own process group, which is killed as a whole. A process that left the group (launchers
call `setsid`) is still found: while a worker runs, the supervisor is the "child subreaper" (prctl(2)), so
orphans become its own children instead of the system's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

import psutil

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_HELPER_SECONDS = 2.0  # they need a few milliseconds


_adopting = False


@contextlib.contextmanager
def adopted() -> Iterator[None]:
    """Make orphaned descendants children of this process; on exit, kill those started meanwhile.

    When nested, for workers in parallel, only the outermost does this, for all of them.
    """
    global _adopting
    if _adopting:
        yield
        return
    before = set(_descendants())
    subreaper = _set_subreaper(True)
    _adopting = True
    try:
        yield
    finally:
        _adopting = False
        try:
            _kill([process for process in _descendants() if process not in before])
        finally:
            if subreaper:
                _set_subreaper(False)


def kill_group(leader: int) -> None:
    """Kill every process of the group that `leader` leads or led.

    Resource trackers of Python's `multiprocessing` and of joblib are killed last: they exit by themselves once no other
    process is left, and remove the shared memory that the killed processes leaked.
    """
    members = [process for process in psutil.process_iter() if _is_in_group(process, leader)]
    helpers = [process for process in members if _is_helper(process)]
    for process in members:
        if process not in helpers:
            with contextlib.suppress(psutil.Error):
                process.kill()
    if helpers:
        psutil.wait_procs(helpers, timeout=_HELPER_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _is_in_group(process: psutil.Process, leader: int) -> bool:
    try:
        return os.getpgid(process.pid) == leader
    except OSError:
        return False


def _is_helper(process: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _descendants() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)  # reaps them too


def _set_subreaper(on: bool) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
