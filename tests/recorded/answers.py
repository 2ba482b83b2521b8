"""Recorded measurements, and a clock that advances only with them and with each reading.

A recorded run measures as usual, and keeps the results and durations. A replayed run gets the same results in the same
order, so that any difference between two replays comes from a change of the code.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RENAMED: dict[tuple[str, str], tuple[str, str]] = {}
"""Classes of recorded answers that were moved: (module, name) as recorded -> (module, name) now."""

_TAKE_TURNS = ("MainThread", "pipetune")  # of a loop's script, and of the work while it waits; others read at any time
_TICK = 1e-3  # seconds per reading of the clock, so that loops that wait for a time end


class NoAnswer(Exception):
    """A replayed run needs a measurement that was not recorded."""


@dataclass
class Answer:
    """The result of a measurement: a value or an exception, and its side effect."""

    value: Any
    raised: bool
    seconds: float
    left: Any = None


@dataclass
class Answers:
    """The answers of one process, by question, in order."""

    replays: bool
    clock: Clock
    known: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    keep: Callable[[str, Answer], None] = lambda asked, answer: None  # set when recording

    def load(self, path: Path) -> None:
        with path.open("rb") as file, contextlib.suppress(EOFError):
            while True:
                asked, answer = _Renaming(file).load()
                self.known[asked].append(answer)

    def take(self, asked: str) -> Answer:
        """The next answer; the last one is repeated where a run needs more than were recorded."""
        answers = self.known.get(asked)
        if not answers:
            raise NoAnswer(asked)
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Clock:
    """A clock that advances by the durations of the answers, and a little with each reading."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._real = (time.monotonic, time.perf_counter, time.process_time)
        self.stopped = 0

    def install(self) -> None:
        time.monotonic = time.perf_counter = time.process_time = self.now

    def now(self) -> float:
        if self.stopped:
            return self._real[1]()
        if threading.current_thread().name in _TAKE_TURNS:
            self._now += _TICK
        return self._now

    def measured(self, call: Callable[[], Any]) -> tuple[Any, bool, float]:
        """The result or exception of a call, whether it raised, and its duration on the real clock."""
        self.stopped += 1
        time.monotonic, time.perf_counter, time.process_time = self._real
        started = time.perf_counter()
        try:
            return call(), False, time.perf_counter() - started
        except Exception as error:
            return error, True, time.perf_counter() - started
        finally:
            self.stopped -= 1
            if not self.stopped:
                self.install()

    def advance(self, seconds: float) -> None:
        self._now += seconds


def answered(
    answers: Answers,
    original: Callable[..., Any],
    name: str,
    *,
    asked: Callable[..., str] = lambda *_, **__: "",
    left: Callable[..., Any] = lambda *_, **__: None,
    leave: Callable[..., None] = lambda *_, **__: None,
) -> Callable[..., Any]:
    """`original`, whose results are recorded or come from the recording.

    Args:
        asked: derives from the arguments of a call a key that distinguishes it from other calls of the same name.
        left: returns the side effect of a call; `leave` applies it when the call is replayed.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if answers.clock.stopped:  # within another measurement
            return original(*args, **kwargs)
        question = f"{name} {asked(*args, **kwargs)}".strip()
        if answers.replays:
            answer = answers.take(question)
            if answer.left is not None:
                leave(answer.left, *args, **kwargs)
        else:
            value, raised, seconds = answers.clock.measured(lambda: original(*args, **kwargs))
            answer = Answer(value, raised, seconds, left(*args, **kwargs))
            answers.keep(question, answer)
        answers.clock.advance(answer.seconds)
        if answer.raised:
            raise answer.value
        return answer.value

    return call


def replace_everywhere(package: str, original: object, other: object) -> None:
    """Replaces `original` by `other` in all imported modules of the package, under any name."""
    for name, module in list(sys.modules.items()):
        if module is not None and (name == package or name.startswith(f"{package}.")):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, other)


class _Renaming(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module, name = RENAMED.get((module, name), (module, name))
        return super().find_class(module, name)
