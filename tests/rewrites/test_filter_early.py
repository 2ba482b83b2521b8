"""`filter-early`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import ReplaceFunction
from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

RULE = "filter-early"
_FILTER = "filter early=1"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No map upstream that could run later.
    ("range 9 | map", {}, None),
    (f"range 9 | {_FILTER}", {}, None),
    (f"range 9 | {_FILTER} | map", {}, None),
    (f"range 9 | prefetch 2 | {_FILTER}", {}, None),
    # The predicate does not decide equally there.
    ("range 9 | map | filter", {}, "unknown whether the map leaves unchanged"),
    ("range 9 | map | filter early=no", {}, "reads what the map makes"),
    ("range 9 | map | filter unknown", {}, "nothing is known about its predicate"),
    (f"range 9 | map | {_FILTER} python", {}, "its predicate runs Python"),
    (f"range 9 | map | {_FILTER} random", {}, "its predicate draws"),
    (f"range 9 | map | {_FILTER} seeded", {}, "its predicate draws"),
    (f"range 9 | map | {_FILTER} variable=w", {}, "its predicate reads the variable w"),
    (f"range 9 | map | {_FILTER} variable=w", {"trained_variables": frozenset()}, "its predicate reads the variable"),
    (f"range 9 | map | {_FILTER} writes", {}, "its predicate writes a variable"),
    (f"range 9 | map | {_FILTER} table", {}, "its predicate uses a table"),
    (f"range 9 | map | {_FILTER} print", {}, "its predicate has a side effect"),
    # The map's function must be called on every element.
    (f"range 9 | map unknown | {_FILTER}", {}, "nothing is known about its function"),
    (f"range 9 | map python | {_FILTER}", {}, "its function runs Python"),
    (f"range 9 | map random | {_FILTER}", {}, "its function draws"),
    (f"range 9 | map seeded | {_FILTER}", {}, "its function draws"),
    (f"range 9 | map python_random | {_FILTER}", {}, "its function draws"),
    (f"range 9 | map variable=w | {_FILTER}", {}, "its function reads the variable w"),
    (f"range 9 | map writes | {_FILTER}", {}, "its function writes a variable"),
    (f"range 9 | map table | {_FILTER}", {}, "its function uses a table"),
    (f"range 9 | map print | {_FILTER}", {}, "its function has a side effect"),
    (f"range 9 | map file | {_FILTER}", {}, "its function has a side effect"),
    (f"range 9 | map raises | {_FILTER}", {}, "validates values"),
    (f"range 9 | map | {_FILTER} | ignore_errors", {}, "ignore_errors"),
    # An operator between them counts, orders, keeps or combines elements.
    (f"range 9 | map | shuffle 9 | {_FILTER}", {}, None),
    (f"range 9 | map | repeat | {_FILTER}", {}, None),
    (f"range 9 | map | batch 2 | {_FILTER}", {}, None),
    (f"range 9 | map | unbatch | {_FILTER}", {}, None),
    (f"range 9 | map | cache | {_FILTER}", {}, None),
    (f"range 9 | map | snapshot | {_FILTER}", {}, None),
    (f"range 9 | map | take 5 | {_FILTER}", {}, None),
    (f"range 9 | map | skip 5 | {_FILTER}", {}, None),
    (f"range 9 | map | shard 2 index=0 | {_FILTER}", {}, None),
    (f"range 9 | map | take_while | {_FILTER}", {}, None),
    (f"range 9 | map | unique | {_FILTER}", {}, None),
    (f"range 9 | map | enumerate | {_FILTER}", {}, None),
    (f"range 9 | map | ignore_errors | {_FILTER}", {}, None),
    (f"range 9 | map | assert_cardinality | {_FILTER}", {}, None),
    (f"range 9 | scan | {_FILTER}", {}, None),
    (f"range 9 | flat_map | {_FILTER}", {}, None),
    (f"range 9 | interleave | {_FILTER}", {}, None),
    (f"range 9 | opaque | {_FILTER}", {}, None),
    (f"a = range 9 | map; b = a | {_FILTER}; c = a | batch 2; zip b c", {}, None),
    (f"a = range 9 | map; b = range 9; zip a b | {_FILTER}", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(RULE, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | map | {_FILTER} | batch 2", {}, ["EXACT n2>n0 n2 on what the map gets"]),
    (f"range 9 | map 4 | {_FILTER}", {}, ["EXACT n2>n0 n2 on what the map gets"]),
    (f"range 9 | map | {_FILTER} raises", {}, ["EXACT n2>n0 n2 on what the map gets"]),
    (f"range 9 | map | prefetch 2 | {_FILTER}", {}, ["EXACT n3>n0 n3 on what the map gets"]),
    (f"range 9 | prefetch 2 | map | {_FILTER}", {}, ["EXACT n3>n1 n3 on what the map gets"]),
    (f"range 9 | shuffle 9 | map | {_FILTER}", {}, ["EXACT n3>n1 n3 on what the map gets"]),
    (f"range 9 | map random | map | {_FILTER}", {}, ["EXACT n3>n1 n3 on what the map gets"]),
    ("range 9 | map | map | filter early=2", {}, ["EXACT n3>n0 n3 on what the map gets"]),
    ("range 9 | map | map | filter early=1+no", {}, ["EXACT n3>n1 n3 on what the map gets"]),
    (f"range 9 | map | map | {_FILTER}", {}, ["EXACT n3>n1 n3 on what the map gets"]),
    ("range 9 | map | filter early=1 | filter early=1", {}, ["EXACT n2>n0 n2 on what the map gets"]),
    (f"range 9 | map 2 deterministic=False | {_FILTER}", {}, ["EXACT n2>n0 n2 on what the map gets"]),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes(RULE, words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group == f"place@{rewrite.node}" and not rewrite.needs for rewrite in rewrites)


def test_edit_has_the_digest_of_the_predicate_before_the_last_map_passed() -> None:
    (rewrite,) = check_proposes(RULE, "range 9 | map | map | filter early=2")
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == ["above 2"]
    assert "no longer ends the run" in rewrite.notes[0]
