"""Handles the signals by which the command stops a worker; child processes that the script forks are not affected.

A child inherits Python's handlers, and a signal that arrives just after the fork is lost in them: a child would not
exit on `Process.terminate()` right after `start()`. The signals are therefore blocked during a fork, and the child
handles them in the way that the script expects.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_SIGNALS: dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""Signals that stop a worker -> their handler in child processes of the script."""


class Stopping:
    """Calls `stop` when the command stops this process, in place of the script's own signal handlers."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        self._before: set[signal.Signals] = set()  # signals that were blocked before a fork
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._leave_to_child)

    def listen(self) -> None:
        """Installs the handlers over those of the script; does nothing outside the main thread, as Python requires."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._called)

    def _called(self, _number: int, _frame: FrameType | None) -> None:
        self._stop()

    def _hold(self) -> None:
        self._before = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)}

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def _leave_to_child(self) -> None:
        for number, handler in _SIGNALS.items():
            if signal.getsignal(number) == self._called:
                signal.signal(number, handler)
        self._release()
