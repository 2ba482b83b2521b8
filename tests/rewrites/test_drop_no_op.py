"""`drop-no-op`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

RULE = "drop-no-op"
_ALIKE = "map passes=0+1"
_OFF = {"options": {"experimental_optimization.noop_elimination": False}}
_ALL_OFF = {"options": {"experimental_optimization.apply_default_optimizations": False}}
_BY_ITSELF = "TensorFlow removes"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # It has an effect.
    ("range 9 | map", _OFF, None),
    ("range 9 | map passes=-1", _OFF, None),
    ("range 9 | map passes=0+-1", _OFF, None),
    ("range 9 | map passes=1+0", _OFF, None),
    ("range 9 | map passes=0+0", _OFF, None),
    ("range 9 | map passes=0+1 spec=other", _OFF, None),  # it sets shapes, or renames components
    ("range 9 | map unknown", _OFF, None),
    (f"range 9 | {_ALIKE} raises", _OFF, None),
    (f"range 9 | {_ALIKE} print", _OFF, None),
    (f"range 9 | {_ALIKE} file", _OFF, None),
    (f"range 9 | {_ALIKE} python", _OFF, None),
    (f"range 9 | {_ALIKE} random", _OFF, None),
    (f"range 9 | {_ALIKE} seeded", _OFF, None),
    (f"range 9 | {_ALIKE} variable=w", _OFF, None),
    (f"range 9 | {_ALIKE} writes", _OFF, None),
    (f"range 9 | {_ALIKE} table", _OFF, None),
    ("range 9 | take 9", _OFF, None),
    ("range 9 | take 0", _OFF, None),
    ("range 9 | take None", _OFF, None),
    ("range 9 | skip 1", _OFF, None),
    ("range 9 | skip -1", _OFF, None),
    ("range 9 | repeat", _OFF, None),
    ("range 9 | repeat 2", _OFF, None),
    ("range 9 | repeat 0", _OFF, None),
    ("range 9 | shard 2 index=0", _OFF, None),
    ("range 9 | batch 1", _OFF, None),
    ("range 9 | batch 2 | batch 2", _OFF, None),
    ("range 9 | batch 2 | unbatch", _OFF, None),
    ("range 9 | filter", _OFF, None),
    ("range 9 | flat_map", _OFF, None),
    ("range 9 | interleave cycle_length=1", _OFF, None),
    ("range 9 | enumerate", _OFF, None),
    ("range 9 | scan", _OFF, None),
    ("range 9 | cache | cache", _OFF, None),
    ("range 9 | assert_cardinality", _OFF, None),
    ("range 9 | with_options", _OFF, None),
    ("range 9 | opaque", _OFF, None),
    ("range 9 | shuffle 1", _OFF, "draws a seed"),
    ("range 9 | shuffle 1 seed=3", _OFF, "draws a seed"),
    ("range 9 | shuffle 2", _OFF, None),
    ("range 9 | shuffle 9 | batch 2 | repeat 1", _OFF, "how often its iteration is restarted"),
    ("range 9 | shuffle 9 seed=3 | repeat 1", {}, "how often its iteration is restarted"),
    # A single prefetch, or an operator between two.
    ("range 9 | prefetch 2", {}, None),
    ("range 9 | prefetch 2 | map | prefetch 2", {}, None),
    ("range 9 | prefetch 2 | batch 2 | prefetch 2", {}, None),
    ("a = range 9 | prefetch 2; b = a | prefetch 2; c = a | batch 2; zip b c", {}, None),
    ("range 9 | map variable=w | prefetch 2 | prefetch 4", {}, "reads the variable w"),
    ("range 9 | map writes | prefetch 2 | prefetch 4", {}, "reads the variable w"),
    ("range 9 | map file | prefetch 2 | prefetch 4", {}, "side effect"),
    # TensorFlow does it.
    (f"range 9 | {_ALIKE}", {}, _BY_ITSELF),
    ("range 9 | take -1", {}, _BY_ITSELF),
    ("range 9 | skip 0", {}, _BY_ITSELF),
    ("range 9 | repeat 1", {}, _BY_ITSELF),
    ("range 9 | shard 1 index=0", {}, _BY_ITSELF),
    ("range 9 | skip 0",
     {"options": {**_ALL_OFF["options"], "experimental_optimization.noop_elimination": True}}, _BY_ITSELF),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(RULE, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | {_ALIKE} | batch 2", _OFF, ["EXACT -n1"]),
    (f"range 9 | {_ALIKE} | batch 2", _ALL_OFF, ["EXACT -n1"]),
    (f"range 9 | {_ALIKE} 4", _OFF, ["EXACT -n1"]),
    (f"range 9 | {_ALIKE} 4 deterministic=False", _OFF, ["EXACT -n1"]),
    ("range 9 spec=x | map passes=0 spec=x", _OFF, ["EXACT -n1"]),
    ("range 9 | take -1 | skip 0 | shard 1 index=0 | repeat 1", _OFF, [f"EXACT -n{n}" for n in (1, 2, 3, 4)]),
    ("range 9 | map random | skip 0", _OFF, ["EXACT -n2"]),
    (f"a = range 9 | {_ALIKE}; b = a | batch 2; c = a | batch 3; zip b c", _OFF, ["EXACT -n1"]),
    # The smaller of two prefetches.
    ("range 9 | prefetch 2 | prefetch 4", {}, ["EXACT -n1"]),
    ("range 9 | prefetch 4 | prefetch 2", {}, ["EXACT -n2"]),
    ("range 9 | prefetch 2 | prefetch 2", {}, ["EXACT -n1"]),
    ("range 9 | prefetch AUTOTUNE | prefetch 90", {}, ["EXACT -n2"]),
    ("range 9 | prefetch 90 | prefetch AUTOTUNE", {}, ["EXACT -n1"]),
    ("range 9 | prefetch AUTOTUNE | prefetch AUTOTUNE | batch 2", {}, ["EXACT -n1"]),
    ("range 9 | prefetch 0 | prefetch 1", {}, ["EXACT -n1"]),
    ("range 9 | map variable=w | prefetch 2 | prefetch 4", {"trained_variables": frozenset()}, ["EXACT -n2"]),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes(RULE, words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group == f"{RULE}@{rewrite.node}" and not rewrite.needs for rewrite in rewrites)


def test_removed_prefetch_frees_its_buffer() -> None:
    (rewrite,) = check_proposes(RULE, "range 9 static_bytes=100 | prefetch 2 | prefetch 4")
    assert rewrite.predicted_bytes == -200
