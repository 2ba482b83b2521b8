"""What only informs: rewrites that need consent or need only be as fast, and the time for them."""

from __future__ import annotations

import pytest

from benchmarks.recorded import Noise, rewrite
from pipetune.core.edits import Rewrite, Safety
from pipetune.core.results import Comparison, EqualityCheck, Outcome
from pipetune.search.result import SearchResult, affordable_pairs, unmeasured
from pipetune.search.state import SearchState
from tests.search.scenes import Scene, expecting, names, of_key, reasons, runner, whys


def test_what_the_source_cannot_express_is_offered_with_these_words() -> None:
    candidates = [rewrite("freeze", safety=Safety.REORDERS)]
    found = Scene(candidates, runner({"freeze@n1": 4.0}), expressible=lambda one: False).run()
    assert "the source cannot express it" in found.offers[0].why
    assert Scene(candidates, runner({"freeze@n1": 4.0})).run().offers[0].why == ""


def test_what_needs_consent_is_offered_with_its_gain_and_not_in_the_plan() -> None:
    candidates = [rewrite("a"), rewrite("freeze", safety=Safety.REORDERS)]
    found = Scene(candidates, runner({"a@n1": 1.0, "freeze@n1": 4.0})).run()
    assert found.chosen is None
    (offer,) = found.offers
    assert offer.consent == "--allow reorder"
    assert offer.gain is not None and offer.gain.median == pytest.approx(4.0, rel=0.05)
    assert of_key(found.trials, "freeze@n1")[-1].outcome is Outcome.REFUSED
    # Beside a plan nothing is measured that would delay its patch.
    gains = {"a@n1": 1.3, "freeze@n1": 4.0}
    found = Scene(candidates, runner(gains), expected=gains, budget_seconds=600.0).run()
    assert names(found.chosen) == ["a"]
    (offer,) = found.offers
    assert offer.gain is None and offer.why.startswith("not measured, as") and "4.00x as fast" in offer.why


def test_a_race_for_a_few_percent_leaves_time_for_what_needs_consent_and_gains_far_more() -> None:
    gains = {"a@n1": 1.03, "cache@n1": 6.0}

    def searched(candidates: list[Rewrite], **small: float) -> SearchResult:
        noise = Noise(spread=0.2, seed=3)
        made, expected = runner({**gains, **small}, noise=noise), expecting({**gains, "a@n1": 1.2})
        return Scene(candidates, made, expected=expected, budget_seconds=60.0).run()

    alone, cache = [rewrite("a")], rewrite("cache", safety=Safety.REORDERS)
    (longest,) = (one for one in searched(alone).trials if one.kind == "search")
    found = searched([*alone, cache])
    raced, _ = (one for one in found.trials if one.kind == "search")
    assert len(raced.ratios) < len(longest.ratios) and raced.why.endswith("pairs, what needs approval was measured")
    (offer,) = found.offers
    assert offer.gain is not None and offer.gain.low > 2
    # What may gain more goes on.
    (raced, *_) = (one for one in searched([*alone, cache], **{"a@n1": 2.0}).trials if one.kind == "search")
    assert "approval" not in raced.why


@pytest.mark.parametrize("promised", [1.0, 1.3])
def test_where_only_what_needs_consent_promises_a_gain_nothing_else_takes_time(promised: float) -> None:
    candidates = [rewrite("a"), rewrite("cache", safety=Safety.REORDERS)]
    expected = expecting({"a@n1": promised, "cache@n1": 6.0})
    found = Scene(candidates, runner({"cache@n1": 6.0}), expected=expected).run()
    (offer,) = found.offers
    assert offer.gain is not None and offer.gain.median == pytest.approx(6.0, rel=0.05)
    tried = of_key(found.trials, "a@n1")
    assert bool(tried) is (promised > 1) and (tried or reasons(found)["a"] == "not-expected")


def test_an_offer_that_breaks_its_own_promise_is_not_offered() -> None:
    made = runner({"frozen@n1": 9.0}, unequal_keys=frozenset({"frozen@n1"}))
    found = Scene([rewrite("frozen", safety=Safety.REORDERS)], made).run()
    assert found.offers == () and "not the same data" in found.rejections[0].why


@pytest.mark.parametrize("limit", [None, 10.0])
def test_what_cannot_run_is_not_offered(limit: float | None) -> None:
    why = "" if limit else "no such file"
    made = runner({"cache@n1": 9.0}, failing=lambda plan: why if plan.rewrites else "")
    made.predicted_bytes_by_key = {"cache@n1": 50.0}
    found = Scene([rewrite("cache", safety=Safety.REORDERS)], made, memory_limit_bytes=limit).run()
    assert found.offers == () and (why or "would need") in whys(found)["cache"]


def test_offers_without_time_to_measure_them_tell_what_the_model_expects() -> None:
    candidates = [rewrite("a"), *(rewrite(name, safety=Safety.REORDERS) for name in ("small", "none", "large"))]
    gains = {"a@n1": 1.4, "small@n1": 1.02, "large@n1": 2.5}
    hurried = Scene(candidates, runner(gains), expected=gains, budget_seconds=40.0).run()
    assert {offer.rewrite.rule for offer in hurried.offers if offer.gain is None} == {"large"}, "the only gain expected"
    assert "2.50x as fast" in hurried.offers[0].why
    assert whys(hurried)["small"] == whys(hurried)["none"] == "needs --allow reorder; no gain is expected"
    unknown = Scene(candidates, runner(gains), budget_seconds=40.0).run()
    assert all("cost model" not in offer.why for offer in unknown.offers)


@pytest.mark.parametrize(("bound", "offered"), [(0.01, 0), (0.005, 1)])
def test_nothing_unmeasured_is_offered_where_training_hardly_waits_with_the_plan(bound: float, offered: int) -> None:
    candidates, gains = [rewrite("a"), rewrite("frozen", safety=Safety.REORDERS)], {"a@n1": 4.0, "frozen@n1": 2.5}
    made = runner(gains, step_seconds=0.01)
    found = Scene(candidates, made, expected=gains, budget_seconds=40.0, bound_seconds=bound).run()
    assert names(found.chosen) == ["a"] and len(found.offers) == offered


@pytest.mark.parametrize("group", ["cache", ""])
def test_what_would_store_no_more_work_than_the_plan_is_not_offered_unmeasured(group: str) -> None:
    candidates = [rewrite("a", group=group), rewrite("frozen", safety=Safety.REORDERS, group=group)]
    gains = {"a@n1": 4.0, "frozen@n1": 8.0}
    facts = {"stores_no_more_work": lambda one, plan: one.rule == "frozen" and names(plan) == ["a"]}
    found = Scene(candidates, runner(gains), expected=gains, budget_seconds=40.0, **facts).run()
    assert names(found.chosen) == ["a"] and found.offers == ()
    assert whys(found)["frozen"] == (
        "another of its kind is in the plan" if group else "needs --allow reorder; no gain is expected"
    )
    alone = Scene(candidates[1:], runner(gains), expected=gains, **facts).run()
    assert [one.rewrite.rule for one in alone.offers] == ["frozen"]


def test_offer_without_time_to_compare_its_data_is_measured_and_no_undecided_trial(monkeypatch) -> None:
    scene = Scene([rewrite("large", safety=Safety.REORDERS)], runner({"large@n1": 6.5}))
    late = EqualityCheck("values", None, "time ran out after 1 element", late=True)
    unknown = Comparison(Safety.REORDERS, (EqualityCheck("spec", True), late), elements=0, epochs=0)
    monkeypatch.setattr(scene.runner, "compare", lambda plan: unknown)
    found = scene.run()
    (offer,) = found.offers
    assert offer.gain is not None and offer.gain.median == pytest.approx(6.5, rel=0.05)
    assert offer.why == "no time was left to compare its data"
    assert [one for one in found.trials if one.outcome is Outcome.UNDECIDED] == []
    assert found.rejections == () and found.why == "No rewrite is legal here without consent."


def test_the_offer_that_promises_most_is_measured_first() -> None:
    candidates = [rewrite("a"), *(rewrite(name, safety=Safety.REORDERS) for name in ("small", "large"))]
    gains = {"large@n1": 2.5}
    found = Scene(candidates, runner(gains), expected=gains, budget_seconds=600.0).run()
    assert [offer.rewrite.rule for offer in found.offers] == ["large", "small"]
    assert all(offer.gain is not None for offer in found.offers)


@pytest.mark.parametrize(("ratio", "told"), [(1.237, "1.24x"), (11.83, "11.8x"), (41.03, "41x"), (1279.83, "1,280x")])
def test_what_the_model_expects_is_told_in_three_figures(ratio: float, told: str) -> None:
    assert f"run {told} as fast" in unmeasured(ratio)


# -- time


def state(*, budget_seconds: float, window_seconds: float, decided: bool = True) -> SearchState:
    """At the start of the budget, which is decided at once: there is nothing to verify."""
    made = Scene((), runner(), budget_seconds=budget_seconds).state()
    if decided:
        made.budget.decide()
    made.meter.expect("input", window_seconds)
    return made


def pairs(made: SearchState, *, waiting: int = 1) -> int:
    return affordable_pairs(made, waiting=waiting, fewest=4, most=1000)


def test_optional_rewrites_share_what_is_left_after_the_decision() -> None:
    """Where time is short, what is expected to gain most has it; too few pairs are none."""
    rich = state(budget_seconds=800.0, window_seconds=1.0)
    assert pairs(rich) == pytest.approx(800 / rich.seconds(2, rounds=1), abs=1)
    assert pairs(rich, waiting=4) == pytest.approx(200 / rich.seconds(2, rounds=1), abs=1)
    assert pairs(state(budget_seconds=800.0, window_seconds=1.0, decided=False)) == 0, "nothing before the decision"
    short = state(budget_seconds=20.0, window_seconds=1.0)
    assert pairs(short, waiting=8) == pairs(short, waiting=5) == 4
    assert pairs(state(budget_seconds=7.0, window_seconds=1.0)) == 0
