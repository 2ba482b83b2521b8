"""`map-and-batch-fusion`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    ("range 9 | map", {}, None),
    ("range 9 | map | padded_batch 2", {}, "padded_batch has no fused variant"),
    ("range 9 | map | ragged_batch 2", {}, "ragged_batch has no fused variant"),
    ("range 9 | map | batch 2", {}, "already fuses"),
    ("range 9 | map 2 | batch 2", {}, "already fuses"),
    ("range 9 | map AUTOTUNE random | batch 2", {}, "already fuses"),
    ("range 9 | map random | batch 2", {}, "one call at a time"),
    ("range 9 | map variable=w | batch 2", {}, "one call at a time"),
    ("range 9 | map python | batch 2", {}, "one call at a time"),
    ("a = range 9 | map; b = a | batch 2; zip a b", {}, "already fuses"),  # another reader does not prevent it
    ("range 9 | map | batch 2 drop_remainder=True", {}, "already fuses"),
    ("range 9 | map | batch 2", {"options": {"deterministic": False}}, "already fuses"),
    ("range 9 | map | batch 2",
     {"options": {"experimental_optimization.apply_default_optimizations": False,
                  "experimental_optimization.map_and_batch_fusion": True}}, "already fuses"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("map-and-batch-fusion", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


def _moves(words: str, **fields: Any) -> list[str]:
    """The rewrites other than a parallel batch."""
    rewrites, _ = proposals("map-and-batch-fusion", context(words, **fields))
    return [text for text in outlines(rewrites) if "num_parallel_calls" not in text]


STAYS: list[tuple[str, str]] = [
    ("range 9 | map variable=w | shuffle 5 | batch 2", "reads the variable w"),
    ("range 9 | map table | shuffle 5 | batch 2", "table"),
    ("range 9 | map python | shuffle 5 | batch 2", "Python"),
    ("range 9 | map print | prefetch 5 | batch 2", "side effect"),
    ("range 9 | map unknown | take 5 | batch 2", "nothing is known"),
    ("range 9 | map random | take 5 | batch 2", "random numbers"),
    ("range 9 | map random | skip 5 | batch 2", "random numbers"),
    ("range 9 | map random | shard 2 index=0 | batch 2", "random numbers"),
    ("range 9 | map raises | skip 5 | batch 2", "validates values"),
    ("range 9 | map 2 deterministic=False | skip 5 | batch 2", "keep the order"),
    ("range 9 | cache | map 2 | take 5 | batch 2", "never be read to its end"),
    ("range 9 | map | shuffle 5 | batch 2 | ignore_errors", "ignore_errors"),
    ("a = range 9 | map; b = a | shuffle 5 | batch 2; c = a | batch 2; zip b c", "another consumer"),
    ("range 9 | map | filter | batch 2", "is upstream of it, not a map"),
    ("range 9 | map | cache | batch 2", "is upstream of it, not a map"),
    ("range 9 | map | enumerate | batch 2", "is upstream of it, not a map"),
    ("range 9 | map | scan | batch 2", "is upstream of it, not a map"),
    ("range 9 | map | unique | batch 2", "is upstream of it, not a map"),
    ("range 9 | map | flat_map | batch 2", "is upstream of it, not a map"),
    ("range 9 | map | ignore_errors | batch 2", "is upstream of it, not a map"),
    ("range 9 | batch 2", "is upstream of it, not a map"),
    ("range 9 | map use_unbounded_threadpool=True | batch 2", "unbounded thread pool"),
]


@pytest.mark.parametrize(("words", "why"), STAYS)
def test_operator_between_map_and_batch_is_not_moved(words: str, why: str) -> None:
    rewrites, silences = proposals("map-and-batch-fusion", context(words))
    assert _moves(words) == []
    assert any(why in silence.why for silence in silences), silences
    assert all("num_parallel_calls" in text for text in outlines(rewrites))


MOVES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("range 9 | map | shuffle 5 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map | prefetch 5 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map | take 5 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map | skip 5 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map | shard 2 index=0 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map | repeat | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map | map | shuffle 5 | batch 2", {}, ["EXACT n3>n1"]),
    ("range 9 | map raises | shuffle 5 | batch 2", {}, ["EXACT n2>n0"]),
    ("range 9 | map random | shuffle 5 | batch 2", {}, ["STATISTICAL n2>n0"]),
    ("range 9 | map random | repeat | batch 2", {}, ["STATISTICAL n2>n0"]),
    ("range 9 | map 2 deterministic=False | shuffle 5 | batch 2", {}, ["EXACT n2>n0"]),
    (
        "range 9 | map | batch 2",
        {"options": {"experimental_optimization.map_and_batch_fusion": False}},
        ["EXACT options.experimental_optimization.map_and_batch_fusion=True"],
    ),
    (
        "range 9 | map | batch 2",
        {"options": {"experimental_optimization.apply_default_optimizations": False}},
        ["EXACT options.experimental_optimization.map_and_batch_fusion=True"],
    ),
]


@pytest.mark.parametrize(("words", "fields", "expected"), MOVES)
@pytest.mark.mission("A4.fusion")
def test_operator_between_map_and_batch_is_moved(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    check_proposes("map-and-batch-fusion", words, **fields)
    assert _moves(words, **fields) == expected


def test_note_says_that_draws_continue_across_epochs() -> None:
    rewrites = check_proposes("map-and-batch-fusion", "range 9 | map random | repeat | batch 2")
    assert "of the map then continue from epoch to epoch" in " ".join(rewrites[0].notes)


def test_parallel_batch_is_made_serial_for_fusion() -> None:
    rewrites = check_proposes("map-and-batch-fusion", "range 9 | map | batch 2 num_parallel_calls=2")
    assert outlines(rewrites) == ["EXACT n2.num_parallel_calls=None", "EXACT n2.num_parallel_calls=-1"]
    assert len({rewrite.group for rewrite in rewrites}) == 1


@pytest.mark.parametrize(
    ("words", "options", "safety"),
    [
        ("range 9 | filter | batch 10", {}, "EXACT"),
        ("range 9 | filter | batch 10", {"deterministic": False}, "REORDERS"),
        ("range 9 | filter | batch 10 drop_remainder=True", {"deterministic": False}, "STATISTICAL"),
        ("range 9 | filter | batch 10 deterministic=False", {}, "REORDERS"),
    ],
)
def test_parallel_batch_is_proposed_where_nothing_is_fused(words: str, options: dict[str, Any], safety: str) -> None:
    rewrites = check_proposes("map-and-batch-fusion", words, options=options)
    assert outlines(rewrites) == [f"{safety} n2.num_parallel_calls={n}" for n in (-1, 2)]
    assert all(rewrite.reproducible == (safety == "EXACT") for rewrite in rewrites)


@pytest.mark.mission("A4.fusion")
def test_fusion_observed_at_runtime_leaves_no_proposal() -> None:
    words = "range 9 | map | batch 2 num_parallel_calls=2"
    assert check_no_proposal("map-and-batch-fusion", words, observed_kernels={"n2": "MapAndBatch"})


def test_moved_buffer_is_priced_by_what_it_holds() -> None:
    words = "range 9 bytes=8 | map bytes=1000 | prefetch 10 | batch 2"
    (move,) = [
        rewrite for rewrite in check_proposes("map-and-batch-fusion", words) if "n2>n0" in outlines([rewrite])[0]
    ]
    assert move.predicted_bytes == 80 - 10_000
    assert "9.7 KiB less" in " ".join(move.notes)
