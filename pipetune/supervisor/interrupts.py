"""Ctrl-C as a file descriptor to wait for, instead of an exception that may be raised anywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

PATIENCE = 3  # from this many signals on, Ctrl-C raises `KeyboardInterrupt` again, in any state


class Interrupts:
    """A context manager that counts SIGINT, SIGTERM and SIGHUP and makes `descriptor` readable on each.

    Python delivers signals to the main thread only: in any other thread, nothing is ever counted.
    """

    def __init__(self) -> None:
        self.count = 0
        self.descriptor = -1
        self._write_end = -1
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._write_end)

    def take(self) -> None:
        """Drain `descriptor`, so that it becomes readable only at the next signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 1 << 10)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= PATIENCE:
            raise KeyboardInterrupt
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"!")
