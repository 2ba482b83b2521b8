"""Time for what is only told: the confirmation's rounds come first, and a third of what is left is for offers."""

from __future__ import annotations

import random

import pytest

from pipetune.core.edits import Plan
from pipetune.search.adding import affordable_pairs
from pipetune.search.budget import Budget, Part
from pipetune.search.composing import Composer
from pipetune.search.equality import EqualityGate
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter
from pipetune.search.runner import silent
from tests.search.scenes import quiet, runner


def kit(*, budget_seconds: float, window_seconds: float) -> SearchContext:
    """At the start of the budget: 80 % of it may go to offers, and 100 % are left until the confirmation ends."""
    made = runner({}, noise=quiet())
    meter = Meter(made, made.clock, budget=Budget(budget_seconds, made.clock))
    meter.expect("input", window_seconds)
    gate = EqualityGate(made, made.clock, notify=silent)
    return SearchContext(Plan("defaults"), meter, Composer(()), gate, random.Random(0), silent)


def pairs(kit: SearchContext, *, waiting: int = 1) -> int:
    return affordable_pairs(kit, waiting=waiting, fewest=4, most=1000)


def test_where_there_is_time_for_all_offers_take_their_part() -> None:
    rich = kit(budget_seconds=1000.0, window_seconds=1.0)
    assert rich.meter.budget.left(Part.ABLATION) == pytest.approx(800)
    assert pairs(rich) == pytest.approx(800 / rich.seconds(2, rounds=1), abs=1)
    assert pairs(rich, waiting=4) == pytest.approx(200 / rich.seconds(2, rounds=1), abs=1)


def test_good_confirmations_come_first() -> None:
    tight = kit(budget_seconds=40.0, window_seconds=1.0)  # 24 s of these are wanted for eight rounds of three
    assert pairs(tight) == int(16 / tight.seconds(2, rounds=1))


def test_a_third_of_what_is_left_is_for_offers_all_the_same() -> None:
    poor = kit(budget_seconds=30.0, window_seconds=1.0)
    assert pairs(poor) == int(8 / poor.seconds(2, rounds=1))


def test_too_few_pairs_are_none() -> None:
    assert pairs(kit(budget_seconds=10.0, window_seconds=1.0)) == 0
