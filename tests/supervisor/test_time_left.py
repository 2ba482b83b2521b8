"""The estimate of when a run ends, on what real runs did."""

from __future__ import annotations

import pytest

from benchmarks.recorded import FakeClock
from pipetune.supervisor.display import TimeLeft

RECORDED = {
    "csv": (83.8, (
        (8.3, "measuring", "profile", 59.2, False), (12.9, "measuring", "verdict", 54.5, False),
        (17.8, "verdict", "input-bound"), (17.8, "measuring", "costs", 49.7, False),
        (21.4, "measuring", "files", 46.0, False), (26.7, "measuring", "files", 40.7, False),
        (30.7, "measuring", "trials", 36.7, False), (35.5, "measuring", "trials", 31.9, False),
        (37.5, "measuring", "emission", 29.9, True), (40.5, "verifying", 0, False), (57.6, "verifying", 1, False),
        (59.4, "verifying", 2, False), (61.6, "verifying", 3, False), (63.0, "verifying", 4, False),
        (64.6, "verifying", 5, False), (66.9, "verifying", 6, False), (66.9, "verifying", 0, True),
        (76.6, "verifying", 0, False),
    )),
    "busy": (26.6, (
        (10.1, "measuring", "profile", 59.2, False), (13.2, "measuring", "verdict", 56.0, False),
        (20.9, "verdict", "not-input-bound"), (20.9, "measuring", "costs", 48.3, False),
        (24.0, "measuring", "steps", 45.3, False), (24.0, "measuring", "course", 45.3, False),
    )),
    "photos": (71.3, (
        (9.4, "measuring", "profile", 59.3, False), (14.3, "measuring", "verdict", 54.3, False),
        (20.0, "verdict", "undetermined"), (20.0, "measuring", "costs", 48.6, False),
        (23.8, "measuring", "files", 44.9, False), (29.9, "measuring", "files", 38.7, False),
        (33.7, "measuring", "trials", 34.9, False), (40.5, "measuring", "trials", 28.2, False),
        (44.8, "measuring", "trials", 23.8, False), (48.8, "measuring", "trials", 19.8, False),
        (53.2, "measuring", "trials", 15.4, False), (54.9, "measuring", "emission", 13.8, False),
        (55.0, "measuring", "validation", 13.6, False), (55.0, "measuring", "steps", 13.6, False),
        (60.3, "measuring", "memory", 8.3, False), (65.3, "measuring", "course", 3.4, False),
        (67.2, "measuring", "files", 1.5, False),
    )),
}  # fmt: skip
"""Real runs of three examples with the default budget: seconds in all, and what was reported when."""


def time_left() -> tuple[TimeLeft, FakeClock]:
    clock = FakeClock()
    return TimeLeft(60, clock.now), clock


def test_nothing_is_said_before_the_first_training_step_and_after_the_verdict_no_it_is_soon_over() -> None:
    left = TimeLeft(60)
    assert left.seconds("capture", None) is None and left.seconds("capture", 60) is None
    assert left.seconds("profile", 60) is not None
    left.verdict("not-input-bound")
    assert 2 <= (left.seconds("course", 48) or 0) <= 8


def test_the_estimate_shrinks_as_the_patch_is_verified() -> None:
    left, clock = time_left()
    clock.advance(6)
    left.seconds("profile", 60)
    estimates = [left.verifying()]
    clock.advance(5)
    estimates.append(left.verifying())
    clock.advance(5)
    estimates += [left.verifying(pairs=pairs) for pairs in (1, 3, 6)]
    estimates.append(left.verifying(proven=True))
    clock.advance(60)
    assert estimates == sorted(estimates, reverse=True)
    assert left.verifying() > 0, "something is always left while it runs"


def test_scripts_that_take_turns_start_five_times() -> None:
    left, clock = time_left()
    clock.advance(12)
    left.seconds("profile", 60)
    left.verification_takes_turns()
    begin = left.verifying()
    assert begin >= 5 * 12
    clock.advance(50)
    assert left.verifying(pairs=3) == begin - 50, "the other half of the starts is still to come"


@pytest.mark.parametrize("name", RECORDED)
def test_after_the_verdict_the_estimate_is_within_a_third_of_the_truth(name: str) -> None:
    """Or within five seconds, near the end."""
    end, events = RECORDED[name]
    (left, clock), now, known = time_left(), 0.0, False
    for moment, kind, *details in events:
        clock.advance(moment - now)
        now = moment
        if kind == "verdict":
            left.verdict(details[0])
            known = True
            continue
        if kind == "measuring":
            estimate = left.seconds(details[0], details[1], promising=details[2])
        else:
            estimate = left.verifying(pairs=details[0], proven=details[1])
        truth = end - moment
        if known:
            assert estimate is not None and abs(estimate - truth) <= max(truth / 3, 5), (moment, estimate, truth)
