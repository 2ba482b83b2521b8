"""The model's predictions in the search: what is skipped, what never is, and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.recorded import rewrite
from pipetune.core.edits import Consent, Plan
from pipetune.core.results import Outcome, Prediction
from pipetune.search.composing import Composer
from pipetune.search.evidence import Expected, Gains
from pipetune.search.result import SearchResult
from tests.search.scenes import BASELINES, Scene, apart, expecting, names, of_key, product, runner, whys


def cheaper(plan: Plan) -> Prediction:
    return Prediction(1600 * (0.6 if plan.rewrites else 1.0), 0.5 if plan.rewrites else 1.0)


@pytest.mark.parametrize(("expected", "shares", "believed"), [
    (expecting({"a@n1": 0.7}), False, True),
    (expecting({"a@n1": 0.8}), False, False),
    (expecting({"a@n1": 1.4}), False, False),
    (expecting({"a@n1": 0.1}, why="map runs Python code"), False, False),
    (expecting({"a@n1": 0.6}), True, True),  # as many CPU seconds
    (cheaper, False, True),
    (cheaper, True, False),  # fewer CPU seconds are a gain where the model shares them
])  # fmt: skip
def test_only_a_clear_loss_is_believed(expected: Expected, shares: bool, believed: bool) -> None:
    """Whether the rewrite `a` loses, by this model."""
    known = Gains(expected, BASELINES["defaults"], Composer(()), shares_processors=shares)
    assert known.loses(Plan("tuned", (rewrite("a"),)), known.base) is believed


def test_what_is_predicted_to_lose_is_listed_and_not_run() -> None:
    gains = {"a@n1": 1.4, "b@n1": 0.5, "c@n1": 1.0}
    found, scene = Scene("abc", runner(gains), expected=gains).ran()
    assert names(found.chosen) == ["a"]
    (skipped,) = [trial for trial in found.trials if trial.outcome is Outcome.SKIPPED]
    assert skipped.plan.key == "b@n1" and "predicted to lose 50 %" in skipped.why
    assert all("b@n1" not in key for _, key in scene.runner.windows)
    assert "predicted to lose" in whys(found)["b"]


def test_two_that_pay_together_are_not_skipped_alone() -> None:
    def gain(plan: Plan, alone: float = 1.0) -> float:
        rules = {part.rule for part in plan.rewrites} & {"a", "b"}
        return 1.6 if len(rules) == 2 else alone if rules else 1.0

    scene = Scene("ab", runner(), expected=lambda plan: Prediction(1600 * gain(plan, 0.5), 1.0))
    scene.runner.gain = gain
    assert names(scene.run().chosen) == ["a", "b"]


def test_the_most_promising_come_first() -> None:
    gains = {"c@n1": 1.5}
    scene = Scene("abc", runner(gains), expected={"c@n1": 1.3, "b@n1": 1.2})
    scene.run()
    alone = [key for _, key in scene.runner.windows if key in ("a@n1", "b@n1", "c@n1")]
    assert list(dict.fromkeys(alone)) == ["c@n1", "b@n1"], "nothing is expected of a"


def test_what_leads_beyond_the_models_error_is_raced_at_once() -> None:
    found = Scene("abc", runner({"c@n1": 1.9}), expected={"c@n1": 2.0, "b@n1": 1.2}).run()
    assert names(found.chosen) == ["c"]
    assert found.trials[0].kind == "search"


def test_what_the_model_cannot_tell_is_tried_in_the_order_of_its_guesses() -> None:
    guesses = {"c@n1": 2.0, "b@n1": 1.2}

    def expected(plan: Plan) -> Prediction:
        if [part.rule for part in plan.rewrites] == ["d"]:
            return Prediction(1600 * 1.01, 1.0)
        return Prediction(why="map runs Python code", fallback_rate=1600 * product(guesses)(plan))

    found, scene = Scene("abcd", runner({"c@n1": 1.5}), expected=expected).ran()
    alone = [key for _, key in scene.runner.windows if key in ("a@n1", "b@n1", "c@n1", "d@n1")]
    assert list(dict.fromkeys(alone)) == ["c@n1", "b@n1", "d@n1", "a@n1"]
    assert all(one.predicted is None for one in found.predictions if one.name != "d"), "a guess is told to nobody"


def test_every_plan_stands_beside_its_prediction() -> None:
    gains = {"a@n1": 1.4}
    found = Scene("ab", runner(gains), expected=gains).run()
    assert {one.plan for one in found.predictions} >= {"off", "defaults", "autotune", "a@n1"}
    errors = {one.plan: one.error for one in found.predictions if one.measured is not None}
    assert set(errors) == {"defaults", "a@n1"}, "baselines are measured beside the proven plan, by its verification"
    assert all(error == pytest.approx(0.0, abs=0.05) for error in errors.values())
    for trial in of_key(found.trials, "a@n1"):
        assert trial.predicted == pytest.approx(1600 * 1.4)
        assert trial.measured == pytest.approx(1600 * 1.4, rel=0.05)


# -- rewrites of one group: the best by the forecast is run first, the others where its word is not enough

GAINS = {"deep@n1": 3.0, "small@n1": 1.6, "other@n1": 1.3}
CANDIDATES = [rewrite("small", group="cache"), rewrite("deep", group="cache"), rewrite("other")]


def _search(expected: Mapping[str, float], *, limit: float | None = None, **changes: Any) -> tuple[SearchResult, Scene]:
    scene = Scene(CANDIDATES, runner(GAINS, **changes), expected=expected, memory_limit_bytes=limit)
    return scene.run(), scene


def _ran(scene: Scene, name: str) -> bool:
    return any(name in key for _, key in scene.runner.windows)


def test_what_another_of_its_group_beats_is_listed_and_not_run() -> None:
    found, scene = _search(GAINS)
    assert names(found.chosen) == ["deep", "other"]
    assert not _ran(scene, "small")
    (skipped,) = [trial for trial in found.trials if trial.outcome is Outcome.SKIPPED]
    assert skipped.plan.key == "small@n1" and "47 % slower than another of its kind" in skipped.why
    assert "another of its kind" in whys(found)["small"]


@pytest.mark.parametrize(("changes", "ran"), [
    ({"fails": {"deep@n1": "Filling the cache took longer than 60 s."}}, True),
    ({"predicted_bytes_by_key": {"deep@n1": 9e9}, "limit": 1e9}, False),
], ids=["fails", "does not fit"])  # fmt: skip
def test_where_the_better_one_cannot_run_the_other_is_tried(changes: dict[str, Any], ran: bool) -> None:
    found, scene = _search(GAINS, **changes)
    assert names(found.chosen) == ["small", "other"] and _ran(scene, "deep") is ran


def test_a_difference_within_the_models_error_is_measured() -> None:
    for expected in ({"deep@n1": 3.0, "small@n1": 2.8}, {}):
        _, scene = _search(expected)
        assert _ran(scene, "small") and _ran(scene, "deep")


def test_what_leaves_room_for_others_is_measured_though_it_is_slower_alone() -> None:
    gains = {"deep@n1": 2.0, "small@n1": 1.6, "other@n1": 1.5}

    scene = Scene(CANDIDATES, runner(gains), expected=gains, conflict=apart("deep", "other"))
    scene.run()
    assert _ran(scene, "small") and _ran(scene, "deep")


def test_what_needs_a_consent_of_its_own_beats_none() -> None:
    """The model does not know what reading a file takes."""
    in_a_file = replace(rewrite("deep", group="cache"), needs=frozenset({Consent.FILE_CACHE}))
    candidates = [rewrite("small", group="cache"), in_a_file]
    made = runner({"small@n1": 1.6, "deep@n1": 1.2})
    allowed = frozenset({Consent.FILE_CACHE})
    scene = Scene(candidates, made, expected={"small@n1": 1.6, "deep@n1": 4.0}, allow=allowed)
    assert names(scene.run().chosen) == ["small"] and _ran(scene, "deep")
