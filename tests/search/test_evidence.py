"""What is known of plans that are not proven: the distribution, which plan is kept, and how often "likely" is right."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks.accuracy.simulated_sessions import SCENES, SessionDesign, simulate_session
from pipetune.core.edits import Consent, Plan, Rewrite, Safety
from pipetune.core.measurement import Interval
from pipetune.core.results import Prediction
from pipetune.core.session import LIKELY_FROM, NOTHING_BELOW
from pipetune.search import evidence as known_of
from pipetune.search.composing import Composer
from pipetune.search.evidence import QUIET_SPREAD, Expected, Gains, Prior, ShortWindow, evidence, spread_of
from tests.search.scenes import BASELINES, Scene, expecting, names, rewrites, rough, runner

UNKNOWN = Prior.of(None)


def told(gain: float, deviation: float = 0.1) -> Prior:
    return Prior(math.log(gain), deviation, math.log(gain))


def test_a_plan_that_nobody_knows_anything_of_may_gain_and_pairs_narrow_what_the_model_expects() -> None:
    assert NOTHING_BELOW / 2 < evidence(UNKNOWN).probability < known_of.UNKNOWN_CHANGES
    expected = evidence(told(1.5, 0.2))
    measured = evidence(told(1.5, 0.2), [1.3, 1.32, 1.28, 1.31])
    assert expected.interval.high / expected.interval.low > measured.interval.high / measured.interval.low
    assert measured.interval.low < 1.31 < measured.interval.high and measured.pairs == 4
    assert measured.probability > 0.95


def test_one_lucky_window_and_a_small_predicted_gain_make_nothing_likely() -> None:
    assert evidence(told(1.08, 0.09)).probability < 0.3
    assert evidence(told(1.8, 0.2)).probability > 0.9
    assert evidence(UNKNOWN, [2.3], spread=0.4).probability < LIKELY_FROM
    assert evidence(UNKNOWN, [2.3, 2.2, 2.4, 2.1]).probability > 0.95
    assert evidence(told(1.3), [1.0, 0.99, 1.01, 1.0] * 4).probability < NOTHING_BELOW, "none is in sight"
    noisy = evidence(UNKNOWN, [4.0, 0.6, 2.3, 0.9])
    assert NOTHING_BELOW < noisy.probability < LIKELY_FROM


def test_training_cannot_gain_more_than_its_wait() -> None:
    free = evidence(told(3.0), [1.15] * 3)
    limited = evidence(told(3.0), [1.15] * 3, most_gain=1.2)
    assert limited.interval.high < free.interval.high
    assert evidence(told(3.0, 0.3), most_gain=1.0).probability < 0.4


def test_only_what_exceeds_the_most_beyond_its_error_surely_reaches_it() -> None:
    gains = known(expecting({A.key: 9.0, B.key: 5.5, C.key: 3.0}))
    assert not gains.reaches_most(A), "no limit is known"
    gains.most_gain = lambda prediction: 5.0
    assert [gains.reaches_most(one) for one in (A, B, C)] == [True, False, False]
    assert not gains.reaches_most(replace(A, needs=frozenset({Consent.FILE_CACHE}))), "what a file takes is unknown"


@pytest.mark.parametrize(
    ("shares", "first"),
    [({"a": 0.30, "b": 0.16}, "bac"), ({"a": 0.18, "b": 0.16}, "abc"), ({}, "abc")],
    ids=["leaves the model more", "holds less memory", "unknown"],
)
def test_of_what_reaches_the_most_the_lighter_is_first(shares: dict[str, float], first: str) -> None:
    gains = known(expecting({A.key: 9.0, B.key: 20.0, C.key: 3.0}))
    small, large = replace(A, predicted_bytes=1e3), replace(B, predicted_bytes=1e8)
    gains.most_gain = lambda prediction: 5.0
    by_rate = {gains.prediction(gains.composer.plan([one])).examples_per_second: one.rule for one in (A, B)}
    gains.cpu_share = lambda prediction: shares.get(by_rate[prediction.examples_per_second])
    assert "".join(one.rule for one in gains.ranked([C, large, small])) == first


@pytest.mark.parametrize(("epochs", "first"), [(None, "ab"), (4, "ba"), (50, "ab")])
@pytest.mark.parametrize(("gain", "most"), [({"a": 5.0, "b": 3.0}, None), ({"a": 40.0, "b": 20.0}, 5.0)])
def test_the_epoch_that_fills_a_cache_gains_nothing(gain, most, epochs, first) -> None:
    """Of four epochs 5x in three are 2.5x, also where either one would leave training nothing to wait for."""
    gains = known(expecting({f"{name}@n1": value for name, value in gain.items()}))
    gains.most_gain = lambda prediction: most
    gains.cpu_share = lambda prediction: 0.1 if prediction.examples_per_second == 1600 * gain["a"] else 0.2
    assert "".join(one.rule for one in gains.ranked([B, replace(A, epochs_read=epochs)])) == first


@pytest.mark.parametrize(
    ("wait", "likely", "at_most"),
    [((0.0, 0.0, 0.11), False, 1.13), ((0.1, 0.02, 0.18), True, 1.2), ((0.6, 0.55, 0.65), True, 2.4)],
)
def test_gain_is_as_unlikely_as_a_wait_is(wait: tuple[float, float, float], likely: bool, at_most: float) -> None:
    gains = known(expecting({A.key: 1.8}))
    gains.most_gain, gains.limit = (
        lambda prediction: 1 / (1 - wait[2]),
        known_of.limit_of(Interval(*wait, pairs=6, method="")),
    )
    plan = gains.composer.plan([A])
    found = gains.attainable(plan)
    assert (found.probability >= LIKELY_FROM) is likely
    assert found.interval.high < at_most and found.interval.low <= found.interval.median <= found.interval.high
    gains.pairs[plan.key, gains.base.key] = (1.2,) * 8
    assert gains.attainable(plan).probability > 0.95, "pairs of training steps say more"


def test_pairs_alone_are_a_t_distribution() -> None:
    found = known_of.evidence_of_pairs([1.1, 1.2, 1.3, 1.15, 1.25, 1.2])
    assert isinstance(found, known_of.Evidence) and found.freedom == 5 and found.pairs == 6
    assert found.probability > 0.99 and found.interval.low < 1.2 < found.interval.high
    assert known_of.evidence_of_pairs([0.9, 0.95, 0.92]).probability < NOTHING_BELOW


def test_the_plan_that_most_probably_gains_is_kept_where_nothing_is_proven() -> None:
    """Three pairs are too few for the looks of a race beside neighbours, and enough to say what is likely."""
    gains = {"b@n1": 1.6}
    made = runner(gains, noise=rough(1), first_seconds=4.0)
    found = Scene("abc", made, expected=gains, budget_seconds=60).run()
    assert found.chosen is None and found.candidate is not None
    assert found.candidate.plan.key == "b@n1" and found.candidate.probability > LIKELY_FROM
    assert found.candidate.comparison is not None and found.candidate.comparison.proven
    assert found.candidate.gain.low < 1.6 < found.candidate.gain.high


def test_a_plan_that_changes_the_data_is_never_kept() -> None:
    gains = {"b@n1": 1.6}
    made = runner(gains, noise=rough(1), first_seconds=2.0)
    made.unequal_keys = frozenset({"b@n1"})
    found = Scene("abc", made, expected=gains, budget_seconds=60).run()
    assert found.candidate is None or found.candidate.plan.key != "b@n1"


@pytest.mark.exhaustive
@pytest.mark.parametrize("predicts", [True, False])
def test_what_is_called_likely_gains_in_four_of_five_of_many_sessions(predicts: bool) -> None:
    ended = [
        simulate_session(SCENES[seed % len(SCENES)], SessionDesign(gain, predicts=predicts), seed=seed)
        for seed in range(2000 if predicts else 4000)  # fewer are likely without the model
        for gain in (1.0, (1.1, 1.2, 1.5, 2.0)[seed % 4])  # half of them have something to find
    ]
    likely = sum(one.likely for one in ended)
    assert likely >= 3 and sum(one.likely_right for one in ended) >= 0.8 * likely


# -- model and windows of the rewrites of one session

LETTERS = rewrites("abcdef")
A, B, C = LETTERS[:3]
BASE = BASELINES["defaults"]


def known(expected: Expected, *, shown: Mapping[str, float] | None = None, cpu: float = 1.0) -> Gains:
    """`shown`: what the window of each showed, by name, at the spread of a quiet machine."""
    made = Gains(expected, BASE, Composer(LETTERS), shares_processors=cpu != 1.0)
    for name, rate in (shown or {}).items():
        one = next(one for one in LETTERS if one.rule == name)
        made.short_windows[one.key].append(ShortWindow(one, BASE, rate, cpu))
    return made


def test_between_model_and_window_the_surer_one_counts_for_more() -> None:
    idle = known(expecting({}), shown={"a": 1.3}).added(A)
    assert 0.2 * math.log(1.3) < idle.expected < 0.6 * math.log(1.3)  # it knows best where nothing changes
    unknown = known(expecting({}, why="map runs Python"), shown={"a": 1.3}).added(A)
    assert unknown.expected == pytest.approx(math.log(1.3), rel=0.05)
    assert unknown.deviation == pytest.approx(QUIET_SPREAD, rel=0.05)
    large = known(expecting({"a@n1": 10.0}), shown={"a": 3.0}).added(A)
    assert large.expected == pytest.approx(math.log(3.0), rel=0.05)  # it errs by much where it predicts much


def test_a_window_corrects_the_prediction_beside_others_by_what_the_model_was_wrong_alone() -> None:
    def expected(plan: Plan) -> Prediction:
        """`b` gains much alone and little beside `a`."""
        rates = {"b": 2.0, "a": 3.0, "a+b": 3.1}
        return Prediction(1600 * rates.get("+".join(part.rule for part in plan.rewrites), 1.0))

    right = known(expected, shown={"b": 2.0})
    over = Composer(LETTERS).plan([A])
    assert right.added(B, over).expected == pytest.approx(math.log(3.1 / 3.0), abs=1e-9)
    better = known(expected, shown={"b": 2.6})
    assert better.added(B, over).expected > right.added(B, over).expected


def test_joined_is_only_what_adds_3_percent_given_the_others() -> None:
    def expected(plan: Plan) -> Prediction:
        """`a` and `b` stand for each other, `c` and `d` pay together only, `e` pays a little, `f` nothing."""
        rules = {part.rule for part in plan.rewrites}
        rate = (2.0 if rules & {"a", "b"} else 1.0) * (1.5 if {"c", "d"} <= rules else 1.0)
        return Prediction(1600 * rate * (1.05 if "e" in rules else 1.0) * (1.01 if "f" in rules else 1.0))

    assert names(known(expected).joined(LETTERS, A)) == ["a", "c", "d", "e"]


def test_small_errors_that_add_up_are_not_believed_as_one_large_gain() -> None:
    """Of useless rewrites, too, the model expects a little of some."""
    composer = Composer(LETTERS)
    four = known(expecting({one.key: 1.09 for one in LETTERS[:4]})).attainable(composer.plan(LETTERS[:4]))
    alone = known(expecting({A.key: 1.09**4})).attainable(composer.plan([A]))
    assert four.expected == pytest.approx(alone.expected)
    assert four.probability < 0.5 and alone.probability > LIKELY_FROM


def test_joined_is_nothing_that_only_an_input_without_a_model_gains_from() -> None:
    gains = known(expecting({"a@n1": 10.0, "b@n1": 1.5, "c@n1": 1.5}), shown={"b": 1.4})
    assert names(gains.joined(LETTERS, A)) == ["a", "b", "c"]
    gains.most_gain = lambda prediction: 2.0
    assert names(gains.joined(LETTERS, A)) == ["a"]
    gains.most_gain = lambda prediction: 12.0
    assert len(gains.joined(LETTERS, A).rewrites) == 2  # the next one reaches what training can gain
    gains.most_gain = lambda prediction: None
    assert names(gains.joined(LETTERS, A)) == ["a", "b", "c"]


@pytest.mark.parametrize(("shown", "joins"), [({}, True), ({"b": 1.08}, True), ({"b": 1.01}, False)])
def test_what_windows_do_not_show_is_not_joined_by_the_model_alone(shown: dict[str, float], joins: bool) -> None:
    gains = known(expecting({"a@n1": 2.0, "b@n1": 1.12}), shown=shown)
    assert gains.added(B).expected > known_of.WORTH
    assert names(gains.joined(LETTERS, A)) == (["a", "b"] if joins else ["a"])


@pytest.mark.parametrize(("safest", "joins"), [(A, False), (replace(A, safety=Safety.STATISTICAL), True)])
def test_what_makes_the_safety_class_worse_is_not_joined(safest: Rewrite, joins: bool) -> None:
    gains = known(expecting({"a@n1": 2.0, "b@n1": 1.5}))
    plan = gains.joined([replace(B, safety=Safety.STATISTICAL)], safest)
    assert names(plan) == (["a", "b"] if joins else ["a"]) and plan.safety is safest.safety


def test_where_the_model_cannot_tell_only_what_windows_surely_show_is_joined() -> None:
    shown = {"a": 1.6, "b": 1.3, "c": 1.06, "d": 0.9}
    assert names(known(expecting({}, why="Python"), shown=shown).joined(LETTERS, A)) == ["a", "b"]


def test_fewer_cpu_seconds_are_a_gain_where_the_model_shares_them() -> None:
    def cheaper(plan: Plan) -> Prediction:
        return Prediction(1600.0, 0.5 if plan.rewrites else 1.0)

    assert known(cheaper, shown={"a": 1.0}).added(A).expected == pytest.approx(0.0, abs=0.01)
    assert known(cheaper, shown={"a": 1.0}, cpu=2.0).added(A).expected == pytest.approx(math.log(2.0), abs=0.01)


def test_a_window_far_from_what_is_expected_is_a_surprise() -> None:
    made = known(expecting({"a@n1": 1.8}))
    for rewrite, rate, surprises in ((A, 1.6, False), (B, 1.1, False), (B, 2.0, True), (A, 0.8, True)):
        assert made.surprised_by(ShortWindow(rewrite, BASE, rate, 1.0)) is surprises


def test_every_window_of_a_rewrite_counts_and_narrows_what_is_expected() -> None:
    made = known(expecting({"a@n1": 1.0}))
    deviations, means = [made.added(A).parts[0][2]], []
    for rate in (0.92, 1.12):
        made.short_windows[A.key].append(ShortWindow(A, BASE, rate, 1.0))
        deviations.append(made.added(A).parts[0][2])
        means.append(made.added(A).expected)
    assert means[0] < 0 < means[1] < math.log(1.12)
    assert deviations[0] > deviations[1] > deviations[2]


def test_the_spread_of_windows_is_learned_and_few_say_little() -> None:
    for rates in ([], [100.0]):
        assert spread_of(rates) == pytest.approx(math.sqrt(1.5) * QUIET_SPREAD)
    draw = random.Random(0)
    noisy = [100 * math.exp(draw.gauss(0, 0.3)) for _ in range(40)]
    assert spread_of(noisy) == pytest.approx(math.sqrt(1.5) * 0.3, rel=0.25)
    assert spread_of(noisy[:3]) < spread_of(noisy)


def test_where_nothing_is_proven_the_reason_says_what_has_ended_the_measurement() -> None:
    gains = {"b@n1": 1.6}
    windows = iter(range(3))
    made = runner(gains, failing=lambda plan: "The loop ended." if next(windows, None) is None else "")
    found = Scene("ab", made, expected=gains).run()
    assert found.candidate is not None and found.candidate.plan.key == "b@n1"
    assert found.candidate.why == "It could not be measured: The loop ended. This is what the cost model expects."
