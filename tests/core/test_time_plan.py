"""The time plan: the parts are the whole, what is left over goes to later parts, and what informs comes last."""

from __future__ import annotations

import pytest

from benchmarks.recorded import FakeClock
from pipetune.core import time_plan
from pipetune.core.measurement import OutOfBudget
from pipetune.core.settings import Settings
from pipetune.core.time_plan import OF_SIXTY, STALL, VALIDATION_RESERVE, VALIDATION_SECONDS, Part, TimePlan


def plan(seconds: float = 60.0, **changes: bool) -> tuple[TimePlan, FakeClock]:
    clock = FakeClock()
    return TimePlan(seconds, clock, **changes), clock


def test_every_part_ends_in_proportion_to_the_budget() -> None:
    assert [*OF_SIXTY, Part.INFORMATION] == list(Part)
    for seconds in (60.0, 120.0):
        ends = [60 / seconds * plan(seconds)[0].ends(part) for part in OF_SIXTY]
        assert ends == pytest.approx([10, 20, 38, 42, 50, 60])


def test_unspent_time_goes_to_later_parts_only() -> None:
    budget, clock = plan()
    clock.advance(5)
    assert budget.left(Part.VERDICT) == pytest.approx(5)
    assert budget.left(Part.SEARCH) == pytest.approx(33)  # 18 of its own, and 15 that the parts before have left
    clock.advance(40)
    assert budget.left(Part.SEARCH) == budget.left(Part.ABLATION) == 0
    assert budget.left(Part.VERIFICATION) == pytest.approx(15)


def test_a_search_with_little_to_gain_is_short_and_leaves_time_to_verify() -> None:
    budget, clock = plan()
    clock.advance(12)
    budget.shorten_search()
    assert [budget.left(part) for part in (Part.SEARCH, Part.ABLATION, Part.EXTENSION)] == pytest.approx([20, 20, 20])
    assert budget.left(Part.VERIFICATION) == pytest.approx(48)


def test_what_was_begun_may_overrun_a_little() -> None:
    budget, clock = plan(100)
    clock.advance(16)
    assert not budget.affords(Part.VERDICT, 2)
    budget.require(Part.VERDICT, 2)
    with pytest.raises(OutOfBudget, match="verdict"):
        budget.require(Part.VERDICT, 7)


def test_nothing_informs_before_the_decision_and_afterwards_what_is_left_is_for_it_or_little_after_a_no() -> None:
    budget, clock = plan()
    clock.advance(25)
    assert budget.left(Part.INFORMATION) == 0
    budget.decide()
    assert budget.left(Part.INFORMATION) == pytest.approx(35)
    budget.end_within(5)
    assert budget.left(Part.INFORMATION) == budget.left(Part.VERIFICATION) == pytest.approx(5)


def test_validation_takes_from_the_search_and_from_what_informs_not_from_the_verification() -> None:
    budget, clock = plan()
    budget.reserve_for_validation()
    ends = [budget.ends(part) for part in (Part.VERDICT, Part.PREPARATION, Part.SEARCH, Part.EXTENSION)]
    assert ends == pytest.approx([10, 20, 38 - VALIDATION_RESERVE, 50 - VALIDATION_RESERVE])
    assert budget.ends(Part.VERIFICATION) == pytest.approx(60)
    clock.advance(37)
    budget.decide()
    assert budget.left(Part.INFORMATION) == pytest.approx(60 - VALIDATION_SECONDS - 37)
    assert budget.seconds_for_validation(verifies=True) == pytest.approx(60 + 3 - 37 - OF_SIXTY[Part.VERIFICATION])
    clock.advance(2)
    budget.end_validation()
    budget.decide()
    assert budget.left(Part.INFORMATION) == pytest.approx(21)


def test_nothing_is_kept_for_validation_that_only_a_plan_makes_worth_it() -> None:
    budget, clock = plan()
    budget.reserve_for_validation(without_plan=False)
    assert budget.ends(Part.SEARCH) == pytest.approx(38 - VALIDATION_RESERVE)
    clock.advance(32)
    budget.decide()
    assert budget.left(Part.INFORMATION) == pytest.approx(28)


def test_validation_has_a_share_of_the_time_that_is_left() -> None:
    budget, clock = plan()
    assert budget.seconds_for_validation(verifies=False) == VALIDATION_SECONDS
    assert plan(20)[0].seconds_for_validation(verifies=False) == pytest.approx(VALIDATION_SECONDS / 3)
    clock.advance(60)
    assert budget.seconds_for_validation(verifies=False) == pytest.approx(3)
    assert budget.seconds_for_validation(verifies=True) == 0


def test_a_measurement_takes_its_share_up_to_its_most_and_never_more_than_is_left() -> None:
    assert plan(60)[0].seconds_for(STALL) == pytest.approx(6)
    assert plan(quick=True)[0].seconds_for(STALL) == pytest.approx(6 / 5), "a fifth in a quick analysis"
    assert plan(600)[0].seconds_for(STALL) == STALL.most
    assert plan(1)[0].seconds_for(STALL) == STALL.least
    budget, clock = plan()
    clock.advance(7)
    assert budget.seconds_for(STALL) == pytest.approx(3)
    clock.advance(30)
    assert budget.seconds_for(STALL) == STALL.least
    assert budget.usual_seconds(time_plan.COMPARISON) == pytest.approx(5)


def test_a_profile_reserves_nothing_for_a_decision() -> None:
    budget, clock = plan(20, decides=False)
    clock.advance(17)
    assert budget.left(Part.VERDICT) == budget.left(Part.INFORMATION) == pytest.approx(3)
    assert budget.seconds_for(time_plan.EPOCHS) == pytest.approx(2)


def test_another_process_goes_on_with_what_is_left() -> None:
    clock = FakeClock()
    budget = TimePlan.of(Settings(budget_seconds=60), clock, spent=45.0)
    assert budget.left(Part.VERIFICATION) == pytest.approx(15)
    budget.begin()
    assert budget.left(Part.VERIFICATION) == pytest.approx(60)
