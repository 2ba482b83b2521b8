"""How a worker exits: without unwinding the script, with its supervisor, or by the signals of the command; and which
cleanup of the script does not run then."""

from __future__ import annotations

import ast
import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, NoReturn

import psutil

from pipetune.capture.patches import Patches
from pipetune.core.messages import MessageWriter, WorkerFinished
from pipetune.core.restoration import UNDO_VARIABLE
from pipetune.core.results import joined
from pipetune.core.undo import UndoJournal
from pipetune.pipelines import call_sites


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


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


class ExitHandlers:
    """Counts the `atexit` handlers that the script itself registers, until the patches are undone."""

    def __init__(self, patches: Patches) -> None:
        self.count = 0
        original: Callable[..., Any] = atexit.register

        def register(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not call_sites.is_library(sys._getframe(1).f_code.co_filename):
                self.count += 1
            return original(function, *args, **kwargs)

        patches.replace(atexit, "register", register)


def describe_pending(frame: FrameType | None, handlers: int) -> str:
    """Returns a sentence about the code that does not run if the script is ended at `frame`; '' if there is none.

    Args:
        frame: the innermost frame of its thread, possibly in pipetune; None if the script has reached its end.
        handlers: number of `atexit` handlers that the script registered.
    """
    stack = traceback.walk_stack(frame) if frame is not None else ()
    standing = [one for one, _ in stack if not call_sites.is_library(one.f_code.co_filename)]
    functions = (one for one in standing if one.f_code.co_name not in _COMPREHENSIONS)  # which stand in a function, too
    blocks = [name for one in functions for name in _open_blocks(one)]
    pending = ["its remaining code"] if standing else []
    counts = {"finally block": blocks.count("finally"), "with block": blocks.count("with"), "atexit handler": handlers}
    pending += [f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count]
    if not pending:
        return ""
    place = f" at {os.path.basename(standing[0].f_code.co_filename)}:{standing[0].f_lineno}" if standing else ""
    return f"The script was ended{place}, without its clean-up: {joined(pending)} did not run."


def _open_blocks(frame: FrameType) -> list[str]:
    """Returns the kinds of the cleanup blocks ("finally", "with") that enclose the current line of the frame."""
    tree = call_sites.syntax_tree(frame.f_code.co_filename)
    if tree is None:
        return []
    scope: ast.AST = tree
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, _SCOPES) and _covers(node, frame.f_lineno) and frame.f_code.co_name != "<module>":
            scope = node
    blocks: list[tuple[str, Sequence[ast.AST]]] = []
    for node in _within(scope):
        if isinstance(node, ast.Try | ast.TryStar) and node.finalbody:
            blocks.append(("finally", (*node.body, *node.handlers, *node.orelse)))
        elif isinstance(node, ast.With | ast.AsyncWith):
            blocks.append(("with", node.body))
    return [kind for kind, parts in blocks if any(_covers(part, frame.f_lineno) for part in parts)]


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _within(child)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", line + 1), getattr(node, "end_lineno", None)
    return first <= line <= (last or first)
