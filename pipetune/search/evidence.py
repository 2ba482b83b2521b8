"""What is known of a gain: one distribution, begun by the cost model and narrowed by every window and pair.

On the log scale it is a mixture: most rewrites change nothing, some change something, by what the cost model expects
with its known error, or by anything where it cannot tell. It says what to measure next and what to tell of a plan that
is not proven. It proves nothing: proof is for the looks of a race.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from scipy import optimize, special

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Interval
from pipetune.core.results import Prediction
from pipetune.core.session import NOTHING_BELOW
from pipetune.search.composing import Composer
from pipetune.search.statistics import ACCEPT_ABOVE, FEWEST_PAIRS, PAIR_SPREAD, moments, steadied_moments

Expected = Callable[[Plan], Prediction]
"""What is predicted of a plan."""

MostGain = Callable[[Prediction], float | None]
"""What training could gain at most with a plan of which this is predicted; None where that is unknown."""

CpuShare = Callable[[Prediction], float | None]
"""What an input of which this is predicted takes of all processors while training never waits; None where unknown."""

LEAST_ERROR, ERROR_PER_LOG = 0.07, 0.25
"""The model's error, as the deviation of the log of a ratio: so much where it predicts no change, and so much more per
unit of the log of what it predicts. From the 120 plans of `reports/accuracy.json`: 0.07 where no change is predicted
(85 plans), 0.23 where 1.1 to 1.5 is, 0.32 up to 2.7, 0.64 above."""

UNKNOWN_ERROR = 0.5
"""The same where the model cannot tell (Python, operators nobody knows): what it guesses may be off by 1.6 or more."""

CHANGES_SOMETHING, UNKNOWN_CHANGES = 0.3, 0.15
"""Of all plans that are tried: how many change the rate at all. Of the 120 plans of `reports/accuracy.json` 35 do; half
as many are assumed where the model cannot tell. In simulated sessions, of ten candidates one of which gains or none,
86 % of what is then called likely truly gains."""

NO_CHANGE_SPREAD = 0.02
"""Deviation of the log of the true ratio of a rewrite that changes nothing that matters."""

QUIET_SPREAD = 0.08
"""Deviation of the log rate of one window on a quiet machine."""

LOST_BY = 2.0
"""Deviations by which a predicted loss must exceed the model's error to be believed without a measurement."""

SURE = 0.84
"""Deviations below the mean that 80 % of a normal distribution lie above."""

SURPRISE = 2.0
"""Deviations from what is expected beyond which a window is taken again: one in twenty by chance, if it is no spike."""

CACHE_SPARES = 0.1
"""Log of how much less time a step takes with a cache than beside an input that is as fast but busy: 9 to 19 % in four
scripts whose input could be faster than the model (`examples/decisions`, by the stopwatch)."""

WORTH = math.log(ACCEPT_ABOVE)

_MIDDLE = 0.8  # of the distribution: the range that is shown


@dataclass(frozen=True)
class Prior:
    """The model's prediction of a log ratio, with its error."""

    mean: float  # of the log ratio
    deviation: float  # of the model's error
    predicted: float | None  # the log of what it predicts; None where it cannot tell and guesses
    parts: tuple[float | None, ...] = ()  # the same of each rewrite, given the others; empty where there is only one

    @classmethod
    def of(cls, ratio: float | None, *, guess: float | None = None) -> Prior:
        """Returns the prediction of a ratio, with the error that the model is known to make."""
        if ratio is not None:
            return cls(math.log(ratio), error_of(math.log(ratio)), math.log(ratio))
        return cls(math.log(guess) if guess else 0.0, UNKNOWN_ERROR, None)

    @property
    def changes(self) -> float:
        """The chance that a plan changes the rate at all: that one of its rewrites does.

        A small gain is predicted of many that change nothing: the largest of ten predictions is one by its error, and
        four such errors in one plan add up to what no single one could be.
        """
        return 1 - math.prod(1 - _changes(predicted) for predicted in self.parts or (self.predicted,))


@dataclass(frozen=True)
class Evidence:
    """A distribution of the log of a gain: a mixture of t distributions, normal where `freedom` is infinite."""

    parts: tuple[tuple[float, float, float], ...]
    """Weight, mean and scale of each; the weights add up to 1. The first is of a plan that changes something."""
    pairs: int = 0  # of windows that are in it
    freedom: float = math.inf  # degrees of freedom of the parts
    predicted: float | None = None  # the log of what the model alone says; None where it cannot tell
    measured: float | None = None  # the log of what windows alone say; None without any
    limit: tuple[float, float] | None = None
    """Mean and deviation of the log of what training could gain at most, None for no limit; the gain is the smaller of
    the two."""

    @property
    def mean(self) -> float:
        return sum(weight * mean for weight, mean, _ in self.parts)

    @property
    def expected(self) -> float:
        """The log of what it gains if it changes anything: what is tried first."""
        return self.parts[0][1]

    @property
    def deviation(self) -> float:
        """The scale of the distribution whose mean is `expected`."""
        return self.parts[0][2]

    @property
    def probability(self) -> float:
        """Of a gain above `ACCEPT_ABOVE`."""
        return 1 - self._below(WORTH)

    @property
    def chance(self) -> float:
        """Of a gain above `ACCEPT_ABOVE` if it changes anything: by which time is given to it."""
        return 1 - float(special.stdtr(self.freedom, (WORTH - self.expected) / max(self.deviation, 1e-9)))

    @property
    def interval(self) -> Interval:
        """The middle 80 %, and the median."""
        method = "cost model and windows" if math.isinf(self.freedom) else "t on log ratios"
        low, median, high = (math.exp(self._quantile(share)) for share in ((1 - _MIDDLE) / 2, 0.5, (1 + _MIDDLE) / 2))
        return Interval(median, low, high, pairs=self.pairs, method=f"{method}, {100 * _MIDDLE:g} %")

    @property
    def may_gain(self) -> bool:
        """Whether a gain that counts is expected, or nobody can tell."""
        return self.predicted is None or self.expected >= WORTH

    @property
    def worth_joining(self) -> bool:
        """Whether the model expects a gain that counts, and windows, if there are any, show one.

        Where the model cannot tell, whether windows show more than chance.
        """
        surely = self.expected - SURE * self.deviation if self.predicted is None else self.predicted
        shown = self.expected if self.measured is None else self.measured
        return min(self.expected, surely, shown) >= WORTH

    @property
    def hopeless(self) -> bool:
        """Whether less than 10 % is left for a gain that counts, even if it changes anything."""
        return self.chance < NOTHING_BELOW

    def _below(self, value: float) -> float:
        below = sum(
            weight * float(special.stdtr(self.freedom, (value - mean) / max(scale, 1e-9)))
            for weight, mean, scale in self.parts
        )
        if self.limit is None:
            return below
        limit, deviation = self.limit
        return 1 - (1 - below) * float(special.ndtr((limit - value) / max(deviation, 1e-9)))

    def _quantile(self, share: float) -> float:
        normal = [(mean, scale) for _, mean, scale in self.parts] + ([] if self.limit is None else [self.limit])
        reach = 20 * max(scale for _, scale in normal) + 1e-6
        low, high = min(mean for mean, _ in normal) - reach, max(mean for mean, _ in normal) + reach
        return float(optimize.brentq(lambda value: self._below(value) - share, low, high))


def evidence(
    prior: Prior, ratios: Sequence[float] = (), *, spread: float = PAIR_SPREAD, most_gain: float | None = None
) -> Evidence:
    """Returns what the model and windows together say of a gain.

    Args:
        prior: the model's prediction.
        ratios: of pairs of windows.
        spread: deviation of the log ratio of a pair in this session, as far as known.
        most_gain: no gain is possible above it (training without any wait, or on all cores); None for no limit.
    """
    before, error = prior.mean, prior.deviation
    if most_gain is not None and math.log(most_gain) < before:
        before = math.log(most_gain)
        error = error if prior.predicted is None else error_of(before)
    precision, share = 1 / max(error, 1e-6) ** 2, prior.changes
    if not ratios:
        return Evidence(((share, before, error), (1 - share, 0.0, NO_CHANGE_SPREAD)), predicted=prior.predicted)
    measured, variance = steadied_moments([math.log(ratio) for ratio in ratios], spread=spread)
    weight = len(ratios) / variance
    together = precision + weight
    changes = share * _density(measured - before, error**2 + 1 / weight)
    changes_nothing = (1 - share) * _density(measured, NO_CHANGE_SPREAD**2 + 1 / weight)
    share = changes / max(changes + changes_nothing, 1e-300)
    narrowed = 1 / (NO_CHANGE_SPREAD**-2 + weight)
    parts = (
        (share, (precision * before + weight * measured) / together, together**-0.5),
        (1 - share, narrowed * weight * measured, math.sqrt(narrowed)),
    )
    return Evidence(parts, len(ratios), predicted=prior.predicted, measured=measured)


def evidence_of_pairs(ratios: Sequence[float]) -> Evidence:
    """Returns what pairs alone say, with no expectation before them: those of the patched script are not chosen by one.

    Raises:
        ValueError: fewer than two ratios.
    """
    mean, standard_error, freedom = moments(ratios)
    return Evidence(((1.0, mean, standard_error),), len(ratios), freedom)


def limit_of(wait_share: Interval) -> tuple[float, float]:
    """Returns mean and deviation of the log of what training could gain at most: that it waits no more.

    Args:
        wait_share: the share of a step that training waits, with its 95 % interval.
    """
    most, at_most = (-math.log1p(-min(share, 0.99)) for share in (wait_share.median, wait_share.high))
    return most, (at_most - most) / special.ndtri(0.975)


def _changes(predicted: float | None) -> float:
    """Returns the chance that a rewrite changes the rate at all, of the log of what the model predicts of it."""
    if predicted is None:
        return UNKNOWN_CHANGES
    changes = CHANGES_SOMETHING * _density(predicted, UNKNOWN_ERROR**2)
    changes_nothing = (1 - CHANGES_SOMETHING) * _density(predicted, LEAST_ERROR**2)
    return changes / max(changes + changes_nothing, 1e-300)


def error_of(log_ratio: float) -> float:
    """The deviation of the model's error where it predicts this."""
    return LEAST_ERROR + ERROR_PER_LOG * abs(log_ratio)


def _density(distance: float, variance: float) -> float:
    return math.exp(-(distance**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def spread_of(rates: Sequence[float]) -> float:
    """Deviation of the log ratio of a short window to the two of the base beside it, from rates of the base.

    That of a quiet machine where there are none.
    """
    if not rates:
        return math.sqrt(1.5) * QUIET_SPREAD
    return math.sqrt(1.5 * steadied_moments([math.log(rate) for rate in rates], spread=QUIET_SPREAD)[1])


@dataclass(frozen=True)
class ShortWindow:
    """What a short window of a rewrite showed over the base: 1.2 is 20 % better, of rate and CPU time per example."""

    rewrite: Rewrite
    over: Plan  # that it was added to, and measured against
    rate: float  # of examples per second
    cpu: float  # of CPU seconds per example, the base's over its own


@dataclass
class Gains:
    """What is known of the gain of every plan over another one."""

    expected: Expected
    base: Plan  # the pipeline as written
    composer: Composer
    shares_processors: bool  # whether the model trains on the same processors: fewer CPU seconds are a gain too then
    most_gain: MostGain = lambda prediction: None  # what a plan may gain over the base where training steps decide
    cpu_share: CpuShare = lambda prediction: None  # what its input then takes of the processors of the model
    limit: tuple[float, float] | None = None  # of the gain, as a distribution, by the measured wait; None for no limit
    spread: float = QUIET_SPREAD  # deviation of the log ratio of one short window
    short_windows: dict[str, list[ShortWindow]] = field(default_factory=lambda: defaultdict(list))  # by rewrite key
    pairs: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)  # by keys of a plan and of its base
    _predictions: dict[str, Prediction] = field(default_factory=dict)  # by key of the plan

    def prediction(self, plan: Plan) -> Prediction:
        """Returns what the model predicts of a plan; it is asked once."""
        if plan.key not in self._predictions:
            self._predictions[plan.key] = self.expected(plan)
        return self._predictions[plan.key]

    def prior(self, plan: Plan, over: Plan, *, cpu: bool = False) -> Prior:
        """Returns what the model predicts of the rate of a plan over that of another, or of their CPU seconds."""
        ours, theirs = self.prediction(plan), self.prediction(over)
        if cpu:
            return Prior.of(_ratio(theirs.cpu_seconds_per_example, ours.cpu_seconds_per_example))
        rate, other = (one.examples_per_second or one.fallback_rate for one in (ours, theirs))
        return Prior.of(_ratio(ours.examples_per_second, theirs.examples_per_second), guess=_ratio(rate, other))

    def attainable(self, plan: Plan) -> Evidence:
        """Returns what is known of the gain of `plan` over the base where it is no more than training could gain.

        Pairs of windows say that themselves.
        """
        known = self.of(plan, most_gain=self._most(plan))
        measured = len(self.pairs.get((plan.key, self.base.key), ())) >= FEWEST_PAIRS
        return known if measured else replace(known, limit=self.limit)

    def of(self, plan: Plan, over: Plan | None = None, *, most_gain: float | None = None) -> Evidence:
        """Returns what is known of the gain of `plan` over another one (over the base where None): what to try next."""
        over = over or self.base
        pairs = self.pairs.get((plan.key, over.key), ())
        if most_gain is None and over.key != self.base.key:
            most_gain = self._left_to_gain(plan, over)
        both = []
        for cpu in (False, True) if self.shares_processors else (False,):
            prior = self._corrected(plan, over, cpu=cpu)
            if len(pairs) >= FEWEST_PAIRS:
                both.append(evidence(prior, pairs, spread=max(self.spread, PAIR_SPREAD), most_gain=most_gain))
            else:
                ratios = [min(ratio, most_gain or ratio) for ratio in self._short_ratios(plan, over, cpu=cpu)]
                both.append(evidence(prior, [*ratios, *pairs], spread=self.spread, most_gain=most_gain))
        return max(both, key=lambda one: one.expected)

    def _left_to_gain(self, plan: Plan, over: Plan) -> float | None:
        """Returns what training could gain at most with `plan` over another one; None where that is unknown.

        A cache may leave the model nothing to wait for: what makes the input alone faster still is then no gain.
        """
        most, before = self._most(plan), self._most(over)
        if most is None or before is None:
            return None
        return max(1.0, most / min(before, math.exp(self.of(over).expected)))

    def added(self, rewrite: Rewrite, over: Plan | None = None) -> Evidence:
        """Returns what is known of the gain that `rewrite` adds to a plan (to the base where None)."""
        return self.of(self.composer.added(over or self.base, rewrite), over)

    def added_per_run(self, rewrite: Rewrite, over: Plan | None = None) -> float:
        """Returns the log of the gain that a rewrite adds over all epochs: none in the one that fills a cache."""
        later = self.added(rewrite, over).expected
        if rewrite.epochs_read is None:
            return later
        first = 1 / max(rewrite.epochs_read, 1.0)  # its share of the epochs
        return -math.log(first + (1 - first) * math.exp(-later))

    def ranked(self, rewrites: Iterable[Rewrite], over: Plan | None = None) -> list[Rewrite]:
        """Returns the rewrites, what is expected to add most over all epochs first.

        In front of all, those that surely reach what training can gain, unless with the epoch that fills a cache they
        gain less than another one: of these, what leaves the model most of the processors that they share, and of those
        that leave it as much, what holds least memory.
        """
        rewrites = list(rewrites)
        gains = {one.key: self.added_per_run(one, over) for one in rewrites}
        fast = [one for one in rewrites if over is None and self.reaches_most(one)]
        most = max((gains[one.key] for one in rewrites if one.epochs_read is None), default=-math.inf)
        fast = [one for one in fast if one.epochs_read is None or gains[one.key] + CACHE_SPARES >= most]
        shares = {one.key: self.cpu_share(self.prediction(self.composer.plan([one]))) or 0.0 for one in fast}
        least = min(shares.values(), default=0.0)

        def place(rewrite: Rewrite) -> tuple[bool, float, float]:
            if rewrite.key not in shares:
                return True, -gains[rewrite.key], 0.0
            more = shares[rewrite.key] - least
            return False, more if more > WORTH else 0.0, rewrite.predicted_bytes

        return sorted(rewrites, key=place)

    def reaches_most(self, rewrite: Rewrite) -> bool:
        """Whether a rewrite alone surely makes the input so fast that training can gain no more."""
        known = self.added(rewrite)
        surely = known.expected - SURE * known.deviation
        if surely < 0.0 or known.predicted is None or rewrite.needs:
            return False  # what a file takes to read, the model does not know
        most = self._most(self.composer.plan([rewrite]))
        limit = math.inf if self.limit is None else self.limit[0]
        return most is not None and surely >= min(math.log(most), limit)

    def _most(self, plan: Plan) -> float | None:
        """Returns what training could gain at most with a plan; None where that is unknown."""
        return self.most_gain(self.prediction(plan))

    def loses(self, plan: Plan, over: Plan) -> bool:
        """Whether `plan` is predicted to be slower than `over` by more than the model may be wrong.

        Where the model trains on the same processors, fewer CPU seconds are a gain too.
        """
        rate = self.prior(plan, over)
        if rate.predicted is None or rate.mean + LOST_BY * rate.deviation >= 0.0:
            return False
        cpu = self.prior(plan, over, cpu=True)
        return not self.shares_processors or (cpu.predicted is not None and cpu.predicted <= 0.0)

    def joined(self, rewrites: Sequence[Rewrite], strongest: Rewrite) -> Plan:
        """Returns `strongest` and those of `rewrites` that are each expected to add a gain that counts to the others.

        Of all that may stand together what adds least leaves, until each is worth its place: what pays together stays.
        What would make the safety class worse is not joined: it enters a plan where its own gain is proven.
        """
        as_safe = [one for one in rewrites if one.key != strongest.key and one.safety <= strongest.safety]
        plan = self.composer.everything([strongest, *as_safe])
        while others := [one for one in plan.rewrites if one.key != strongest.key]:
            known = {one.key: self.added(one, self.composer.without(plan, [one])) for one in others}
            idle = [one for one in others if not known[one.key].worth_joining]
            if not idle:
                break
            plan = self.composer.without(plan, [min(idle, key=lambda one: known[one.key].expected)])
        return plan

    def surprised_by(self, window: ShortWindow) -> bool:
        """Whether a window shows what is hardly to be expected: by chance, or because the model is wrong."""
        prior = self.prior(self.composer.added(window.over, window.rewrite), window.over)
        return abs(math.log(window.rate) - prior.mean) > SURPRISE * math.hypot(prior.deviation, self.spread)

    def _corrected(self, plan: Plan, over: Plan, *, cpu: bool) -> Prior:
        """Returns the model's prediction, less what it was wrong by on what `plan` has another answer in place of."""
        prior, more = self.prior(plan, over, cpu=cpu), _more(plan, over)
        if len(more) > 1:
            alone = (self.prior(plan, self.composer.without(plan, [one]), cpu=cpu).predicted for one in more)
            prior = replace(prior, parts=tuple(alone))
        if not _more(over, plan):
            return prior
        wrong = self.of(over).expected - self.prior(over, self.base, cpu=cpu).mean
        return replace(prior, mean=prior.mean - wrong)

    def _short_ratios(self, plan: Plan, over: Plan, *, cpu: bool) -> list[float]:
        """What short windows of the one rewrite more show; those beside another plan, as the model expects it here."""
        more = _more(plan, over)
        if len(more) != 1:
            return []
        here = self.prior(plan, over, cpu=cpu).mean
        ratios = []
        for window in self.short_windows.get(more[0].key, ()):
            there = self.prior(self.composer.added(window.over, window.rewrite), window.over, cpu=cpu).mean
            ratios.append((window.cpu if cpu else window.rate) * math.exp(here - there))
        return ratios


def _more(plan: Plan, over: Plan) -> list[Rewrite]:
    have = {one.key for one in over.rewrites}
    return [one for one in plan.rewrites if one.key not in have]


def _ratio(one: float | None, other: float | None) -> float | None:
    if one is None or other is None or not (one > 0 and other > 0) or math.isinf(one) or math.isinf(other):
        return None
    return one / other
