"""How a worker exits: without unwinding the script, with its supervisor, or by the signals of the command."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from types import FrameType
from typing import NoReturn

import psutil

from pipetune.core.messages import MessageWriter, WorkerFinished
from pipetune.core.restoration import UNDO_VARIABLE
from pipetune.core.undo import UndoJournal


def exit_with_supervisor(descriptor: int, *, undo: str = "") -> bool:
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
    poller.register(descriptor, 0)  # POLLERR, once the reading end is closed, is reported without being requested
    poller.poll()
    if undo:
        with contextlib.suppress(OSError):  # the next command then restores instead
            subprocess.Popen(  # restores what killed commands left behind, and outlives this process
                [sys.executable, "-P", "-m", "pipetune.core.restoration"],
                env={name: value for name, value in os.environ.items() if name != UNDO_VARIABLE},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    os.killpg(os.getpgrp(), signal.SIGKILL)


_FREEING_SECONDS = 20.0  # an iterator may wait for a step of the script that never ends; exiting then loses nothing
_CHILDREN_SECONDS = 2.0  # wait for killed processes to exit


def exit_process(code: int, writer: MessageWriter | None, journal: UndoJournal | None) -> NoReturn:
    """Exits this process with status `code`, whatever its threads do.

    Args:
        writer: sends `WorkerFinished` to the command; None to send nothing.
        journal: the undo journal of the script's files, which is closed; None if there is none.
    """
    from pipetune.timing.iterators import free_all_iterators  # imports TensorFlow: not before a worker is watched

    last = threading.Timer(_FREEING_SECONDS, _exit_now, (code, writer))
    last.daemon = True
    last.start()
    for step in (free_all_iterators, _kill_children, _shut_down_horovod):
        with contextlib.suppress(Exception):  # no failure may keep the process from exiting
            step()
    if journal is not None:
        with contextlib.suppress(OSError):
            journal.close()
        for path in journal.temporary_paths:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    _exit_now(code, writer)


def _exit_now(code: int, writer: MessageWriter | None) -> NoReturn:
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    if writer is not None:
        writer.send(WorkerFinished(code))
    os._exit(code)


def _shut_down_horovod() -> None:
    """Shuts Horovod down, as its own exit handler would; otherwise MPI kills the other ranks."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized():
        horovod.shutdown()


def _kill_children() -> None:
    """Kills pools, queues, servers and whatever else the script has started, without letting them finish.

    Except for Python's resource tracker, which removes leftover shared memory once this process has exited, and exits.
    """
    helper = getattr(resource_tracker._resource_tracker, "_pid", None)
    children = [child for child in psutil.Process().children(recursive=True) if child.pid != helper]
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=_CHILDREN_SECONDS)


_SIGNALS: dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""Signals that stop a worker -> their handler in child processes of the script."""


class StopSignalHandler:
    """Calls `stop` when the command stops this process, in place of the script's own signal handlers."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        self._blocked_before: set[signal.Signals] = set()  # signals that were blocked before a fork
        os.register_at_fork(
            before=self._block_signals, after_in_parent=self._unblock_signals, after_in_child=self._restore_in_child
        )

    def install(self) -> None:
        """Installs the handlers over those of the script; does nothing outside the main thread, as Python requires."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop()

    def _block_signals(self) -> None:
        self._blocked_before = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)}

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked_before)

    def _restore_in_child(self) -> None:
        for number, handler in _SIGNALS.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, handler)
        self._unblock_signals()
