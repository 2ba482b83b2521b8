"""`shard-early`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

RULE = "shard-early"
_SHARD = "shard 3 index=1"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    ("range 9 | map | batch 2", {}, None),
    (f"range 9 | {_SHARD}", {}, None),
    (f"range 9 | {_SHARD} | map", {}, None),
    (f"range 9 | prefetch 2 | {_SHARD}", {}, None),
    ("range 9 | map | skip 3", {}, None),  # left to split-early
    ("range 9 | map | shard 1 index=0", {}, "elements are dropped"),
    ("range 9 | map | shard None index=0", {}, "unknown how many"),
    (f"range 9 | map unknown | {_SHARD}", {}, "nothing is known"),
    (f"range 9 | map python | {_SHARD}", {}, "runs Python"),
    (f"range 9 | map random | {_SHARD}", {}, "random numbers"),
    (f"range 9 | map seeded | {_SHARD}", {}, "random numbers"),
    (f"range 9 | map variable=w | {_SHARD}", {}, "reads the variable w"),
    (f"range 9 | map writes | {_SHARD}", {}, "writes a variable"),
    (f"range 9 | map table | {_SHARD}", {}, "table"),
    (f"range 9 | map print | {_SHARD}", {}, "PrintV2"),
    (f"range 9 | map file | {_SHARD}", {}, "WriteFile"),
    (f"range 9 | map raises | {_SHARD}", {}, "validates values"),
    (f"range 9 | map | {_SHARD} | ignore_errors", {}, "ignore_errors"),
    (f"range 9 | map 4 deterministic=False | {_SHARD}", {}, "keep the order"),
    (f"range 9 | map | {_SHARD}", {"options": {"deterministic": False}}, "keep the order"),
    (f"range 9 | map | shuffle 9 | {_SHARD}", {}, None),
    (f"list_files | interleave | {_SHARD}", {}, None),
    (f"range 9 | map | repeat | {_SHARD}", {}, None),
    (f"range 9 | map | filter | {_SHARD}", {}, None),
    (f"range 9 | map | batch 2 | {_SHARD}", {}, None),
    (f"range 9 | map | unbatch | {_SHARD}", {}, None),
    (f"range 9 | map | cache | {_SHARD}", {}, None),
    (f"range 9 | map | snapshot | {_SHARD}", {}, None),
    (f"range 9 | map | enumerate | {_SHARD}", {}, None),
    (f"range 9 | map | assert_cardinality | {_SHARD}", {}, None),
    (f"range 9 | scan | {_SHARD}", {}, None),
    (f"range 9 | flat_map | {_SHARD}", {}, None),
    (f"range 9 | opaque | {_SHARD}", {}, None),
    (f"a = range 9 | map; b = a | {_SHARD}; c = a | batch 2; zip b c", {}, None),
    (f"a = range 9 | map; b = range 9; concatenate a b | {_SHARD}", {}, None),
    (f"range 9 | cache | map | take 5 | {_SHARD}", {}, "might never be read to its end"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(RULE, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | map | {_SHARD} | batch 2", {}, ["EXACT n2>n0"]),
    (f"range 9 | map 4 | map random | map | {_SHARD}", {}, ["EXACT n4>n2"]),
    (f"list_files | interleave | map | {_SHARD}", {}, ["EXACT n4>n2"]),
    (f"range 9 | map | prefetch 2 | {_SHARD}", {}, ["EXACT n3>n0"]),
    (f"range 9 | map | skip 3 | {_SHARD}", {}, ["EXACT n2>n0 n3>n2"]),
    (f"range 9 | map | {_SHARD} | skip 3", {}, ["EXACT n2>n0"]),
    (f"range 9 | map | {_SHARD} | shard 2 index=0", {}, ["EXACT n2>n0 n3>n2"]),
    (f"range 9 | map | take 1000 | {_SHARD}", {}, ["EXACT n2>n0 n3>n2"]),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes(RULE, words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group == "place@n2" or rewrite.group == f"place@{rewrite.node}" for rewrite in rewrites)


def test_excludes_split_early_of_a_skip_that_moves_with_it() -> None:
    words = f"range 9 | map | skip 3 | {_SHARD}"
    (alone,), (both,) = check_proposes("split-early", words), check_proposes(RULE, words)
    assert alone.group == both.group
