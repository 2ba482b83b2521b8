"""Of rewrites that exclude each other, those that the forecast says another beats: not run where that one ran.

A cache at another place of the same path costs the search a whole epoch to fill, and only one of them can stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetune.core.edits import Rewrite
from pipetune.core.results import RunFailed
from pipetune.search.composing import Composer
from pipetune.search.forecast import Forecast
from pipetune.search.meter import Meter, Refused


@dataclass(frozen=True)
class Outdone:
    """The key of the rewrite that beats it, and the reason in words."""

    by: str
    why: str


def find_outdone(
    ranked: Sequence[Rewrite], forecast: Forecast, *, composer: Composer, meter: Meter
) -> Mapping[str, Outdone]:
    """By key: rewrites predicted slower, beyond doubt, than the best of their group that may run.

    Alone, and each beside whatever may stand beside it: what is slower alone may leave room for others. What needs a
    consent of its own beats none: what a file takes to read the model does not know.

    Args:
        ranked: what is predicted fastest first.
    """
    best: dict[str, Rewrite] = {}
    found: dict[str, Outdone] = {}
    for rewrite in ranked:
        if not rewrite.group or rewrite.equal_is_enough:
            continue
        other = best.get(rewrite.group)
        if other is None:
            if not rewrite.needs and _may_run(rewrite, composer, meter):
                best[rewrite.group] = rewrite
            continue
        rest = [one for one in ranked if one.group != rewrite.group]
        alone = composer.plan([rewrite]), composer.plan([other])
        together = composer.everything([rewrite, *rest]), composer.everything([other, *rest])
        shares = meter.runner.shares_processors
        if all(forecast.loses(ours, theirs, shares_processors=shares) for ours, theirs in (alone, together)):
            rates = [forecast.rate(plan) or 0.0 for plan in alone]
            why = f"predicted {1 - rates[0] / rates[1]:.0%} slower than another of its kind; it was not run"
            found[rewrite.key] = Outdone(other.key, why)
    return found


def _may_run(rewrite: Rewrite, composer: Composer, meter: Meter) -> bool:
    try:
        meter.check(composer.plan([rewrite]))
    except (Refused, RunFailed):
        return False
    return True
