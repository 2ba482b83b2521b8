"""The signals by which the command asks a worker to stop; child processes that the script forks do not get to see them.

A child inherits Python's handlers, and a signal that arrives just after the fork is lost with them: the child of
`Process.terminate()` right behind `start()` would not end. So they wait during a fork, and find it as the script
expects it.
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
"""What stops a worker, and what the script's children do then."""


class Stopping:
    """Calls `stop` when the command asks this process to stop, not what the script does when it is interrupted."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        self._before: set[signal.Signals] = set()  # what was blocked before a fork
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._leave_to_child)

    def listen(self) -> None:
        """From now on, whatever handlers the script has set; of the main thread alone, which Python has handle them."""
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
