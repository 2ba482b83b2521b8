"""Time for what is only told: the confirmation's rounds come first, and a third of what is left is for offers."""

from __future__ import annotations

import random

import pytest

from pipetune.core.edits import Plan
from pipetune.core.time_plan import TimePlan
from pipetune.search.composing import Composer
from pipetune.search.equality import EqualityGate
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter
from pipetune.search.offers import affordable_pairs
from pipetune.search.runner import silent
from tests.search.scenes import quiet, runner


def kit(*, budget_seconds: float, window_seconds: float, decided: bool = True) -> SearchContext:
    """At the start of the budget, which is decided at once: there is nothing to verify."""
    made = runner({}, noise=quiet())
    budget = TimePlan(budget_seconds, made.clock)
    if decided:
        budget.decide(verifies=False)
    meter = Meter(made, made.clock, budget=budget)
    meter.expect("input", window_seconds)
    gate = EqualityGate(made, made.clock, notify=silent)
    return SearchContext(Plan("defaults"), meter, Composer(()), gate, random.Random(0), silent)


def pairs(kit: SearchContext, *, waiting: int = 1) -> int:
    return affordable_pairs(kit, waiting=waiting, fewest=4, most=1000)


def test_optional_rewrites_share_what_is_left_after_the_decision() -> None:
    rich = kit(budget_seconds=800.0, window_seconds=1.0)
    assert pairs(rich) == pytest.approx(800 / rich.seconds(2, rounds=1), abs=1)
    assert pairs(rich, waiting=4) == pytest.approx(200 / rich.seconds(2, rounds=1), abs=1)


def test_nothing_is_measured_for_information_before_the_decision() -> None:
    assert pairs(kit(budget_seconds=800.0, window_seconds=1.0, decided=False)) == 0


def test_too_few_pairs_are_none() -> None:
    assert pairs(kit(budget_seconds=7.0, window_seconds=1.0)) == 0
