"""What the model expects of plans, and how far its word is taken: as far as it was right on the baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pipetune.core.edits import Plan
from pipetune.core.results import Prediction, Rate

Expected = Callable[[Plan], Prediction]
"""What is predicted of a plan. May be called often with the same one."""

LEAST_MARGIN = 0.15
"""A plan predicted to lose less than this is run: so far off the model may be on any pipeline."""

_NOTHING = Prediction()


class Forecast:
    """Predictions of one session.

    The model's error here is how far the ratio of two baselines was predicted from how it was measured; a plan
    counts as losing only where it is predicted to lose more than twice the largest such error.
    """

    def __init__(self, expected: Expected | None, baselines: Mapping[str, Plan], *, base: str) -> None:
        """`base`: the name of the baseline that every gain is over."""
        self._expected = expected
        self._baselines = dict(baselines)
        self._base = base
        self._known: dict[str, Prediction] = {}
        self._margin = math.inf

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

    @property
    def margin(self) -> float:
        """The least predicted loss that is believed, as a share; infinite where nothing is."""
        return self._margin

    def learn(self, measured: Mapping[str, Rate]) -> None:
        """Compare with the rates of the baselines; without two of them nothing is believed."""
        base = self._baselines[self._base]
        errors = [
            abs(math.log(ours / theirs))
            for name, plan in self._baselines.items()
            if name != self._base
            and (ours := _ratio(self.rate(plan), self.rate(base)))
            and (theirs := _ratio(_examples(measured, name), _examples(measured, self._base)))
        ]
        self._margin = max(LEAST_MARGIN, 1 - math.exp(-2 * max(errors))) if errors else math.inf

    def loses(self, plan: Plan, over: Plan, *, shares_processors: bool) -> bool:
        """Whether `plan` is predicted to be slower than `over` beyond doubt.

        Where the model trains on the same processors, fewer CPU seconds are a gain too.
        """
        ours, theirs = self.of(plan), self.of(over)
        rate = _ratio(ours.examples_per_second, theirs.examples_per_second)
        if rate is None or rate >= 1 - self._margin:
            return False
        if not shares_processors:
            return True
        cpu = _ratio(ours.cpu_seconds_per_example, theirs.cpu_seconds_per_example)
        return cpu is not None and cpu >= 1


def _examples(measured: Mapping[str, Rate], name: str) -> float | None:
    return measured[name].examples_per_second if name in measured else None


def _ratio(one: float | None, other: float | None) -> float | None:
    if one is None or other is None or not (one > 0 and other > 0) or math.isinf(one) or math.isinf(other):
        return None
    return one / other
