"""How rewrites affect a resumed job: which keep their safety class, which get a weaker one, and which are dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Edit, Insert, Move, NoProposal, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.rewrites import propose_all
from pipetune.rewrites.resuming import adapt_to_resuming
from tests.rules import context

STATE = ResumePoint(ResumeMethod.ITERATOR_STATE, "tf.train.Checkpoint(iterator=...)", "train.py", 3)
IDS = ResumePoint(ResumeMethod.IDS, "tfds_id")
EPOCHS = ResumePoint(ResumeMethod.EPOCHS, "BackupAndRestore")


def skip(node: str) -> ResumePoint:
    return ResumePoint(ResumeMethod.SKIP, "skip(step)", "train.py", 4, node)


Edits = tuple[Edit, ...]

AHEAD: Edits = (Insert("n3", "prefetch", "prefetch@n3", {"buffer_size": 2}),)
MEMORY: Edits = (Insert("n1", "cache", "cache@n1"),)
FILE: Edits = (Insert("n1", "cache", "cache@n1", {"filename": "kept"}),)
FILE_BELOW: Edits = (Insert("n2", "cache", "cache@n2", {"filename": "kept"}),)
PARALLEL: Edits = (SetArgument("n1", "num_parallel_calls", 2),)

#    n0      n1    n2     n3
LOOP = "range 9 | map | skip 2 | batch 2"
PLAIN = "range 9 | map | shuffle 5 | batch 2"
RANDOM = "range 9 | map random | shuffle 5 | batch 2"
NUMBERED = "range 9 | map 4 | shuffle 5 | batch 2 | prefetch 1"


def seen(words: str, way: ResumePoint, edits: Edits, safety: Safety = Safety.EXACT) -> Rewrite | NoProposal:
    return adapt_to_resuming(_made(edits, safety), context(words, resuming=(way,)))


def _made(edits: Edits, safety: Safety = Safety.EXACT) -> Rewrite:
    return Rewrite("a-rule", "n1", safety, edits, "Does something.", group="a")


AS_PROPOSED: list[tuple[str, ResumePoint, Edits, Safety]] = [
    (PLAIN, IDS, (Move("n2", "n0"),), Safety.REORDERS),
    (PLAIN, EPOCHS, PARALLEL, Safety.STATISTICAL),
    (LOOP, skip("n2"), MEMORY, Safety.EXACT),
    (LOOP, skip("n2"), PARALLEL, Safety.EXACT),
    (LOOP, skip("n2"), (Move("n2", "n0"),), Safety.EXACT),  # after passing a map, the same elements are skipped
    (LOOP, skip("n7"), AHEAD, Safety.EXACT),  # a skip of another dataset
    (NUMBERED, STATE, PARALLEL, Safety.EXACT),
    (NUMBERED, STATE, (SetArgument("n4", "buffer_size", 4),), Safety.EXACT),
    (NUMBERED, STATE, (SetOption("threading.private_threadpool_size", 2),), Safety.EXACT),
    (PLAIN, STATE, PARALLEL, Safety.EXACT),  # TensorFlow runs this map in parallel anyway
]


@pytest.mark.parametrize(("words", "way", "edits", "safety"), AS_PROPOSED)
def test_rewrite_without_effect_is_unchanged(words: str, way: ResumePoint, edits: Edits, safety: Safety) -> None:
    found = seen(words, way, edits, safety)
    assert isinstance(found, Rewrite) and found.safety is safety and found.notes == ()


UNDONE: Edits = (SetOption("experimental_optimization.map_parallelization", False),)

LOWERED: list[tuple[str, ResumePoint, Edits, Safety, str]] = [
    (PLAIN, STATE, AHEAD, Safety.STATISTICAL, "cannot be restored"),
    (PLAIN, STATE, (Move("n2", "n0"),), Safety.STATISTICAL, "cannot be restored"),
    (PLAIN, STATE, (SetArgument("n2", "buffer_size", 9),), Safety.STATISTICAL, "cannot be restored"),
    (RANDOM, STATE, PARALLEL, Safety.STATISTICAL, "cannot be restored"),
    (NUMBERED, STATE, (SetArgument("n1", "num_parallel_calls", None),), Safety.STATISTICAL, "cannot be restored"),
    (PLAIN, STATE, UNDONE, Safety.STATISTICAL, "cannot be restored"),
    (PLAIN, STATE, FILE, Safety.STATISTICAL, "locked"),
    (PLAIN, STATE, FILE, Safety.STATISTICAL, "cannot be restored"),
    (PLAIN, IDS, FILE, Safety.STATISTICAL, "locked"),
    (LOOP, skip("n2"), (Move("n3", "n1"),), Safety.REORDERS, "the elements"),
    ("range 9 | shuffle 5 | batch 2 | skip 2", skip("n3"), (Move("n1", "n2"),), Safety.REORDERS, "the elements"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "way", "edits", "safety", "warning"), LOWERED)
@pytest.mark.mission("D4.resuming")
def test_rewrite_that_affects_resuming_is_weaker(words, way, edits, safety, warning) -> None:
    found = seen(words, way, edits)
    assert isinstance(found, Rewrite) and found.safety is safety
    assert any(warning in note for note in found.notes) and all(way.what in note for note in found.notes)
    assert adapt_to_resuming(found, context(words, resuming=(way,))) == found  # the note is added once


@pytest.mark.parametrize("safety", [Safety.STATISTICAL, Safety.REORDERS])
def test_other_draws_before_a_skip_add_a_note(safety: Safety) -> None:
    found = seen(LOOP, skip("n2"), PARALLEL, safety)
    assert isinstance(found, Rewrite) and found.safety is safety and "resumed after it" in found.notes[0]


@pytest.mark.parametrize(("words", "way", "edits", "why"), [
    (LOOP, skip("n2"), FILE_BELOW, "remained for an earlier run"),
    (PLAIN, STATE, (Insert("n3", "copy_to_device", "copy_to_device@n3"),), "cannot be saved"),
])  # fmt: skip
@pytest.mark.mission("D4.resuming")
def test_rewrite_that_breaks_resuming_is_not_proposed(words: str, way: ResumePoint, edits: Edits, why: str) -> None:
    found = seen(words, way, edits)
    assert isinstance(found, NoProposal) and why in found.why


def test_weakest_class_of_several_resume_points_applies() -> None:
    found = adapt_to_resuming(_made((Move("n3", "n1"),)), context(LOOP, resuming=(skip("n2"), STATE, IDS)))
    assert isinstance(found, Rewrite) and found.safety is Safety.REORDERS and len(found.notes) == 2


def test_class_that_follows_from_one_resume_point_is_no_reason_for_another() -> None:
    found = adapt_to_resuming(_made(AHEAD), context(LOOP, resuming=(STATE, skip("n2"))))
    assert isinstance(found, Rewrite) and len(found.notes) == 1 and "cannot be restored" in found.notes[0]


@pytest.mark.parametrize("way", [STATE, IDS, EPOCHS])
def test_all_rules_are_adapted_to_resuming(way: ResumePoint) -> None:
    words = "range 9 elements=9 | map! bytes=1k elements=9 | shuffle 5 | batch 2"
    before, _ = propose_all(context(words))
    after, _ = propose_all(context(words, resuming=(way,)))
    plain, adapted = ([replace(one, safety=Safety.EXACT, notes=()) for one in found] for found in (before, after))
    assert plain == adapted
    assert any(one.safety > other.safety for one, other in zip(after, before, strict=True)) is (way is STATE)


def test_order_that_a_fusion_changes_is_noted_for_a_skip() -> None:
    words = "range 9 elements=9 | shuffle 9 seed=3 | map rows=exact bytes=8 | repeat 2 | skip 2 | batch 2"
    rewrites, _ = propose_all(context(words, resuming=(skip("n4"),)))
    vectorized = next(one for one in rewrites if one.rule == "vectorize-map")
    assert vectorized.safety is Safety.REORDERS and "resumed after it sees" in vectorized.notes[-1]
