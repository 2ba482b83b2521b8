"""`shuffle-small`: where it is proposed and where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.rewrites.rule import RuleContext
from pipetune.rewrites.shuffle_repeat import SHUFFLE_SMALL_RULE
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

_SMALL = "TFRecordDataset elements=100 bytes=1k"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    ("range 9 | batch 2", {}, None),
    ("range 9 | shuffle 9 | batch 2", {}, None),
    (f"{_SMALL} | map bytes=1k | shuffle 9", {}, None),  # no smaller place
    (f"{_SMALL} | map bytes=10 | shuffle 9", {}, None),  # the map makes elements smaller
    ("TFRecordDataset | map | shuffle 9", {}, "unknown whether"),
    (f"{_SMALL} | map bytes=9k | shuffle 9", {"profiled": False}, "unknown whether"),
    (f"{_SMALL} | map python bytes=9k | shuffle 9", {}, "runs Python"),
    (f"{_SMALL} | map variable=w bytes=9k | shuffle 9", {}, "reads the variable w"),
    (f"{_SMALL} | map variable=w bytes=9k | shuffle 9", {"trained_variables": frozenset()}, "variable w"),
    (f"{_SMALL} | map writes bytes=9k | shuffle 9", {}, "writes a variable"),
    (f"{_SMALL} | map table bytes=9k | shuffle 9", {}, "table"),
    (f"{_SMALL} | map print bytes=9k | shuffle 9", {}, "side effect"),
    (f"{_SMALL} | map unknown bytes=9k | shuffle 9", {}, "nothing is known"),
    (f"{_SMALL} | map bytes=9k | shuffle 9 | ignore_errors", {}, "ignore_errors"),
    (f"{_SMALL} | map bytes=9k | batch 2 | shuffle 9", {}, None),
    (f"{_SMALL} | flat_map bytes=9k | shuffle 9", {}, None),
    (f"{_SMALL} | interleave bytes=9k | shuffle 9", {}, None),
    (f"{_SMALL} | map bytes=9k | filter | shuffle 9", {}, None),
    (f"{_SMALL} | map bytes=9k | enumerate bytes=9k | shuffle 9", {}, None),
    (f"{_SMALL} | map bytes=9k | cache | shuffle 9", {}, None),
    (f"{_SMALL} | map bytes=9k | take 9 | shuffle 9", {}, None),
    (f"{_SMALL} | scan bytes=9k | shuffle 9", {}, None),
    (f"a = {_SMALL} | map bytes=9k; b = a | shuffle 9; c = a | batch 2; zip b c", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("shuffle-small", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"{_SMALL} | map bytes=9k | shuffle 9", {}, ["EXACT n2>n0"]),
    (f"{_SMALL} | map bytes=1k | map bytes=9k | shuffle 9", {}, ["EXACT n3>n1"]),  # no farther than it pays
    (f"{_SMALL} | map bytes=5k | map bytes=9k | shuffle 9", {}, ["EXACT n3>n0"]),
    (f"{_SMALL} | map bytes=5k | map bytes=2k | shuffle 9", {}, ["EXACT n3>n0"]),
    (f"{_SMALL} | map bytes=5k | prefetch 2 | shuffle 9", {}, ["EXACT n3>n0"]),
    (f"{_SMALL} | map variable=w bytes=5k | map bytes=9k | shuffle 9", {}, ["EXACT n3>n1"]),
    (f"{_SMALL} | map random bytes=9k | shuffle 9", {}, ["STATISTICAL n2>n0"]),
    (f"{_SMALL} | map seeded bytes=9k | shuffle 9 seed=1", {}, ["STATISTICAL n2>n0"]),
    (f"{_SMALL} | map 2 bytes=9k deterministic=False | shuffle 9", {}, ["EXACT n2>n0"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("A8.buffers")
def test_proposed_moves(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("shuffle-small", words, **fields)
    assert [line for line in outlines(rewrites) if "buffer_size" not in line] == expected
    assert all(rewrite.group == f"place@{rewrite.node}" and not rewrite.needs for rewrite in rewrites)


def test_buffer_grows_to_what_fits_in_the_same_memory() -> None:
    same, larger = check_proposes("shuffle-small", f"{_SMALL} | map bytes=4k | shuffle 20")
    assert same.notes[-1] == "The shuffle buffer still holds 20 of 100 elements."
    assert outlines([larger]) == ["REORDERS n2>n0 n2.buffer_size=80"]
    assert "grows from 20 elements to 80 of 100 elements, without taking more memory." in larger.notes[-1]
    assert larger.equal_is_enough and not same.equal_is_enough and larger.predicted_bytes == 0
    _, every = check_proposes("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle 20")
    assert outlines([every]) == ["REORDERS n2>n0 n2.buffer_size=100"] and "all 100 elements" in every.notes[-1]
    (only,) = check_proposes("shuffle-small", f"{_SMALL} | map bytes=1999 | shuffle 20")  # less than twice as many fit
    assert "still holds" in only.notes[-1]
    (only,) = check_proposes("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle 100")  # it holds all elements already
    assert only.notes[-1] == "The shuffle buffer still holds all 100 elements."
    for picker in ("take 50", "skip 5", "shard 2 index=0"):  # another order would select other elements
        (only,) = check_proposes("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle 20 | {picker}")
        assert "still holds" in only.notes[-1]
    _, unknown = check_proposes("shuffle-small", "TFRecordDataset bytes=1k | map bytes=9k | shuffle 20")
    assert unknown.notes[-1].endswith("to 180 elements, without taking more memory.")


@pytest.mark.mission("A8.buffers")
def test_predicted_bytes_shrink_by_what_the_maps_add() -> None:
    move, *_ = check_proposes("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle 50")
    assert move.predicted_bytes == 50 * (1_000 - 9_000)
    move, *_ = check_proposes("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle 5000")
    assert move.predicted_bytes == 100 * (1_000 - 9_000)  # no more than all elements


def _spread(described: RuleContext, **changes: Any) -> RuleContext:
    """The same pipeline, with the shuffle call at another place in the script."""
    nodes = tuple(
        replace(node, location=replace(node.location, **changes)) if node.op == "shuffle" and node.location else node
        for node in described.pipeline
    )
    return replace(described, pipeline=replace(described.pipeline, nodes=nodes))


@pytest.mark.parametrize(
    ("words", "fixed", "changes", "safety"),
    [
        ("shuffle 9", False, {"line": 90}, "EXACT"),
        ("shuffle 9", True, {}, "EXACT"),  # consecutive calls
        ("shuffle 9", True, {"line": 90}, "STATISTICAL"),
        ("shuffle 9", True, {"file": "other.py"}, "STATISTICAL"),
        ("shuffle 9", True, {"scope": "make"}, "STATISTICAL"),
        ("shuffle 9 seed=4", True, {"line": 90}, "EXACT"),
        ("shuffle 9 seed=87654321,4", True, {"line": 90}, "EXACT"),
        ("shuffle 9 seed=5,4", True, {"line": 90}, "STATISTICAL"),  # under a global seed it may have been drawn
    ],
)
def test_unseeded_shuffle_never_passes_another_draw(
    words: str, fixed: bool, changes: dict[str, Any], safety: str
) -> None:
    described = context(f"{_SMALL} | map bytes=9k | {words}", randomness_fixed=fixed)
    (move, *_), _ = proposals(SHUFFLE_SMALL_RULE, _spread(described, **changes))
    assert move.safety.name == safety
