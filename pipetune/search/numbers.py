"""Numbers in AUTOTUNE's place: only where they beat it by the acceptance rule."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import OutOfBudget, Trial
from pipetune.core.time_plan import Part
from pipetune.search.composing import numbers_for
from pipetune.search.kit import SearchContext
from pipetune.search.screening import PROMISE, Screener

NUMBERS_TRIED = 2
"""Numbers measured in pairs against what the plan has, at most."""


def try_numbers(plan: Plan, granted: Sequence[Rewrite], kit: SearchContext) -> tuple[Plan, tuple[Trial, ...]]:
    """`plan`, or the same with one number changed that is proven faster; and what was tried.

    The numbers that promise most in a short window are decided on against `plan`, if there is time for it.

    Raises:
        RunFailed: the plan itself cannot be measured any more.
    """
    variants = [
        kit.composer.added(plan, number) for rewrite in plan.rewrites for number in numbers_for(rewrite, granted)
    ]
    if not variants or not kit.affords_race(1):
        return plan, ()
    kit.notify("stage", name="numbers")
    screener = Screener(plan, kit.meter, notify=kit.notify, enough=lambda: kit.affords_race(1))
    promising: list[tuple[float, Plan]] = []
    try:
        reference = kit.meter.rate(plan, "input", part=Part.SEARCH)
        for variant in variants:
            if not kit.affords_race(1):
                break
            window = screener.try_window(variant, "input", short=False)
            if window is not None and window.examples_per_second > PROMISE * reference:
                promising.append((window.examples_per_second, variant))
    except OutOfBudget:
        return plan, tuple(screener.trials)
    promising.sort(key=lambda entry: -entry[0])
    chosen = [variant for _, variant in promising[:NUMBERS_TRIED] if kit.gate.equal(variant)]
    while chosen and not kit.affords_race(len(chosen)):
        chosen.pop()
    if not chosen:
        return plan, tuple(screener.trials)
    decision = kit.race(chosen, plan, Part.SEARCH)
    best = decision.accepted[0].plan if decision.accepted else plan
    return best, (*screener.trials, *decision.trials)
