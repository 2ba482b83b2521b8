"""What is known of plans that are not proven: the distribution, which plan is kept, and how often "likely" is right."""

from __future__ import annotations

import math

import pytest

from pipetune.bench.simulating import SCENES, session
from pipetune.core.results import Outcome
from pipetune.core.session import LIKELY_FROM, NOTHING_BELOW, RejectionReason
from pipetune.search.evidence import UNKNOWN_CHANGES, Evidence, Prior, evidence, evidence_of_pairs
from tests.search.scenes import Scene, expecting, rewrites, rough, runner

UNKNOWN = Prior.of(None)


def told(gain: float, deviation: float = 0.1) -> Prior:
    return Prior(math.log(gain), deviation, math.log(gain))


def test_a_plan_that_nobody_knows_anything_of_may_gain() -> None:
    assert NOTHING_BELOW / 2 < evidence(UNKNOWN).probability < UNKNOWN_CHANGES


def test_pairs_narrow_what_the_model_expects() -> None:
    expected = evidence(told(1.5, 0.2))
    measured = evidence(told(1.5, 0.2), [1.3, 1.32, 1.28, 1.31])
    assert expected.interval.high / expected.interval.low > measured.interval.high / measured.interval.low
    assert measured.interval.low < 1.31 < measured.interval.high and measured.pairs == 4
    assert measured.probability > 0.95


def test_one_lucky_window_makes_nothing_likely() -> None:
    assert evidence(UNKNOWN, [2.3], spread=0.4).probability < LIKELY_FROM
    assert evidence(UNKNOWN, [2.3, 2.2, 2.4, 2.1]).probability > 0.95
    noisy = evidence(UNKNOWN, [4.0, 0.6, 2.3, 0.9])
    assert NOTHING_BELOW < noisy.probability < LIKELY_FROM


def test_windows_without_a_gain_leave_none_in_sight() -> None:
    assert evidence(told(1.3), [1.0, 0.99, 1.01, 1.0] * 4).probability < NOTHING_BELOW


def test_training_cannot_gain_more_than_its_wait() -> None:
    free = evidence(told(3.0), [1.15] * 3)
    limited = evidence(told(3.0), [1.15] * 3, most_gain=1.2)
    assert limited.interval.high < free.interval.high
    assert evidence(told(3.0, 0.3), most_gain=1.0).probability < 0.4


def test_a_small_predicted_gain_is_believed_less_than_a_large_one() -> None:
    assert evidence(told(1.08, 0.09)).probability < 0.3
    assert evidence(told(1.8, 0.2)).probability > 0.9


def test_pairs_alone_are_a_t_distribution() -> None:
    found = evidence_of_pairs([1.1, 1.2, 1.3, 1.15, 1.25, 1.2])
    assert isinstance(found, Evidence) and found.freedom == 5 and found.pairs == 6
    assert found.probability > 0.99 and found.interval.low < 1.2 < found.interval.high
    assert evidence_of_pairs([0.9, 0.95, 0.92]).probability < NOTHING_BELOW


def test_the_plan_that_most_probably_gains_is_kept_where_nothing_is_proven() -> None:
    """Three pairs are too few for the looks of a race beside neighbours, and enough to say what is likely."""
    gains = {"b@n1": 1.6}
    made = runner(gains, noise=rough(1), first_seconds=4.0)
    found = Scene(rewrites("abc"), made, expected=expecting(gains), budget_seconds=60).run()
    assert found.chosen is None and found.candidate is not None
    assert found.candidate.plan.key == "b@n1" and found.candidate.probability > LIKELY_FROM
    assert found.candidate.comparison is not None and found.candidate.comparison.proven
    assert found.candidate.gain.low < 1.6 < found.candidate.gain.high


def test_a_plan_that_changes_the_data_is_never_kept() -> None:
    gains = {"b@n1": 1.6}
    made = runner(gains, noise=rough(1), first_seconds=2.0)
    made.unequal_keys = frozenset({"b@n1"})
    found = Scene(rewrites("abc"), made, expected=expecting(gains), budget_seconds=60).run()
    assert found.candidate is None or found.candidate.plan.key != "b@n1"


def test_a_plan_that_a_race_gave_up_is_not_kept() -> None:
    found = Scene(rewrites("ab"), runner(), expected=expecting({"a@n1": 1.5, "b@n1": 1.2})).run()
    assert found.candidate is None
    assert not any(trial.outcome is Outcome.UNDECIDED for trial in found.trials)
    assert all(one.reason is not RejectionReason.UNDECIDED for one in found.rejections)


def called_likely(sessions: int, *, predicts: bool) -> tuple[int, int]:
    """Sessions that end with a likely plan, and those in which it truly gains; half of all have something to find."""
    ended = [
        session(SCENES[seed % len(SCENES)], seed=seed, gain=gain, predicts=predicts)
        for seed in range(sessions)
        for gain in (1.0, (1.1, 1.2, 1.5, 2.0)[seed % 4])
    ]
    return sum(one.likely for one in ended), sum(one.likely_rightly for one in ended)


@pytest.mark.exhaustive
@pytest.mark.parametrize("predicts", [True, False])
def test_what_is_called_likely_gains_in_four_of_five_of_many_sessions(predicts: bool) -> None:
    likely, right = called_likely(2000, predicts=predicts)
    assert likely >= 3 and right >= 0.8 * likely
