"""The estimate of when a run ends, on what real runs did."""

from __future__ import annotations

from pipetune.supervisor.time_left import TimeLeft


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_before_the_first_training_step() -> None:
    left = TimeLeft(60, Clock())
    assert left.seconds("capture", None) is None and left.seconds("capture", 60) is None
    assert left.seconds("profile", 60) is not None


def test_after_the_verdict_that_nothing_can_be_gained_it_is_soon_over() -> None:
    left = TimeLeft(60, Clock())
    left.seconds("profile", 60)
    left.verdict("not-input-bound")
    assert 2 <= (left.seconds("course", 48) or 0) <= 8


def test_the_estimate_shrinks_as_the_patch_is_verified() -> None:
    clock = Clock()
    left = TimeLeft(60, clock)
    clock.now += 6
    left.seconds("profile", 60)
    estimates = [left.verifying()]
    clock.now += 5
    estimates.append(left.verifying())
    clock.now += 5
    estimates += [left.verifying(pairs=pairs) for pairs in (1, 3, 6)]
    estimates.append(left.verifying(proven=True))
    clock.now += 60
    assert estimates == sorted(estimates, reverse=True)
    assert left.verifying() > 0, "something is always left while it runs"
