"""How the accuracy of predictions is computed, from invented rates, and which plans are measured."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy import prediction
from benchmarks.recorded import rewrite
from pipetune.core.edits import Plan
from pipetune.model.throughput import predict
from pipetune.search.composing import Composer
from tests.words import parse

# By the model: as it is 2 ms, with a cache 1 ms.
TEXT = "range cpu=0us | map random cpu=1ms {}| map random cpu=1ms"
PLANS = {"written": "", "cached": "| cache cpu=0us ", "off": ""}


def case(rates: Mapping[str, float], *, text: str = TEXT) -> prediction.Case:
    words = {name: parse(text.format(PLANS.get(name, ""))) for name in rates}
    measured = {name: (0.9 * rate, rate, 1.5 * rate) for name, rate in rates.items()}
    plans = (prediction.MeasuredPlan(name, words[name].pipeline, found) for name, found in measured.items())
    return prediction.Case(text, words["written"].profile, 2.0, tuple(plans))


def test_errors_are_of_the_median_rate() -> None:
    result = prediction.summarize([case({"written": 400.0, "off": 1000.0})])
    truth = [abs(500 / rate - 1) for rate in (400, 1000)]
    assert result.plans == 2
    assert result.mean_abs_error == pytest.approx(sum(truth) / 2, rel=0.01)
    assert result.rows[0].low == 360 and result.rows[0].high == 600
    words = parse(TEXT.format(""))
    assert result.rows[0].predicted == pytest.approx(predict(words.pipeline, words.profile, 2).rate)


def test_plans_without_prediction_are_counted_separately() -> None:
    python = case({"written": 400.0, "off": 500.0}, text="range cpu=0us | map python {}| batch 2")
    result = prediction.summarize([python, case({"written": 500.0})])
    assert (result.plans, result.not_predicted) == (1, 2)
    assert "runs Python code" in result.rows[0].why and result.rows[0].predicted is None
    assert result.best_in_first_three == 1.0  # of those where there is an order
    nothing = prediction.summarize([python])
    assert nothing.mean_abs_error is None and nothing.best_in_first_three is None


def row(plan: str, predicted: float | None, measured: float) -> prediction.PlanRow:
    return prediction.PlanRow("p", plan, predicted, measured, measured, measured)


def test_best_plan_must_be_among_the_first_three() -> None:
    rows = [row("a", 9, 1.0), row("b", 8, 1.0), row("c", 7, 1.0), row("d", 6, 1.2)]
    assert prediction.best_in_first(rows) is False
    assert prediction.best_in_first(rows[1:]) is True
    assert prediction.best_in_first([*rows[:3], row("d", 6, 1.02)]) is True  # nothing anybody could tell apart
    assert prediction.best_in_first([*rows[:3], row("e", None, 5.0)]) is False  # missed for want of a prediction


def test_claims_are_met_or_missed() -> None:
    result = prediction.summarize([case({"written": 250.0})])
    error, share = prediction.claims(result, quick=False)
    assert error.met is False and error.measured == "100.0%"
    assert share.met is True
    assert prediction.claims(result, quick=True)[0].met is None


def test_at_most_ten_plans_and_none_with_conflicts() -> None:
    candidates = [rewrite(f"r{number}") for number in range(12)]
    composer = Composer(candidates, conflict=lambda rewrites: "no" if len(rewrites) > 3 else "")
    baselines = {name: Plan(name) for name in ("off", "defaults", "autotune")}
    plans = prediction.candidate_plans(candidates, baselines, composer)
    assert [plan.key for plan in plans[:4]] == ["off", "defaults", "autotune", "r0@n1"]
    assert len(plans) == prediction.MAX_PLANS
    few = prediction.candidate_plans(candidates[:4], baselines, composer)
    assert [len(plan.rewrites) for plan in few] == [0, 0, 0, 1, 1, 1, 1, 3]
