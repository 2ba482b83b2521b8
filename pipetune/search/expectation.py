"""What a rewrite is expected to gain: the cost model's prediction and the screening windows as one distribution.

On the log scale both are normal: the prediction with the error that the model is known to make, the window with the
spread of the session's own windows. The screening window is of the rewrite alone; what it shows beyond the prediction
for the rewrite alone corrects the prediction for it beside others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Prediction
from pipetune.search.composing import Composer
from pipetune.search.screening import Screened
from pipetune.search.statistics import ACCEPT_ABOVE

Expected = Callable[[Plan], Prediction]
"""What is predicted of a plan. May be called often with the same one."""

MostGain = Callable[[Prediction], float | None]
"""What training could gain at most with a plan of which this is predicted; None where that is unknown."""

LEAST_ERROR, ERROR_PER_LOG = 0.07, 0.25
"""The model's error, as the deviation of the log of a ratio: so much where it predicts no change, and so much more per
unit of the log of what it predicts. From the 120 plans of `reports/accuracy.json`: 0.07 where no change is predicted
(85 plans), 0.23 where 1.1 to 1.5 is, 0.32 up to 2.7, 0.64 above."""

LOST_BY = 2.0
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
        if rate is None or math.log(rate) + LOST_BY * error_of(math.log(rate)) >= 0.0:
            return False
        if not shares_processors:
            return True
        cpu = _ratio(ours.cpu_seconds_per_example, theirs.cpu_seconds_per_example)
        return cpu is not None and cpu >= 1


def error_of(log_ratio: float) -> float:
    """The deviation of the model's error where it predicts this."""
    return LEAST_ERROR + ERROR_PER_LOG * abs(log_ratio)


UNKNOWN_ERROR = 0.5
"""The same where the model cannot tell (Python, operators nobody knows): what it guesses may be off by 1.6 or more."""

CPU_SPREAD = 0.1
"""Deviation of the log ratio of CPU seconds per example of two short windows, quiet or beside neighbours; 0.06 to 0.08
was measured for windows of a second."""

QUIET_SPREAD, QUIET_WINDOWS = 0.08, 2
"""Deviation of the log rate of one window on a quiet machine, worth so many windows of the session's own."""

SURE, HOPE = 0.84, 1.28
"""Deviations below the mean that 80 %, and 90 %, of a normal distribution lie above."""

SURPRISE = 2.0
"""Deviations from what is expected beyond which a window is taken again: one in twenty by chance, if it is no spike."""

WORTH = math.log(ACCEPT_ABOVE)


@dataclass(frozen=True)
class Belief:
    """A log ratio: its mean, its standard deviation, and what the model alone says (None where it cannot tell)."""

    mean: float
    deviation: float
    predicted: float | None

    @property
    def worth_joining(self) -> bool:
        """Whether the model expects a gain that counts; where it cannot tell, whether windows show more than chance."""
        surely = self.mean - SURE * self.deviation if self.predicted is None else self.predicted
        return min(self.mean, surely) >= WORTH

    @property
    def may_gain(self) -> bool:
        """Whether a gain that counts is expected, or nobody can tell."""
        return self.predicted is None or self.mean >= WORTH

    @property
    def hopeless(self) -> bool:
        """Whether less than 10 % is left for a gain that counts."""
        return self.mean + HOPE * self.deviation < WORTH


def spread_of(rates: Sequence[float]) -> float:
    """Deviation of the log ratio of a screening window to the two of the base beside it, from rates of the base.

    The variance of few windows says little: it is drawn towards that of a quiet machine.
    """
    logs = [math.log(rate) for rate in rates]
    squares = statistics.pvariance(logs) * len(logs) if logs else 0.0
    freedom = max(0, len(logs) - 1)
    variance = (QUIET_WINDOWS * QUIET_SPREAD**2 + squares) / (QUIET_WINDOWS + freedom)
    return math.sqrt(1.5 * variance)


@dataclass
class Expectation:
    """Beliefs about rewrites, alone and beside others."""

    forecast: Forecast
    base: Plan
    composer: Composer
    shares_processors: bool
    spread: float = QUIET_SPREAD  # of the log ratio of one screening window
    screened: dict[str, list[Screened]] = field(default_factory=dict)  # every window, by rewrite key

    def of(self, rewrite: Rewrite, over: Plan | None = None) -> Belief:
        """What `rewrite` adds to the plan `over` (to the base where None).

        Where the model trains on the same processors, fewer CPU seconds are a gain too: the larger of the two counts.
        """
        return self._larger(lambda cpu: self._belief(rewrite, over or self.base, cpu=cpu))

    def predicted(self, plan: Plan) -> Belief:
        """What a whole plan gains over the base, by the model alone."""
        return self._larger(lambda cpu: self._predicted(plan, self.base, cpu=cpu))

    def _larger(self, belief: Callable[[bool], Belief]) -> Belief:
        """The belief of the rate, or where processors are shared of the CPU seconds, if that is the larger gain."""
        return max(map(belief, (False, True) if self.shares_processors else (False,)), key=lambda one: one.mean)

    def gain_over(self, plan: Plan, over: Plan) -> Belief:
        """What a plan gains over another one, by the model alone."""
        return self._predicted(plan, over, cpu=False)

    def ranked(self, rewrites: Iterable[Rewrite], over: Plan | None = None) -> list[Rewrite]:
        """What is expected to add most first."""
        return sorted(rewrites, key=lambda rewrite: -self.of(rewrite, over).mean)

    def joined(self, rewrites: Sequence[Rewrite], strongest: Rewrite) -> Plan:
        """`strongest` and those of `rewrites` that are each expected to add a gain that counts, given the others.

        From all that may stand together the one that is expected to add least leaves, until each is worth its place:
        so those that pay only together stay.
        """
        plan = self.composer.everything([strongest, *(one for one in rewrites if one.key != strongest.key)])
        while others := [one for one in plan.rewrites if one.key != strongest.key]:
            beliefs = {one.key: self.of(one, self.composer.without(plan, [one])) for one in others}
            idle = [one for one in others if not beliefs[one.key].worth_joining]
            if not idle:
                break
            plan = self.composer.without(plan, [min(idle, key=lambda one: beliefs[one.key].mean)])
        return plan

    def surprised_by(self, screened: Screened) -> bool:
        """Whether a window shows what is hardly to be expected: by chance, or because the model is wrong."""
        belief = self._predicted(self.composer.plan([screened.rewrite]), self.base, cpu=False)
        beyond = abs(math.log(screened.rate) - belief.mean)
        return beyond > SURPRISE * math.hypot(belief.deviation, self.spread)

    def learn(self, screened: Screened) -> None:
        """Keep what a window showed, whatever it is: each narrows the distribution alike."""
        self.screened.setdefault(screened.rewrite.key, []).append(screened)

    def _belief(self, rewrite: Rewrite, over: Plan, *, cpu: bool) -> Belief:
        predicted = self._predicted(self.composer.added(over, rewrite), over, cpu=cpu)
        shown = self.screened.get(rewrite.key)
        if not shown:
            return predicted
        alone = self._predicted(self.composer.plan([rewrite]), self.base, cpu=cpu)
        spread = (CPU_SPREAD if cpu else self.spread) / math.sqrt(len(shown))
        weight = alone.deviation**2 / (alone.deviation**2 + spread**2)
        beyond = statistics.fmean(math.log(one.cpu if cpu else one.rate) for one in shown) - alone.mean
        variance = max(predicted.deviation**2 - weight * alone.deviation**2, 0.0)
        return Belief(predicted.mean + weight * beyond, math.sqrt(variance), predicted.predicted)

    def _predicted(self, plan: Plan, over: Plan, *, cpu: bool) -> Belief:
        """The model's word alone."""
        ours, theirs = self.forecast.of(plan), self.forecast.of(over)
        told = _ratio(_seconds(theirs, cpu=cpu), _seconds(ours, cpu=cpu))
        if told is not None:
            mean = math.log(told)
            return Belief(mean, error_of(mean), mean)
        guess = None if cpu else _ratio(_guess(ours), _guess(theirs))
        return Belief(math.log(guess) if guess else 0.0, UNKNOWN_ERROR, None)


def _seconds(foreseen: Prediction, *, cpu: bool) -> float | None:
    """Seconds per example: of CPU time, or of wall time."""
    if cpu:
        return foreseen.cpu_seconds_per_example
    return 1 / foreseen.examples_per_second if foreseen.examples_per_second else None


def _guess(foreseen: Prediction) -> float | None:
    return foreseen.examples_per_second or foreseen.fallback_rate


def _ratio(one: float | None, other: float | None) -> float | None:
    if one is None or other is None or not (one > 0 and other > 0) or math.isinf(one) or math.isinf(other):
        return None
    return one / other
