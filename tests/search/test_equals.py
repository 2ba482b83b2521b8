"""Rewrites that are offered where they are measured not slower, and enter the plan by acceptance only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Rewrite, SetArgument
from pipetune.core.results import Outcome
from pipetune.search.information import FEWEST_EQUAL_PAIRS
from pipetune.search.statistics import NOT_SLOWER
from pipetune.testing.runner import rewrite
from tests.search.scenes import Scene, names, runner

FREEZE = replace(rewrite("freeze", number=3, group="freeze@n1"), equal_is_enough=True)


def freezing(**gains: float) -> Scene:
    candidates: list[Rewrite] = [rewrite("other", node="n2"), FREEZE]
    return Scene(candidates, runner({FREEZE.key: gains.get("freeze", 1.0), "other@n2": gains.get("other", 1.0)}))


def test_as_fast_is_offered_and_never_in_the_plan() -> None:
    found = freezing().run()
    assert found.chosen is None
    (offer,) = found.offers
    assert offer.rewrite == FREEZE and offer.consent == "" and "not slower" in offer.why
    assert offer.gain is not None and offer.gain.low > NOT_SLOWER and offer.gain.pairs >= FEWEST_EQUAL_PAIRS
    assert "freeze" not in {rejection.rule for rejection in found.rejections}
    trial = next(one for one in found.trials if one.plan.rewrites == (FREEZE,) and one.gain is offer.gain)
    assert trial.outcome is Outcome.REJECTED


def test_slower_is_not_offered() -> None:
    found = freezing(freeze=0.93).run()
    assert found.offers == ()
    (why,) = [rejection.why for rejection in found.rejections if rejection.rule == "freeze"]
    assert "not shown to lose less than 3%" in why


def test_faster_by_the_acceptance_rule_is_in_the_plan() -> None:
    found = freezing(freeze=1.3).run()
    assert names(found.chosen) == ["freeze"]
    assert found.offers == ()


def test_beside_a_plan_it_is_measured_on_top_of_it() -> None:
    scene = freezing(other=1.4)
    scene.budget_seconds = 600.0
    found = scene.run()
    assert names(found.chosen) == ["other"]
    (offer,) = found.offers
    assert offer.rewrite == FREEZE
    trial = next(one for one in found.trials if one.gain is offer.gain)
    assert names(trial.plan) == ["other", "freeze"]
    assert offer.gain is not None and offer.gain.median == pytest.approx(1.0, abs=0.03)


def test_a_plan_that_says_the_number_leaves_nothing_to_offer() -> None:
    number = replace(rewrite("number", number=5), edits=(SetArgument("n1", "num_parallel_calls", 5),))
    found = Scene([number, FREEZE], runner({number.key: 1.4, FREEZE.key: 1.0}), conflict=_apart).run()
    assert names(found.chosen) == ["number"]
    assert found.offers == ()


def _apart(rewrites: object) -> str:
    return "both" if isinstance(rewrites, tuple) and len(rewrites) > 1 else ""


def test_without_time_it_is_not_offered() -> None:
    scene = freezing()
    scene.budget_seconds = 20.0
    scene.runner.first_seconds = 1.5
    assert scene.run().offers == ()


def test_what_changes_the_data_is_not_offered() -> None:
    scene = freezing()
    scene.runner.unequal_keys = frozenset({FREEZE.key})
    found = scene.run()
    assert found.offers == ()
    (why,) = [rejection.why for rejection in found.rejections if rejection.rule == "freeze"]
    assert "not the same data" in why
