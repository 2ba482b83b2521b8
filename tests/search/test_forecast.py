"""The model's word in the search: what is skipped, what never is, and what is told of it."""

from __future__ import annotations

import math

import pytest

from pipetune.core.edits import Plan, Safety
from pipetune.core.results import Outcome, Prediction
from pipetune.search.composing import Composer
from pipetune.search.evidence import Expected, Forecast, Gains, error_of
from pipetune.search.information import unmeasured
from pipetune.testing.runner import rewrite
from tests.search.scenes import BASELINES, Scene, expecting, names, of_key, product, rewrites, runner


def loses(expected: Expected | None, *, shares: bool = False) -> bool:
    """Whether the rewrite `a` does, by this model."""
    known = Gains(Forecast(expected), BASELINES["defaults"], Composer(()), shares_processors=shares)
    return known.loses(Plan("tuned", (rewrite("a"),)), known.base)


def test_a_clear_loss_is_believed_a_small_one_not() -> None:
    assert loses(expecting({"a@n1": 0.7}))
    assert not loses(expecting({"a@n1": 0.8}))
    assert not loses(expecting({"a@n1": 1.4}))


def test_the_larger_the_predicted_loss_the_larger_the_error_that_is_allowed_for() -> None:
    assert error_of(math.log(0.5)) > error_of(math.log(0.9)) > error_of(0.0) > 0


def test_what_is_not_predicted_never_loses() -> None:
    assert not loses(expecting({"a@n1": 0.1}, why="map runs Python code"))
    assert not loses(None)


def test_fewer_cpu_seconds_are_a_gain_where_the_model_shares_them() -> None:
    assert loses(expecting({"a@n1": 0.6}), shares=True)  # as many CPU seconds

    def cheaper(plan: Plan) -> Prediction:
        return Prediction(1600 * (0.6 if plan.rewrites else 1.0), 0.5 if plan.rewrites else 1.0)

    assert loses(cheaper) and not loses(cheaper, shares=True)


def test_what_is_predicted_to_lose_is_listed_and_not_run() -> None:
    gains = {"a@n1": 1.4, "b@n1": 0.5, "c@n1": 1.0}
    scene = Scene(rewrites("abc"), runner(gains), expected=expecting(gains))
    found = scene.run()
    assert names(found.chosen) == ["a"]
    (skipped,) = [trial for trial in found.trials if trial.outcome is Outcome.SKIPPED]
    assert skipped.plan.key == "b@n1" and "predicted to lose 50%" in skipped.why
    assert all("b@n1" not in key for _, key in scene.runner.windows)
    assert "predicted to lose" in next(one.why for one in found.rejections if one.rule == "b")


def test_two_that_pay_together_are_not_skipped_alone() -> None:
    def gain(plan: Plan, alone: float = 1.0) -> float:
        rules = {part.rule for part in plan.rewrites} & {"a", "b"}
        return 1.6 if len(rules) == 2 else alone if rules else 1.0

    scene = Scene(rewrites("ab"), runner(), expected=lambda plan: Prediction(1600 * gain(plan, 0.5), 1.0))
    scene.runner.gain = gain
    assert names(scene.run().chosen) == ["a", "b"]


def test_the_most_promising_come_first() -> None:
    gains = {"c@n1": 1.5}
    scene = Scene(rewrites("abc"), runner(gains), expected=expecting({"c@n1": 1.3, "b@n1": 1.2}))
    scene.run()
    alone = [key for _, key in scene.runner.windows if key in ("a@n1", "b@n1", "c@n1")]
    assert list(dict.fromkeys(alone)) == ["c@n1", "b@n1"], "nothing is expected of a"


def test_what_leads_beyond_the_models_error_is_raced_at_once() -> None:
    scene = Scene(rewrites("abc"), runner({"c@n1": 1.9}), expected=expecting({"c@n1": 2.0, "b@n1": 1.2}))
    found = scene.run()
    assert names(found.chosen) == ["c"]
    kinds = [trial.kind for trial in found.trials]
    assert kinds[0] == "search"


def test_what_the_model_cannot_tell_is_tried_in_the_order_of_its_guesses() -> None:
    guesses = {"c@n1": 2.0, "b@n1": 1.2}

    def expected(plan: Plan) -> Prediction:
        if [part.rule for part in plan.rewrites] == ["d"]:
            return Prediction(1600 * 1.01, 1.0)
        return Prediction(why="map runs Python code", fallback_rate=1600 * product(guesses)(plan))

    scene = Scene(rewrites("abcd"), runner({"c@n1": 1.5}), expected=expected)
    found = scene.run()
    alone = [key for _, key in scene.runner.windows if key in ("a@n1", "b@n1", "c@n1", "d@n1")]
    assert list(dict.fromkeys(alone)) == ["c@n1", "b@n1", "d@n1", "a@n1"]
    assert all(one.predicted is None for one in found.predictions if one.name != "d"), "a guess is told to nobody"


def test_every_plan_stands_beside_its_prediction() -> None:
    gains = {"a@n1": 1.4}
    found = Scene(rewrites("ab"), runner(gains), expected=expecting(gains)).run()
    assert {one.plan for one in found.predictions} >= {"off", "defaults", "autotune", "a@n1"}
    errors = {one.plan: one.error for one in found.predictions if one.measured is not None}
    assert set(errors) == {"defaults", "a@n1"}, "baselines are measured beside the proven plan, by its verification"
    assert all(error == pytest.approx(0.0, abs=0.05) for error in errors.values())
    for trial in of_key(found.trials, "a@n1"):
        assert trial.predicted == pytest.approx(1600 * 1.4)
        assert trial.measured == pytest.approx(1600 * 1.4, rel=0.05)


def test_the_time_to_most_of_the_rate_is_told() -> None:
    scene = Scene(rewrites("abcd"), runner({"d@n1": 1.5}), expected=expecting({"d@n1": 1.5}))
    found = scene.run()
    assert found.seconds_to_most is not None
    begun = [seconds for key, seconds in scene.tried_at if "d@n1" in key]  # the first for a comparison
    assert begun[1] < found.seconds_to_most < begun[2]
    assert Scene(rewrites("a"), runner()).run().seconds_to_most is None


def test_offers_without_time_to_measure_them_tell_what_the_model_expects() -> None:
    candidates = [rewrite("a"), *(rewrite(name, safety=Safety.REORDERS) for name in ("small", "none", "large"))]
    gains = {"a@n1": 1.4, "small@n1": 1.02, "large@n1": 2.5}
    hurried = Scene(candidates, runner(gains), expected=expecting(gains), budget_seconds=40.0).run()
    assert {offer.rewrite.rule for offer in hurried.offers if offer.gain is None} == {"large"}, "the only gain expected"
    assert "2.50x as fast" in hurried.offers[0].why
    reasons = {one.rule: one.why for one in hurried.rejections}
    assert reasons["small"] == reasons["none"] == "needs --allow reorder; no gain is expected"
    unknown = Scene(candidates, runner(gains), budget_seconds=40.0).run()
    assert all("cost model" not in offer.why for offer in unknown.offers)


def test_the_offer_that_promises_most_is_measured_first() -> None:
    candidates = [rewrite("a"), *(rewrite(name, safety=Safety.REORDERS) for name in ("small", "large"))]
    gains = {"a@n1": 1.4, "large@n1": 2.5}
    found = Scene(candidates, runner(gains), expected=expecting(gains), budget_seconds=600.0).run()
    assert [offer.rewrite.rule for offer in found.offers] == ["large", "small"]
    assert all(offer.gain is not None for offer in found.offers)


@pytest.mark.parametrize(("ratio", "told"), [(1.237, "1.24x"), (11.83, "11.8x"), (41.03, "41x"), (1279.83, "1,280x")])
def test_what_the_model_expects_is_told_in_three_figures(ratio: float, told: str) -> None:
    assert f"run {told} as fast" in unmeasured(ratio)
