"""Asynchronous devices and a fake clock, for tests of timing."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest


class Device:
    """Runs its steps one after the other in a separate thread, and records when each was done."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.done_at: list[float] = []
        self._queue: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def step(self, *_element: Any) -> Pending:
        """Returns immediately, with a value that is ready later."""
        value = Pending()
        self._queue.put(value)
        return value

    def seconds_per_step(self, *, steps: int, warmup: int) -> float:
        """The true time, from the device's record: from the end of the warm-up to the end of the last step."""
        return (self.done_at[warmup + steps - 1] - self.done_at[warmup - 1]) / steps

    def numpy(self) -> int:
        """The device as a variable: the number of steps done, after all queued ones."""
        last = Pending(works=False)
        self._queue.put(last)
        last.ready.wait()
        return len(self.done_at)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (value := self._queue.get()) is not None:
            if value.works:
                time.sleep(self.seconds)
                self.done_at.append(time.perf_counter())
            value.ready.set()


@dataclass
class Pending:
    """A value whose reading blocks until it is ready."""

    ready: threading.Event = field(default_factory=threading.Event)
    works: bool = True  # False: only a position in the queue

    def numpy(self) -> float:
        self.ready.wait()
        return 0.0

    def __float__(self) -> float:
        return self.numpy()


class InventedClock:
    """Replaces the real clock; time passes only when it is spent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.spend)

    def spend(self, seconds: float) -> None:
        self.now += max(0.0, seconds)
