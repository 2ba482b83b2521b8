"""`map-fusion`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Insert, Remove, ReplaceFunction, Rewrite, Safety, apply_edits
from pipetune.core.functions import FunctionVariant
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context
from tests.rewrites.outline import outlines

RULE = "map-fusion"
_NEXT = "map fused=n1"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # There are not two maps.
    ("range 9 | map", {}, None),
    ("range 9 | map | batch 2", {}, None),
    (f"range 9 | map | batch 2 | {_NEXT}", {}, None),
    (f"range 9 | map | shuffle 9 | {_NEXT}", {}, None),
    (f"range 9 | map | repeat | {_NEXT}", {}, None),
    (f"range 9 | map | prefetch 2 | {_NEXT}", {}, None),
    (f"range 9 | map | cache | {_NEXT}", {}, None),
    (f"range 9 | map | filter | {_NEXT}", {}, None),
    (f"range 9 | map | take 5 | {_NEXT}", {}, None),
    (f"range 9 | map | skip 5 | {_NEXT}", {}, None),
    (f"range 9 | map | ignore_errors | {_NEXT}", {}, None),
    (f"range 9 | map | enumerate | {_NEXT}", {}, None),
    (f"range 9 | map | unbatch | {_NEXT}", {}, None),
    (f"range 9 | map | with_options | {_NEXT}", {}, None),
    (f"range 9 | map | opaque | {_NEXT}", {}, None),
    (f"range 9 | scan | {_NEXT}", {}, None),
    (f"range 9 | flat_map | {_NEXT}", {}, None),
    (f"a = range 9 | map; b = a | {_NEXT}; c = a | batch 2; zip b c", {}, None),
    # The functions are stateful.
    (f"range 9 | map unknown | {_NEXT}", {}, None),
    ("range 9 | map | map unknown", {}, None),
    (f"range 9 | map python | {_NEXT}", {}, None),
    (f"range 9 | map | {_NEXT} python", {}, None),
    (f"range 9 | map python_random | {_NEXT}", {}, None),
    (f"range 9 | map random variable=w | {_NEXT}", {}, None),
    ("range 9 | map random | map unfused=n1", {}, "do something else"),
    (f"range 9 | map | {_NEXT} random", {}, None),  # a cache may follow the first
    (f"range 9 | map | {_NEXT} seeded", {}, None),
    (f"range 9 | map variable=w | {_NEXT}", {}, None),
    (f"range 9 | map variable=w | {_NEXT}", {"trained_variables": frozenset()}, None),
    (f"range 9 | map | {_NEXT} writes", {}, None),
    (f"range 9 | map table | {_NEXT}", {}, None),
    (f"range 9 | map | {_NEXT} print", {}, None),
    (f"range 9 | map file | {_NEXT}", {}, None),
    # They are called in another way.
    (f"range 9 | map 2 | {_NEXT}", {}, None),
    (f"range 9 | map 2 | {_NEXT} 4", {}, None),
    (f"range 9 | map AUTOTUNE | {_NEXT} 4", {}, None),
    (f"range 9 | map 2 deterministic=False | {_NEXT} 2", {}, None),
    (f"range 9 | map synchronous=True | {_NEXT}", {}, None),
    (f"range 9 | map use_unbounded_threadpool=True | {_NEXT}", {}, None),
    # Their composition does not compute the same, or this is unknown.
    ("range 9 | map | map", {}, "unknown what their functions would compute"),
    ("range 9 | map | map unfused=n1", {}, "do something else"),
    ("range 9 | map | map fused=n0", {}, "unknown what their functions would compute"),
    (f"range 9 | map | map | {_NEXT}", {}, "unknown what their functions would compute"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(RULE, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


_ONE = "n2 on what the functions of the maps above give -n1"

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | map | {_NEXT} | batch 2", {}, [f"EXACT {_ONE}"]),
    (f"range 9 | map 4 | {_NEXT} 4", {}, [f"EXACT {_ONE}"]),
    (f"range 9 | map raises | {_NEXT} raises", {}, [f"EXACT {_ONE}"]),
    (f"range 9 | map | {_NEXT} | ignore_errors", {}, [f"EXACT {_ONE}"]),
    (f"range 9 | map | {_NEXT} | map random", {}, [f"EXACT {_ONE}"]),
    (f"range 9 | map | {_NEXT} | map 2", {}, [f"EXACT {_ONE}"]),
    ("range 9 | map random | map | map fused=n2", {}, ["EXACT n3 on what the functions of the maps above give -n2"]),
    ("range 9 | map | map | map fused=n1+n2", {},
     ["EXACT n3 on what the functions of the maps above give -n2 -n1"]),
    (f"range 9 | map random | {_NEXT}", {}, [f"STATISTICAL {_ONE}"]),
    (f"range 9 | map random 4 | {_NEXT} 4 seeded | batch 2", {}, [f"STATISTICAL {_ONE}"]),
    ("range 9 | map | map random | map random fused=n2", {},
     ["STATISTICAL n3 on what the functions of the maps above give -n2"]),
    ("range 9 | map | map fused=n1 | map random | map fused=n3", {},
     [f"EXACT {_ONE}", "STATISTICAL n4 on what the functions of the maps above give -n3"]),
    (f"range 9 | map 2 deterministic=False | {_NEXT} 2 deterministic=False", {}, [f"EXACT {_ONE}"]),
    (f"range 9 | map 2 | {_NEXT} 2", {"options": {"deterministic": False}}, [f"EXACT {_ONE}"]),
    (f"range 9 | map | {_NEXT} | batch 2 | map | map fused=n4", {},
     [f"EXACT {_ONE}", "EXACT n5 on what the functions of the maps above give -n4"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes(RULE, words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group == f"{RULE}@{rewrite.node}" and not rewrite.needs for rewrite in rewrites)


def test_note_says_that_both_maps_share_the_parallel_calls() -> None:
    (rewrite,) = check_proposes(RULE, f"range 9 | map 4 | {_NEXT} 4")
    assert "the merged map has 4 in total" in rewrite.notes[0]


def _pick(words: str, *wanted: tuple[str, str]) -> str:
    described = context(words)
    rewrites, _ = propose_all(described)
    chosen = [next(one for one in rewrites if (one.rule, one.node) == pair) for pair in wanted]
    return find_conflict(described, sorted(chosen, key=rewrites.index))


def test_conflicts_with_rewrites_of_either_map() -> None:
    words = "range 90 elements=90 bytes=8 cpu=1us | map bytes=8 cpu=1ms rows=exact | map fused=n1 rows=exact bytes=8"
    assert _pick(f"{words} | batch 3", (RULE, "n2")) == ""
    assert "fused into it" in _pick(f"{words} | batch 3", (RULE, "n2"), ("vectorize-map", "n2"))
    assert "fused into it" in _pick(f"{words} | batch 3", (RULE, "n2"), ("vectorize-map", "n1"))
    assert "names operator n1" in _pick(f"{words} | batch 3", (RULE, "n2"), ("parallel-map", "n1"))
    assert _pick(f"{words} | batch 3", (RULE, "n2"), ("parallel-map", "n2")) == ""
    between = f"{words} | filter early=1"
    assert "There is an operator between n2" in _pick(between, (RULE, "n2"), ("filter-early", "n3"))
    together = f"{words} | filter early=2"
    assert _pick(together, (RULE, "n2"), ("filter-early", "n3")) == ""


def test_conflicts_with_other_edits_of_the_fused_map() -> None:
    described = context(f"range 9 | map | {_NEXT}")
    (rewrite,) = check_proposes(RULE, f"range 9 | map | {_NEXT}")
    form = Rewrite("free", "n1", Safety.EXACT, (ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d"),), "Does it.")
    assert "by another edit" in find_conflict(described, [form, rewrite])
    between = Rewrite("free", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1"),), "Does it.")
    assert "There is an operator between n2" in find_conflict(described, [between, rewrite])


def test_fused_operator_records_the_functions_it_calls() -> None:
    described = context(f"range 9 | map | {_NEXT} | batch 2")
    (rewrite,) = check_proposes(RULE, f"range 9 | map | {_NEXT} | batch 2")
    edited = apply_edits(described.pipeline, rewrite.edits)
    assert [node.id for node in edited] == ["n0", "n2", "n3"]
    function = edited["n2"].function
    assert function is not None and function.first == ("n1",) and function.digest == "fused"
    assert not function.called_on_batches
    assert [edit for edit in rewrite.edits if isinstance(edit, Remove)] == [Remove("n1")]
