"""`split-map`: where it is proposed and where not, and how it combines with other rewrites."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Insert, Safety, apply_edits
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.rewrites import find_rule, propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

NAME = "split-map"
_SOURCE = "TFRecordDataset elements=100 bytes=1k"
_DRAWS = "map random cpu=10ms draws=2k head=90%"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # It was not probed, or there is nothing to split.
    (_SOURCE, {}, None),
    (f"{_SOURCE} | map", {}, None),
    (f"{_SOURCE} | map random", {}, None),
    (f"{_SOURCE} | map unknown", {}, None),
    (f"{_SOURCE} | filter random", {}, None),
    (f"{_SOURCE} | flat_map random", {}, None),
    # The part before the draws cannot be split off.
    (f"{_SOURCE} | map random draws=no", {}, "has no fixed shape"),
    (f"{_SOURCE} | {_DRAWS} python", {}, "runs Python"),
    (f"{_SOURCE} | {_DRAWS} python_random variable=state", {}, "reads the variable state"),
    (f"{_SOURCE} | {_DRAWS} variable=w", {"trained_variables": frozenset()}, "reads the variable w"),
    (f"{_SOURCE} | {_DRAWS} writes", {}, "writes a variable"),
    (f"{_SOURCE} | {_DRAWS} table", {}, "table"),
    (f"{_SOURCE} | {_DRAWS} print", {}, "PrintV2"),
    (f"{_SOURCE} | {_DRAWS} 2 deterministic=False", {}, "overtake each other"),
    # Its result must not be cached, or need not be.
    (f"{_SOURCE} | {_DRAWS}", {"partial_read": True}, "stops before the end of the data"),
    (
        f"list_files elements=9 | interleave elements=100 bytes=1k | {_DRAWS}",
        {},
        "the order upstream differs in each epoch",
    ),
    (f"{_SOURCE} | shuffle 9 | {_DRAWS}", {"epochs": 2}, "the order upstream differs in each epoch"),
    (f"{_SOURCE} | shuffle 9 | filter | {_DRAWS}", {}, "the order upstream differs in each epoch"),
    (f"from_generator | {_DRAWS}", {}, "it runs Python"),
    (f"{_SOURCE} | map random | {_DRAWS}", {}, "draws random numbers"),
    (f"{_SOURCE} | repeat | {_DRAWS}", {}, "repeats endlessly"),
    (f"{_SOURCE} | {_DRAWS} | take 5", {}, "may stop reading before the end"),
    (f"{_SOURCE} | {_DRAWS} | cache", {}, "stores elements here"),
    (f"TFRecordDataset bytes=1k | {_DRAWS}", {}, "number of elements is unknown"),
    (f"{_SOURCE} | {_DRAWS} | batch 4", {"epochs": 1}, "reads its data once"),
    (f"{_SOURCE} | {_DRAWS} | batch 4", {"memory_limit_bytes": 150e3}, "more than the memory limit"),
    # It costs too little, or was not measured.
    (f"{_SOURCE} | {_DRAWS}", {"profiled": False}, "unknown"),
    (f"{_SOURCE} | map random draws=2k", {}, "unknown"),
    (f"{_SOURCE} | map random cpu=10ms draws=2k head=5%", {}, "less than a tenth"),
    (f"{_SOURCE} | map random cpu=1ms draws=2k head=90% | map cpu=20ms", {}, "less than a tenth"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])
    assert why is not None or not silences


_CUT = "n1 cut in front of its first random draw"

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"{_SOURCE} | {_DRAWS} | batch 4", {}, [f"STATISTICAL {_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} seeded AUTOTUNE | shuffle 9 | repeat", {},
     [f"STATISTICAL {_CUT} n2>head@n1 cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} | prefetch 2 | map | shuffle 9 | batch 4", {},
     [f"STATISTICAL {_CUT} n4>head@n1 cache(filename=)>head@n1"]),
    # A shuffle stays behind what it must not pass.
    (f"{_SOURCE} | {_DRAWS} | batch 4 | shuffle 9", {}, [f"STATISTICAL {_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} | map python | shuffle 9", {}, [f"STATISTICAL {_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} raises reads_file | batch 4", {"epochs": 2, "randomness_fixed": True},
     [f"STATISTICAL {_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} asserts | batch 4", {}, [f"STATISTICAL {_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | shuffle 9 | {_DRAWS} | batch 4", {},
     ["STATISTICAL n2 cut in front of its first random draw n1>head@n2 cache(filename=)>head@n2"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert outlines(check_proposes(NAME, words, **fields)) == expected


def test_table_without_proposals_is_longer() -> None:
    assert len(SILENT) > len(FIRES)


def _edited(words: str) -> Pipeline:
    described = context(words)
    (rewrite,) = check_proposes(NAME, words)
    return apply_edits(described.pipeline, rewrite.edits)


def test_both_parts_are_maps() -> None:
    edited = _edited(f"{_SOURCE} | {_DRAWS} 2 | batch 4")
    assert [node.id for node in edited] == ["n0", "head@n1", "cache@head@n1", "n1", "n2"]
    head, tail = edited["head@n1"], edited["n1"]
    assert head.function is not None and tail.function is not None
    assert (head.function.form, tail.function.form) == (FunctionVariant.HEAD, FunctionVariant.TAIL)
    assert not head.function.random and tail.function.random
    assert head.argument("num_parallel_calls") == tail.argument("num_parallel_calls") == 2
    assert head.element_bytes == 2000 and head.location is None


def test_cached_head_is_priced_and_described() -> None:
    (rewrite,) = check_proposes(NAME, f"{_SOURCE} | {_DRAWS} | batch 4")
    assert rewrite.predicted_bytes == 100 * 2000
    assert "100 elements" in rewrite.summary and "90% of the work" in rewrite.summary
    assert "901 ms of CPU time" in rewrite.notes[0]  # and of the upstream reader


def test_parts_use_the_parallelism_of_other_rewrites() -> None:
    described = context(f"{_SOURCE} | {_DRAWS} | batch 4")
    rewrites, _ = propose_all(described)
    rules = [one.rule for one in rewrites]
    assert rules.index(NAME) > max(place for place, rule in enumerate(rules) if rule == "parallel-map")
    calls = next(one for one in rewrites if one.rule == "parallel-map")
    split = next(one for one in rewrites if one.rule == NAME)
    assert find_conflict(described, [calls, split]) == ""
    edited = apply_edits(described.pipeline, [*calls.edits, *split.edits])
    assert edited["head@n1"].argument("num_parallel_calls") == edited["n1"].argument("num_parallel_calls")
    assert edited["n1"].argument("num_parallel_calls") is not None


def test_conflicts_with_other_rewrites_of_the_map() -> None:
    described = context(f"{_SOURCE} | map rows=exact draws=2k crop=yes random calls=DecodeJpeg cpu=1ms head=90%")
    (split,) = proposals(find_rule(NAME), described)[0]
    (crop,) = proposals(find_rule("decode-and-crop"), described)[0]
    assert "split in two" in find_conflict(described, [crop, split])
    cached = [one for one in propose_all(described)[0] if one.rule == "cache"]
    assert cached and all("exclude each other" in find_conflict(described, [one, split]) for one in cached)
    behind = Insert("n1", "cache", "cache@n1", {"filename": ""})
    assert "draws random" in find_conflict(described, [type(split)("x", "n1", Safety.STATISTICAL, (behind,), "x.")])
