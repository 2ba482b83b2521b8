"""Shows the messages of a running worker to the user, and when the run will end.

That is estimated from the budget, the processes that verify, and what is measured after that.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core.messages import ActionSuppressed, LogLine, Message, Progress, VerdictKnown, WorkerStarted
from pipetune.core.profile import Verdict
from pipetune.core.time_plan import AFTER_NO_SECONDS

if TYPE_CHECKING:
    from pipetune.report.console import Progress as Screen

# Measured on two cores with the examples; whatever they are, the estimate is corrected as the run goes on.
_STARTS = 1.7  # of the way to the first training step: two processes take it at the same time, on the same cores
_STARTS_IN_TURN = 5.0  # where they run one after the other: each twice, and the original once more
_AFTER_PROOF = 0.2  # share of the budget: AUTOTUNE for comparison, epochs and memory, once the patch is proven
_VERIFYING = 0.2  # share of the budget: pairs of windows of the patched script and the original
_PAIRS = 6  # that a verification takes as a rule
_REPORT = 1.0  # seconds

_LOG_SECONDS = 0.2  # between two looks at a growing log


class TimeLeft:
    """Estimates the seconds until the run ends, from what it does.

    Args:
        budget: seconds of `--budget`.
        clock: seconds, monotonic; replaced in tests.
    """

    def __init__(self, budget: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget, self._clock, self._begun = budget, clock, clock()
        self._first_step: float | None = None  # seconds from the start
        self.verdict = ""  # once it is known
        self.in_turn = False  # the two scripts of the verification run one after the other
        self._promising = False  # a plan is proven in the search, so that a patch will be verified
        self._verifying_since: float | None = None
        self._pairs = 0
        self._proven_since: float | None = None

    def seconds(self, phase: str, budget_left: float | None, *, promising: bool = False) -> float | None:
        """Returns the estimate while the worker measures; None before the first training step.

        `promising`: whether a plan is proven faster in the search.
        """
        if budget_left is None or phase == "capture":
            return None
        if self._first_step is None:
            self._first_step = self._clock() - self._begun
        self._promising = promising or self._promising
        if self.verdict == Verdict.NOT_INPUT_BOUND.value:
            return min(budget_left, AFTER_NO_SECONDS) + _REPORT
        verification = self._starts() + _AFTER_PROOF * self._budget
        if self._promising:  # a proven plan ends the search before its time
            return min(budget_left, 0.5 * self._budget) + verification + _REPORT
        # Half of the runs have a patch to verify; the later it is, the fewer of those without a proven plan.
        chance = min(0.5, max(0.0, (budget_left / self._budget - 0.3) / 0.6))
        return budget_left + chance * verification + _REPORT

    def verifying(self, *, pairs: int = 0, proven: bool = False) -> float:
        """Returns the estimate while the patch is verified, with so many pairs of windows so far."""
        now = self._clock()
        if self._verifying_since is None:
            self._verifying_since = now
        self._pairs = max(self._pairs, pairs)
        if proven and self._proven_since is None:
            self._proven_since = now
        after = _AFTER_PROOF * self._budget
        if self._proven_since is not None:
            return max(0.0, after - (now - self._proven_since)) + _REPORT
        measuring = _VERIFYING * self._budget
        if self._pairs and not self.in_turn:
            return measuring * max(0, _PAIRS - self._pairs) / _PAIRS + after + _REPORT
        starting = max(0.0, self._starts() - (now - self._verifying_since))
        return starting + measuring + after + _REPORT

    def _starts(self) -> float:
        return (_STARTS_IN_TURN if self.in_turn else _STARTS) * (self._first_step or 0.0)


def show(message: Message, screen: Screen, time_left: TimeLeft | None = None) -> None:
    """Shows one message of a worker if it is meant for the user; without `time_left`, the end is not estimated."""
    match message:
        case WorkerStarted(sentence=sentence):
            screen.say(sentence)
        case Progress(best=best):
            left = None
            if time_left is not None:
                left = time_left.seconds(message.phase, message.left_seconds, promising=bool(best))
            doing = f"{message.activity} (best so far: {best})" if best else message.activity
            screen.update(message.phase, doing, left)
        case VerdictKnown():
            if time_left is not None:
                time_left.verdict = message.verdict
            screen.verdict(message.verdict, message.sentence)
        case LogLine(text=text):
            screen.say(text)
        case ActionSuppressed(what=what, count=1):
            screen.say(f"Suppressed while pipetune measures: {what.removesuffix('_suppressed')}.")


@contextlib.contextmanager
def log_shown(path: Path, screen: Screen) -> Iterator[None]:
    """Context manager that shows a growing log line by line."""
    stop = threading.Event()

    def show_new_lines() -> None:
        rest = b""
        with path.open("rb") as stream:
            while True:
                last = stop.wait(_LOG_SECONDS)
                *lines, rest = (rest + stream.read()).split(b"\n")
                for line in [*lines, rest] if last and rest else lines:
                    screen.say(line.decode(errors="replace"))
                if last:
                    return

    thread = threading.Thread(target=show_new_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
