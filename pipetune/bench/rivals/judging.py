"""Windows of all contenders, taken in rounds, to rates and to pipetune's lead over each rival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetune.bench.rivals.contenders import UNCACHED, Contenders
from pipetune.core.benchmarks import PIPETUNE
from pipetune.core.results import Interval, Rate, Window
from pipetune.search.meter import rate_from
from pipetune.search.runner import DEFAULTS
from pipetune.search.statistics import ratio_interval

Windows = Mapping[str, Sequence[Window]]
"""By contender the window of each round; a contender that failed is absent."""


@dataclass(frozen=True)
class Judged:
    """What the windows of one workload say; ratios of rates, window by window of a round."""

    rates: Mapping[str, Rate]  # by rival
    ratio_over: Mapping[str, Interval]  # pipetune over each other
    without_cache: Mapping[str, Interval]
    over_defaults: Mapping[str, Interval]  # each over `defaults`


def judge(windows: Windows, contenders: Contenders) -> Judged:
    """Rates, and ratios with their intervals: t on the logarithms of the ratios of each round."""
    rivals = [name for name in contenders.plans if not name.endswith(UNCACHED)]
    bare = {name: contenders.without_cache(name) for name in rivals}
    return Judged(
        rates={name: rate_from(windows[name]) for name in rivals if windows.get(name)},
        ratio_over=_ratios(windows, PIPETUNE, {name: name for name in rivals if name != PIPETUNE}),
        without_cache=_ratios(
            windows, contenders.without_cache(PIPETUNE), {name: bare[name] for name in rivals if name != PIPETUNE}
        ),
        over_defaults={
            name: ratio
            for name in rivals
            if name != DEFAULTS and (ratio := _ratio(windows, name, DEFAULTS)) is not None
        },
    )


def _ratios(windows: Windows, ours: str, others: Mapping[str, str]) -> dict[str, Interval]:
    found = {name: _ratio(windows, ours, other) for name, other in others.items()}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _ratio(windows: Windows, one: str, other: str) -> Interval | None:
    """The rate of one contender over that of another, round by round; None with fewer than two rounds of both."""
    pairs = zip(windows.get(one, ()), windows.get(other, ()), strict=False)
    ratios = [above.examples_per_second / below.examples_per_second for above, below in pairs]
    return ratio_interval(ratios) if len(ratios) >= 2 else None
