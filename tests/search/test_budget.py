"""Shares reserved in advance; what is left over rolls forward, never back."""

from __future__ import annotations

import pytest

from pipetune.core.results import OutOfBudget
from pipetune.search.budget import SHARES, Budget, Part
from pipetune.testing.runner import FakeClock


def test_the_shares_are_the_whole() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    assert [SHARES[part] for part in Part] == [0.20, 0.45, 0.15, 0.20]


def test_unspent_time_goes_to_later_parts_only() -> None:
    clock = FakeClock()
    budget = Budget(100, clock)
    clock.advance(5)
    assert budget.left(Part.BASELINES) == pytest.approx(15)
    assert budget.left(Part.SEARCH) == pytest.approx(60)  # 45 of its own and 15 the baselines left
    clock.advance(70)
    assert budget.left(Part.BASELINES) == 0
    assert budget.left(Part.SEARCH) == 0
    assert budget.left(Part.ABLATION) == pytest.approx(5)
    assert budget.left(Part.CONFIRMATION) == pytest.approx(25)


def test_what_was_begun_may_overrun_a_little() -> None:
    clock = FakeClock()
    budget = Budget(100, clock)
    clock.advance(19)
    assert not budget.affords(Part.BASELINES, 2)
    budget.require(Part.BASELINES, 2)
    with pytest.raises(OutOfBudget, match="baselines"):
        budget.require(Part.BASELINES, 7)
