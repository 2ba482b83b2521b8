"""The model's word in the search: what is skipped, what never is, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipetune.core.edits import Plan, Safety
from pipetune.core.results import Outcome, Prediction, Rate
from pipetune.search import offers
from pipetune.search.forecast import LEAST_MARGIN, Forecast
from pipetune.testing.runner import rewrite
from tests.search.scenes import BASELINES, Scene, expecting, names, of_key, product, rewrites, runner


def forecast(gains: Mapping[str, float], measured: Mapping[str, float] | None = None, **more: object) -> Forecast:
    found = Forecast(expecting(gains, **more), BASELINES, base="defaults")  # type: ignore[arg-type]
    rates = {"off": 1.0, "defaults": 1.0, "autotune": 1.0} | dict(measured or {})
    found.learn({name: Rate(examples_per_second=1600 * rate) for name, rate in rates.items()})
    return found


def loses(found: Forecast, name: str = "a", *, shares: bool = False) -> bool:
    return found.loses(Plan("tuned", (rewrite(name),)), BASELINES["defaults"], shares_processors=shares)


def test_a_clear_loss_is_believed_a_small_one_not() -> None:
    assert loses(forecast({"a@n1": 0.7}))
    assert not loses(forecast({"a@n1": 1 - LEAST_MARGIN / 2}))
    assert not loses(forecast({"a@n1": 1.4}))


def test_a_model_that_was_wrong_on_the_baselines_is_believed_less() -> None:
    wrong = forecast({"a@n1": 0.7, "off": 1.0}, {"off": 1.25})
    assert wrong.margin == pytest.approx(1 - 1 / 1.25**2)
    assert not loses(wrong)


@pytest.mark.parametrize("missing", [{"off": 0.0, "autotune": 0.0}])
def test_without_a_baseline_to_compare_nothing_is_believed(missing: Mapping[str, float]) -> None:
    assert not loses(forecast({"a@n1": 0.1}, missing))
    never = Forecast(expecting({"a@n1": 0.1}), BASELINES, base="defaults")
    assert not loses(never)


def test_what_is_not_predicted_never_loses() -> None:
    assert not loses(forecast({"a@n1": 0.1}, why="map runs Python code"))
    assert not loses(Forecast(None, BASELINES, base="defaults"))


def test_fewer_cpu_seconds_are_a_gain_where_the_model_shares_them() -> None:
    found = forecast({"a@n1": 0.6})
    assert loses(found, shares=True)  # as many CPU seconds

    def cheaper(plan: Plan) -> Prediction:
        return Prediction(1600 * (0.6 if plan.rewrites else 1.0), 0.5 if plan.rewrites else 1.0)

    found = Forecast(cheaper, BASELINES, base="defaults")
    found.learn({name: Rate(examples_per_second=1600) for name in BASELINES})
    assert loses(found) and not loses(found, shares=True)


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


def test_a_wrong_model_does_not_hide_a_gain_it_was_wrong_about_before() -> None:
    """It takes AUTOTUNE for a loss, which was measured to be none: what it says of others is not believed."""
    gains = {"a@n1": 1.4, "autotune": 1.4}
    scene = Scene(rewrites("ab"), runner(gains), expected=expecting({"a@n1": 0.6, "autotune": 0.6}))
    assert names(scene.run().chosen) == ["a"]


def test_the_most_promising_come_first() -> None:
    gains = {"c@n1": 1.5}
    scene = Scene(rewrites("abc"), runner(gains), expected=expecting({"c@n1": 2.0, "b@n1": 1.2}))
    scene.run()
    alone = [key for _, key in scene.runner.windows if key in ("a@n1", "b@n1", "c@n1")]
    assert list(dict.fromkeys(alone)) == ["c@n1", "b@n1", "a@n1"]


def test_what_the_model_cannot_tell_is_tried_in_the_order_of_its_guesses_behind_what_it_can() -> None:
    guesses = {"c@n1": 2.0, "b@n1": 1.2}

    def expected(plan: Plan) -> Prediction:
        if [part.rule for part in plan.rewrites] == ["d"]:
            return Prediction(1600 * 1.01, 1.0)
        return Prediction(why="map runs Python code", fallback_rate=1600 * product(guesses)(plan))

    scene = Scene(rewrites("abcd"), runner({"c@n1": 1.5}), expected=expected)
    found = scene.run()
    alone = [key for _, key in scene.runner.windows if key in ("a@n1", "b@n1", "c@n1", "d@n1")]
    assert list(dict.fromkeys(alone)) == ["d@n1", "c@n1", "b@n1", "a@n1"]
    assert all(one.predicted is None for one in found.predictions if one.name != "d"), "a guess is told to nobody"


def test_every_plan_stands_beside_its_prediction() -> None:
    gains = {"a@n1": 1.4}
    found = Scene(rewrites("ab"), runner(gains), expected=expecting(gains)).run()
    assert {one.plan for one in found.predictions} >= {"off", "defaults", "autotune", "a@n1", "b@n1"}
    for one in found.predictions:
        assert one.error == pytest.approx(0.0, abs=0.05)
    for trial in of_key(found.trials, "a@n1"):
        assert trial.predicted == pytest.approx(1600 * 1.4)
        assert trial.measured == pytest.approx(1600 * 1.4, rel=0.05)


def test_the_time_to_most_of_the_rate_is_told() -> None:
    scene = Scene(rewrites("abcd"), runner({"d@n1": 1.5}), expected=expecting({"d@n1": 1.5}))
    found = scene.run()
    assert found.seconds_to_most is not None
    position = next(index for index, (key, _) in enumerate(scene.tried_at) if "d@n1" in key)
    assert scene.tried_at[position][1] < found.seconds_to_most <= scene.tried_at[position + 1][1]
    assert Scene(rewrites("a"), runner()).run().seconds_to_most is None


def test_offers_without_time_to_measure_them_tell_what_the_model_expects() -> None:
    candidates = [rewrite("a"), *(rewrite(name, safety=Safety.REORDERS) for name in ("small", "none", "large"))]
    gains = {"a@n1": 1.4, "small@n1": 1.02, "large@n1": 2.5}
    hurried = Scene(candidates, runner(gains), expected=expecting(gains), budget_seconds=40.0).run()
    said = {offer.rewrite.rule: offer.why for offer in hurried.offers if offer.gain is None}
    wanted = {"large": "2.50x as fast", "small": "no other rate", "none": "no other rate"}
    assert said and all(wanted[rule] in why for rule, why in said.items())
    unknown = Scene(candidates, runner(gains), budget_seconds=40.0).run()
    assert all("cost model" not in offer.why for offer in unknown.offers)


def test_the_offer_that_promises_most_is_measured_first() -> None:
    candidates = [rewrite("a"), *(rewrite(name, safety=Safety.REORDERS) for name in ("small", "large"))]
    gains = {"a@n1": 1.4, "large@n1": 2.5}
    found = Scene(candidates, runner(gains), expected=expecting(gains), budget_seconds=300.0).run()
    assert [offer.rewrite.rule for offer in found.offers] == ["large", "small"]
    assert all(offer.gain is not None for offer in found.offers)


@pytest.mark.parametrize(("ratio", "told"), [(1.237, "1.24x"), (11.83, "11.8x"), (41.03, "41x"), (1279.83, "1,280x")])
def test_what_the_model_expects_is_told_in_three_figures(ratio: float, told: str) -> None:
    assert f"run {told} as fast" in offers._unmeasured(ratio)
