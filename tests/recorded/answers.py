"""Answers to what would be measured, from a file, and a clock that only they and its readers move on.

A run that is recorded measures as ever, and keeps what it measured and how long that took. A run that is replayed gets
the same answers in the same order, so that whatever differs between two replays was changed in the code.
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
"""Classes of recorded answers that stand elsewhere now: (module, name) as recorded, and as it is."""

_TICK = 1e-3  # seconds that pass between two looks at the clock: loops that wait for a time come to their end


class NoAnswer(Exception):
    """A replayed run asks for what was not measured when it was recorded."""


@dataclass
class Answer:
    """What a measurement gave: a value, or an exception, beside what it left behind."""

    value: Any
    raised: bool
    seconds: float
    left: Any = None


@dataclass
class Answers:
    """The answers of one process, by what was asked, in order."""

    replays: bool
    clock: Clock
    known: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    keep: Callable[[str, Answer], None] = lambda asked, answer: None  # where it is recorded

    def load(self, path: Path) -> None:
        with path.open("rb") as file, contextlib.suppress(EOFError):
            while True:
                asked, answer = _Renaming(file).load()
                self.known[asked].append(answer)

    def take(self, asked: str) -> Answer:
        """The next answer; the last one again where a run asks more often than it was recorded."""
        answers = self.known.get(asked)
        if not answers:
            raise NoAnswer(asked)
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Clock:
    """Seconds that pass only as the answers say, and a little with each look."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._real = (time.monotonic, time.perf_counter, time.process_time)
        self._main = threading.main_thread()
        self.stopped = 0

    def install(self) -> None:
        time.monotonic = time.perf_counter = time.process_time = self.now

    def now(self) -> float:
        if self.stopped:
            return self._real[1]()
        if threading.current_thread() is self._main:
            self._now += _TICK
        return self._now

    def measured(self, call: Callable[[], Any]) -> tuple[Any, bool, float]:
        """What a call gives or raises on the real clock, and how long it took."""
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
        asked: from the arguments of a call, what tells it from other calls of the same name.
        left: what a call leaves behind beside its result; `leave` puts it there where the call is answered.
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
    """Puts `other` where any imported module of the package has `original` under some name."""
    for name, module in list(sys.modules.items()):
        if module is not None and (name == package or name.startswith(f"{package}.")):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, other)


class _Renaming(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module, name = RENAMED.get((module, name), (module, name))
        return super().find_class(module, name)
