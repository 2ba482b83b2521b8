"""Rewrites of one group: the best by the forecast is run first, the others where its word is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipetune.core.edits import Consent, Rewrite
from pipetune.core.results import Outcome
from pipetune.search.result import SearchResult
from pipetune.testing.runner import rewrite
from tests.search.scenes import Scene, expecting, names, runner

GAINS = {"deep@n1": 3.0, "small@n1": 1.6, "other@n1": 1.3}


def _search(expected: Mapping[str, float], **changes: object) -> tuple[SearchResult, Scene]:
    candidates = [rewrite("small", group="cache"), rewrite("deep", group="cache"), rewrite("other")]
    limit = changes.pop("memory_limit_bytes", None)
    made = runner(GAINS, **changes)
    scene = Scene(candidates, made, expected=expecting(expected), memory_limit_bytes=limit)  # type: ignore[arg-type]
    return scene.run(), scene


def _ran(scene: Scene, name: str) -> bool:
    return any(name in key for _, key in scene.runner.windows)


def test_what_another_of_its_group_beats_is_listed_and_not_run() -> None:
    found, scene = _search(GAINS)
    assert names(found.chosen) == ["deep", "other"]
    assert not _ran(scene, "small")
    (skipped,) = [trial for trial in found.trials if trial.outcome is Outcome.SKIPPED]
    assert skipped.plan.key == "small@n1" and "47% slower than another of its kind" in skipped.why
    assert "another of its kind" in next(one.why for one in found.rejections if one.rule == "small")


def test_where_the_better_one_fails_the_other_is_tried() -> None:
    found, _ = _search(GAINS, fails={"deep@n1": "Filling the cache took longer than 60 s."})
    assert names(found.chosen) == ["small", "other"]


def test_where_the_better_one_does_not_fit_the_other_is_tried() -> None:
    found, scene = _search(GAINS, predicted_bytes_by_key={"deep@n1": 9e9}, memory_limit_bytes=1e9)
    assert names(found.chosen) == ["small", "other"] and not _ran(scene, "deep")


def test_where_the_better_one_was_foreseen_wrongly_the_other_is_tried() -> None:
    found, scene = _search({"small@n1": 2.0, "deep@n1": 6.0}, fails={})
    assert not _ran(scene, "small") and names(found.chosen)[0] == "deep"
    candidates = [rewrite("small", group="cache"), rewrite("deep", group="cache")]
    made = runner({"small@n1": 1.6, "deep@n1": 0.5})
    wrong = Scene(candidates, made, expected=expecting({"small@n1": 2.0, "deep@n1": 6.0}))
    assert names(wrong.run().chosen) == ["small"]


def test_a_difference_within_the_models_error_is_measured() -> None:
    _, scene = _search({"deep@n1": 3.0, "small@n1": 2.8})
    assert _ran(scene, "small") and _ran(scene, "deep")
    _, scene = _search({})
    assert _ran(scene, "small") and _ran(scene, "deep")


def test_what_leaves_room_for_others_is_measured_though_it_is_slower_alone() -> None:
    gains = {"deep@n1": 2.0, "small@n1": 1.6, "other@n1": 1.5}
    candidates = [rewrite("small", group="cache"), rewrite("deep", group="cache"), rewrite("other")]

    def conflict(parts: Sequence[Rewrite]) -> str:
        return "they exclude each other" if {"deep", "other"} <= {part.rule for part in parts} else ""

    scene = Scene(candidates, runner(gains), expected=expecting(gains), conflict=conflict)
    scene.run()
    assert _ran(scene, "small") and _ran(scene, "deep")


def test_what_needs_a_consent_of_its_own_beats_none() -> None:
    """The model does not know what reading a file takes."""
    in_a_file = replace(rewrite("deep", group="cache"), needs=frozenset({Consent.FILE_CACHE}))
    candidates = [rewrite("small", group="cache"), in_a_file]
    made = runner({"small@n1": 1.6, "deep@n1": 1.2})
    allowed = frozenset({Consent.FILE_CACHE})
    scene = Scene(candidates, made, expected=expecting({"small@n1": 1.6, "deep@n1": 4.0}), allow=allowed)
    assert names(scene.run().chosen) == ["small"] and _ran(scene, "deep")
