"""What the model expects of plans, and how far it may be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

from pipetune.core.edits import Plan
from pipetune.core.results import Prediction

Expected = Callable[[Plan], Prediction]
"""What is predicted of a plan. May be called often with the same one."""

LEAST_ERROR, ERROR_PER_LOG = 0.07, 0.25
"""The model's error, as the deviation of the log of a ratio: so much where it predicts no change, and so much more per
unit of the log of what it predicts. From the 120 plans of `reports/accuracy.json`: 0.07 where no change is predicted
(85 plans), 0.23 where 1.1 to 1.5 is, 0.32 up to 2.7, 0.64 above."""

SURE = 2.0
"""Deviations by which a predicted loss must exceed the model's error to be believed without a measurement."""

_NOTHING = Prediction()


class Forecast:
    """Predictions of one session; `expected` is None where there is no model."""

    def __init__(self, expected: Expected | None) -> None:
        self._expected = expected
        self._known: dict[str, Prediction] = {}

    def of(self, plan: Plan) -> Prediction:
        if self._expected is None:
            return _NOTHING
        if plan.key not in self._known:
            self._known[plan.key] = self._expected(plan)
        return self._known[plan.key]

    def rate(self, plan: Plan) -> float | None:
        return self.of(plan).examples_per_second

    def promise(self, plan: Plan) -> tuple[float, float]:
        """What to try first, the larger the earlier: by what is predicted, and behind that by what is guessed."""
        found = self.of(plan)
        return found.examples_per_second or 0.0, found.fallback_rate or 0.0

    def loses(self, plan: Plan, over: Plan, *, shares_processors: bool) -> bool:
        """Whether `plan` is predicted to be slower than `over` by more than the model may be wrong.

        Where the model trains on the same processors, fewer CPU seconds are a gain too.
        """
        ours, theirs = self.of(plan), self.of(over)
        rate = _ratio(ours.examples_per_second, theirs.examples_per_second)
        if rate is None or math.log(rate) + SURE * error_of(math.log(rate)) >= 0.0:
            return False
        if not shares_processors:
            return True
        cpu = _ratio(ours.cpu_seconds_per_example, theirs.cpu_seconds_per_example)
        return cpu is not None and cpu >= 1


def error_of(log_ratio: float) -> float:
    """The deviation of the model's error where it predicts this."""
    return LEAST_ERROR + ERROR_PER_LOG * abs(log_ratio)


def _ratio(one: float | None, other: float | None) -> float | None:
    if one is None or other is None or not (one > 0 and other > 0) or math.isinf(one) or math.isinf(other):
        return None
    return one / other
