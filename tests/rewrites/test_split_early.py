"""`split-early`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import apply_edits
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context
from tests.rewrites.outline import outlines

RULE = "split-early"
_OFF = {"options": {"experimental_optimization.apply_default_optimizations": False}}

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No computation upstream.
    ("range 9 | batch 2", {}, None),
    ("range 9 | map | batch 2", {}, None),
    ("range 9 | skip 3", {}, None),
    ("range 9 | take 3 | skip 1 | batch 2", {}, None),
    ("range 9 | skip 3 | map", {}, None),
    ("range 9 | prefetch 2 | skip 3", {}, None),
    ("range 9 | with_options | skip 3", {}, None),
    ("range 9 | map | shard 3 index=1", {}, None),  # left to shard-early
    # The function may not be called on fewer or other elements.
    ("range 9 | map unknown | skip 3", {}, "nothing is known"),
    ("range 9 | map python | skip 3", {}, "runs Python"),
    ("range 9 | map python_random | skip 3", {}, "random"),
    ("range 9 | map random | skip 3", {}, "random numbers"),
    ("range 9 | map random | take 3 | skip 1", {}, "random numbers"),
    ("range 9 | map seeded | skip 3", {}, "random numbers"),
    ("range 9 | map variable=w | skip 3", {}, "reads the variable w"),
    ("range 9 | map variable=w | skip 3", {"trained_variables": frozenset()}, "reads the variable w"),
    ("range 9 | map writes | skip 3", {}, "writes a variable"),
    ("range 9 | map table | skip 3", {}, "table"),
    ("range 9 | map print | skip 3", {}, "PrintV2"),
    ("range 9 | map file | skip 3", {}, "WriteFile"),
    ("range 9 | map raises | skip 3", {}, "validates values"),
    ("range 9 | map | skip 3 | ignore_errors", {}, "ignore_errors"),
    ("range 9 | map 4 deterministic=False | skip 3", {}, "keep the order"),
    ("range 9 | map 4 | skip 3", {"options": {"deterministic": False}}, "keep the order"),
    ("range 9 | map | skip 3", {"options": {"deterministic": False}}, "keep the order"),  # TensorFlow makes it parallel
    # Operators that count, order, keep, drop or multiply elements.
    ("range 9 | map | shuffle 9 | skip 3", {}, None),
    ("range 9 | map | repeat | skip 3", {}, None),
    ("range 9 | map | repeat 2 | take 3", {}, None),
    ("range 9 | map | filter | skip 3", {}, None),
    ("range 9 | map | batch 2 | skip 3", {}, None),
    ("range 9 | map | batch 2 | take 3", {}, None),
    ("range 9 | map | padded_batch 2 | skip 3", {}, None),
    ("range 9 | map | unbatch | skip 3", {}, None),
    ("range 9 | map | window 2 | skip 3", {}, None),
    ("range 9 | map | cache | skip 3", {}, None),
    ("range 9 | map | snapshot | skip 3", {}, None),
    ("range 9 | map | ignore_errors | skip 3", {}, None),
    ("range 9 | map | assert_cardinality | skip 3", {}, None),
    ("range 9 | map | enumerate | skip 3", {}, None),
    ("range 9 | map | unique | skip 3", {}, None),
    ("range 9 | map | take_while | skip 3", {}, None),
    ("range 9 | scan | skip 3", {}, None),
    ("range 9 | flat_map | skip 3", {}, None),
    ("range 9 | interleave | skip 3", {}, None),
    ("range 9 | group_by_window | skip 3", {}, None),
    ("range 9 | opaque | skip 3", {}, None),
    # What is upstream has other readers, or branches join there.
    ("a = range 9 | map; b = a | skip 3; c = a | take 3; zip b c", {}, None),
    ("a = range 9 | map; b = range 9; zip a b | skip 3", {}, None),
    # Nothing is saved.
    ("range 9 | map | skip 0", {}, "elements are dropped"),
    ("range 9 | map | take -1", {}, "elements are dropped"),
    ("range 9 | map | skip None", {}, "unknown how many"),
    ("range 9 | map | take None", {}, "unknown how many"),
    ("range 9 | map | take 1000", {}, "at most 2 of the elements"),  # two cores
    ("range 9 | map 4 | take 1000", {}, "at most 4 of the elements"),
    ("range 9 | map 4 | prefetch 16 | take 1000", {}, "at most 20 of the elements"),
    ("range 9 | map | take 5", _OFF, "at most 0 of the elements"),
    ("range 9 | map | take 0", {}, "compared with 0"),
    # A take limits reading ahead; the operators upstream of its new place would lose that.
    ("range 9 | cache | map 4 | take 5", {}, "cache (train.py:2) upstream"),
    ("range 9 | snapshot | map 4 | take 5", {}, "snapshot (train.py:2) upstream"),
    ("range 9 | map random | map 4 | take 5", {}, "upstream has state"),
    ("range 9 | map variable=w | map 4 | take 5", {}, "upstream has state"),
    ("range 9 | map print | map 4 | take 5", {}, "upstream has state"),
    ("from_generator | map 4 | take 5", {}, "upstream has state"),
    ("range 9 | cache | map 4 | take 5 | skip 2", {}, "might never be read to its end"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(RULE, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("range 9 | map | skip 3", {}, ["EXACT n2>n0"]),
    ("range 9 | map 4 | skip 3 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map 4 | skip -1", {}, ["EXACT n2>n0"]),
    ("range 9 | map 4 deterministic=True | skip 3", {"options": {"deterministic": False}}, ["EXACT n2>n0"]),
    ("range 9 | map | map | skip 3", {}, ["EXACT n3>n0"]),
    ("range 9 | map random | map | skip 3", {}, ["EXACT n3>n1"]),
    ("range 9 | map raises | map | skip 3", {}, ["EXACT n3>n1"]),
    ("range 9 | shuffle 9 | map | skip 3", {}, ["EXACT n3>n1"]),
    ("range 9 | cache | map | skip 3", {}, ["EXACT n3>n1"]),
    ("range 9 | map random | map | batch 2 | map | skip 3", {}, ["EXACT n5>n3"]),
    ("range 9 | map | prefetch 2 | skip 3", {}, ["EXACT n3>n0"]),
    ("range 9 | prefetch 2 | map | skip 3", {}, ["EXACT n3>n1"]),  # nothing is gained by passing the prefetch
    ("range 9 | assert_cardinality | map | skip 3", {}, ["EXACT n3>n1"]),
    ("range 9 | map | take 90 | skip 3", {}, ["EXACT n2>n0 n3>n2"]),
    ("range 9 | map | skip 3 | take 90", {}, ["EXACT n2>n0 n3>n2"]),
    ("range 9 | map | shard 2 index=0 | skip 3", {}, ["EXACT n2>n0 n3>n2"]),
    ("range 9 | map | skip 3 | shard 2 index=0", {}, ["EXACT n2>n0"]),
    ("range 9 | map | skip 3 | map | skip 2", {}, ["EXACT n2>n0", "EXACT n4>n2"]),
    # A take alone, where much is read ahead upstream of it.
    ("range 9 | map 4 | take 20", {}, ["EXACT n2>n0"]),
    ("range 9 | map | take 20", {}, ["EXACT n2>n0"]),
    ("range 9 | map | prefetch AUTOTUNE | take 100", {}, ["EXACT n3>n0"]),
    ("range 9 | shuffle 9 | map 4 | take 20", {}, ["EXACT n3>n1"]),
    ("a = range 9 | map | skip 3; b = range 9; zip a b", {}, ["EXACT n2>n0"]),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes(RULE, words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group.startswith("place@") and not rewrite.needs for rewrite in rewrites)


def test_note_says_that_errors_in_dropped_elements_are_missed() -> None:
    (rewrite,) = check_proposes(RULE, "range 9 | map | skip 3")
    assert "no longer ends the run" in rewrite.notes[0]
    assert rewrite.summary == "Let skip drop elements before map (train.py:2), so that they are not computed first."


def test_plan_is_valid_when_an_operator_upstream_moves_too() -> None:
    words = "range 9 elements=9 bytes=8 | map random bytes=9k | shuffle 9 | map | skip 3"
    described = context(words)
    rewrites, _ = propose_all(described)
    early = next(one for one in rewrites if one.rule == RULE)
    shuffle = next(one for one in rewrites if one.rule == "shuffle-small")
    plan = sorted([shuffle, early], key=rewrites.index)
    assert find_conflict(described, plan) == ""
    edited = apply_edits(described.pipeline, [edit for one in plan for edit in one.edits])
    assert [node.id for node in edited] == ["n0", "n2", "n1", "n4", "n3"]  # the random map is not passed
