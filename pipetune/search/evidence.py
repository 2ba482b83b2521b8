"""What is known of the gain of a plan that is not proven: one distribution from the model and all windows.

On the log scale it is a mixture: most rewrites change nothing, some change something, by what the cost model expects
with its known error, or by anything where it cannot tell. Every pair of windows narrows it. It proves nothing: proof is
for the looks of a race.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import optimize, special

from pipetune.core.results import Interval
from pipetune.search.expectation import LEAST_ERROR, UNKNOWN_ERROR, Belief, error_of
from pipetune.search.statistics import ACCEPT_ABOVE, FEWEST_PAIRS, PAIR_SPREAD, moments, steadied_moments

SHORT_SPREAD = 0.35
"""Deviation of the log ratio of a short window of a single rewrite, chosen among many for what it shows."""

CHANGES_SOMETHING, UNKNOWN_CHANGES = 0.3, 0.15
"""Of all plans that are tried: how many change the rate at all. Of the 120 plans of `reports/accuracy.json` 35 do; half
as many are assumed where the model cannot tell. By simulation, what is then called likely truly gains in four of five
sessions (of ten candidates, one of which gains or none) or more."""

NO_CHANGE_SPREAD = 0.02
"""Deviation of the log of the true ratio of a rewrite that changes nothing that matters."""

_MIDDLE = 0.8  # of the distribution: the range that is shown


@dataclass(frozen=True)
class Evidence:
    """A distribution of the log of a gain: a mixture of t distributions, normal where `freedom` is infinite.

    Args:
        parts: weight, mean and scale of each; the weights add up to 1.
        pairs: of windows that are in it.
        freedom: degrees of freedom of the parts.
    """

    parts: tuple[tuple[float, float, float], ...]
    pairs: int = 0
    freedom: float = math.inf

    @property
    def mean(self) -> float:
        return sum(weight * mean for weight, mean, _ in self.parts)

    @property
    def probability(self) -> float:
        """Of a gain above `ACCEPT_ABOVE`."""
        return 1 - self._below(math.log(ACCEPT_ABOVE))

    @property
    def interval(self) -> Interval:
        """The middle 80 %, and the median."""
        method = "cost model and windows" if math.isinf(self.freedom) else "t on log ratios"
        low, median, high = (math.exp(self._quantile(share)) for share in ((1 - _MIDDLE) / 2, 0.5, (1 + _MIDDLE) / 2))
        return Interval(median, low, high, pairs=self.pairs, method=f"{method}, {100 * _MIDDLE:g} %")

    def _below(self, value: float) -> float:
        return sum(
            weight * float(special.stdtr(self.freedom, (value - mean) / max(scale, 1e-9)))
            for weight, mean, scale in self.parts
        )

    def _quantile(self, share: float) -> float:
        reach = 20 * max(scale for *_, scale in self.parts) + 1e-6
        low, high = min(mean for _, mean, _ in self.parts) - reach, max(mean for _, mean, _ in self.parts) + reach
        return float(optimize.brentq(lambda value: self._below(value) - share, low, high))


def evidence(
    predicted: Belief,
    short: Sequence[float],
    ratios: Sequence[float],
    *,
    spread: float = PAIR_SPREAD,
    most_gain: float | None = None,
) -> Evidence:
    """Returns what is known of a plan from the model and windows.

    Args:
        predicted: by the model alone.
        short: ratios of short windows of a single rewrite to the pipeline as written. They count where there are fewer
            than `FEWEST_PAIRS` pairs, and little: one in a hundred falls into a pause of the neighbours.
        ratios: of the pairs, each the plan over the pipeline as written.
        spread: deviation of the log ratio of a pair in this session, as far as known.
        most_gain: above which no gain is possible (training cannot be faster than without any wait, nor use more than
            all cores); None for no limit.
    """
    before, error = predicted.mean, predicted.deviation
    if most_gain is not None and math.log(most_gain) < before:
        before = math.log(most_gain)
        error = error if predicted.predicted is None else error_of(before)
    if len(ratios) < FEWEST_PAIRS:
        ratios, spread = [*short, *ratios], max(spread, SHORT_SPREAD)
    precision, weight, measured = 1 / max(error, 1e-6) ** 2, 0.0, 0.0
    if ratios:
        measured, variance = steadied_moments([math.log(ratio) for ratio in ratios], spread=max(spread, PAIR_SPREAD))
        weight = len(ratios) / variance
    together = precision + weight
    changed = (precision * before + weight * measured) / together, together**-0.5
    share = _share_that_changes(predicted)
    if not weight:
        return Evidence(((share, *changed), (1 - share, 0.0, NO_CHANGE_SPREAD)))
    changes = share * _density(measured - before, error**2 + 1 / weight)
    changes_nothing = (1 - share) * _density(measured, NO_CHANGE_SPREAD**2 + 1 / weight)
    share = changes / max(changes + changes_nothing, 1e-300)
    narrowed = 1 / (NO_CHANGE_SPREAD**-2 + weight)
    unchanged = narrowed * weight * measured, math.sqrt(narrowed)
    return Evidence(((share, *changed), (1 - share, *unchanged)), len(ratios))


def _share_that_changes(predicted: Belief) -> float:
    """The chance that a plan changes the rate at all, given what the model says of it.

    A small gain is predicted of many that change nothing: the largest of ten predictions is one by its error.
    """
    if predicted.predicted is None:
        return UNKNOWN_CHANGES
    changes = CHANGES_SOMETHING * _density(predicted.predicted, UNKNOWN_ERROR**2)
    changes_nothing = (1 - CHANGES_SOMETHING) * _density(predicted.predicted, LEAST_ERROR**2)
    return changes / max(changes + changes_nothing, 1e-300)


def _density(distance: float, variance: float) -> float:
    return math.exp(-(distance**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def evidence_of_pairs(ratios: Sequence[float]) -> Evidence:
    """Returns what pairs alone say, with no expectation before them: those of the patched script are not chosen by one.

    Raises:
        ValueError: fewer than two ratios.
    """
    mean, standard_error, freedom = moments(ratios)
    return Evidence(((1.0, mean, standard_error),), len(ratios), freedom)
