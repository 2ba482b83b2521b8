"""Time for what is only told: the confirmation's rounds come first, and a third of what is left is for offers."""

from __future__ import annotations

import pytest

from pipetune.search.information import affordable_pairs
from pipetune.search.state import SearchState
from tests.search.scenes import Scene, runner


def state(*, budget_seconds: float, window_seconds: float, decided: bool = True) -> SearchState:
    """At the start of the budget, which is decided at once: there is nothing to verify."""
    made = Scene((), runner(), budget_seconds=budget_seconds).state()
    if decided:
        made.budget.decide(verifies=False)
    made.meter.expect("input", window_seconds)
    return made


def pairs(made: SearchState, *, waiting: int = 1) -> int:
    return affordable_pairs(made, waiting=waiting, fewest=4, most=1000)


def test_optional_rewrites_share_what_is_left_after_the_decision() -> None:
    rich = state(budget_seconds=800.0, window_seconds=1.0)
    assert pairs(rich) == pytest.approx(800 / rich.seconds(2, rounds=1), abs=1)
    assert pairs(rich, waiting=4) == pytest.approx(200 / rich.seconds(2, rounds=1), abs=1)


def test_nothing_is_measured_for_information_before_the_decision() -> None:
    assert pairs(state(budget_seconds=800.0, window_seconds=1.0, decided=False)) == 0


def test_too_few_pairs_are_none() -> None:
    assert pairs(state(budget_seconds=7.0, window_seconds=1.0)) == 0
