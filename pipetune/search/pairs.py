"""Rounds of windows: every arm once per round, in an order drawn anew (AB or BA) from a kept seed.

Several plans tried against one base share its window in a round. Under a random order, slow changes of the
machine's speed fall on either side alike, and a ratio of two equal plans is above one as often as below.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan
from pipetune.core.results import RunFailed
from pipetune.core.time_plan import Part
from pipetune.search.meter import Meter, Refused


@dataclass
class Arm:
    """One plan in rounds of windows: its rate in every round so far, and why it left, if it did."""

    plan: Plan
    rates: list[float] = field(default_factory=list)
    failure: str = ""
    refused: bool = False
    seconds: float = 0.0

    @property
    def running(self) -> bool:
        return not self.failure


def ratios(arm: Arm, base: Arm) -> tuple[float, ...]:
    """The rate of `arm` over that of `base`, round by round, for as long as both ran."""
    return tuple(one / other for one, other in zip(arm.rates, base.rates, strict=False))


def measure_round(arms: Sequence[Arm], meter: Meter, draw: random.Random, *, unit: str, part: Part) -> None:
    """One window of every running arm, in random order. The first arm is the base: its failure is
    everybody's.

    A failing arm leaves (`failure` says why); the rest of the round goes on.

    Raises:
        RunFailed: the base failed.
        OutOfBudget: the part is over; the rates of the unfinished round are dropped.
    """
    order = [arm for arm in arms if arm.running]
    complete = len(arms[0].rates)
    draw.shuffle(order)
    try:
        for arm in order:
            before = meter.clock.now()
            try:
                arm.rates.append(meter.rate(arm.plan, unit, part=part))
            except (RunFailed, Refused) as problem:
                if arm is arms[0]:
                    raise RunFailed(f"{arm.plan.name}: {problem}") from problem
                arm.failure = str(problem) or type(problem).__name__
                arm.refused = isinstance(problem, Refused)
            finally:
                arm.seconds += meter.clock.now() - before
    except BaseException:
        for arm in arms:
            del arm.rates[complete:]
        raise


def pair(
    plan: Plan,
    base: Plan,
    meter: Meter,
    *,
    count: int,
    seed: int,
    unit: str = "input",
    part: Part = Part.SEARCH,
) -> tuple[float, ...]:
    """`count` paired measurements of `plan` over `base`; raises as `measure_round`, and `RunFailed` for
    `plan`.
    """
    draw = random.Random(seed)
    arms = [Arm(base), Arm(plan)]
    for _ in range(count):
        measure_round(arms, meter, draw, unit=unit, part=part)
        if arms[1].failure:
            raise RunFailed(arms[1].failure)
    return ratios(arms[1], arms[0])
