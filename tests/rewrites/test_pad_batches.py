"""`pad-batches`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Safety
from pipetune.rewrites import find_rule
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

NAME = "pad-batches"
_PADS = "map pads=7"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No map pads what is batched.
    ("range 9", {}, None),
    ("range 9 | map | batch 2", {}, None),
    ("range 9 | map unknown | batch 2", {}, None),
    (f"range 9 | {_PADS}", {}, None),
    (f"range 9 | {_PADS} | shuffle 5", {}, None),
    (f"range 9 | batch 2 | {_PADS}", {}, None),
    ("range 9 | filter pads=7 | batch 2", {}, None),
    # Not with another operator of a batch.
    (f"range 9 | {_PADS} | padded_batch 2", {}, None),
    (f"range 9 | {_PADS} | ragged_batch 2", {}, None),
    (f"range 9 | {_PADS} | batch 1", {}, None),
    (f"range 9 | {_PADS} | batch 2 num_parallel_calls=3", {}, "has parallel calls"),
    # Something else gets the padded elements.
    (f"range 9 | {_PADS} | map | batch 2", {}, None),
    (f"range 9 | {_PADS} | filter | batch 2", {}, None),
    (f"range 9 | {_PADS} | cache | batch 2", {}, None),
    (f"range 9 | {_PADS} | window 3 | batch 2", {}, None),
    (f"range 9 | {_PADS} | unique | batch 2", {}, None),
    (f"a = range 9 | {_PADS}; b = range 9; zip a b | batch 2", {}, None),
    (f"a = range 9 | {_PADS}; b = a | batch 2; c = a | batch 3; concatenate b c", {}, None),
    # The function does something else, too.
    ("range 9 | map pads=no | batch 2", {}, "does more than pad"),
    ("range 9 | map pads=no | shuffle 4 | repeat | batch 2", {}, "does more than pad"),
    (f"range 9 | {_PADS} python | batch 2", {}, "runs Python"),
    (f"range 9 | {_PADS} random | batch 2", {}, "draws random numbers"),
    (f"range 9 | {_PADS} print | batch 2", {}, "PrintV2"),
    (f"range 9 | {_PADS} variable=w | batch 2", {}, "reads the variable w"),
    (f"range 9 | {_PADS} | batch 2 | ignore_errors", {}, "drop a whole batch"),
    (f"range 9 | {_PADS} | ignore_errors | batch 2", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


_AS_BATCH = "padded_batch(batch_size=2,padded_shapes=[7],drop_remainder="

FIRES: list[tuple[str, list[str]]] = [
    (f"range 9 | {_PADS} | batch 2", [f"EXACT n2 {_AS_BATCH}False) -n1"]),
    (f"range 9 | {_PADS} raises 4 | batch 2", [f"EXACT n2 {_AS_BATCH}False) -n1"]),
    (f"range 9 | map random | {_PADS} | shuffle 5 | repeat | batch 2", [f"EXACT n5 {_AS_BATCH}False) -n2"]),
    (
        f"range 9 | {_PADS} | take 5 | skip 1 | prefetch 2 | batch 2 drop_remainder=True",
        [f"EXACT n5 {_AS_BATCH}True) -n1"],
    ),
    (f"range 9 | {_PADS} AUTOTUNE deterministic=False | shard 2 | batch 2", [f"EXACT n3 {_AS_BATCH}False) -n1"]),
]


@pytest.mark.parametrize(("words", "expected"), FIRES)
def test_proposed_edits(words: str, expected: list[str]) -> None:
    assert outlines(check_proposes(NAME, words)) == expected


def test_shuffle_buffer_then_holds_elements_without_padding() -> None:
    (rewrite,) = check_proposes(NAME, f"range 9 bytes=100 elements=50 | {_PADS} bytes=1k | shuffle 20 | batch 2")
    assert rewrite.safety is Safety.EXACT and rewrite.predicted_bytes == -20 * 900
    assert "train.py:4" in rewrite.summary and "train.py:2" in rewrite.summary


def test_functions_merged_into_the_padding_map_are_not_lost() -> None:
    described = context(f"range 9 | map | {_PADS} fused=n1 | batch 2")
    (pad,), (fuse,) = (proposals(find_rule(name), described)[0] for name in (NAME, "map-fusion"))
    assert find_conflict(described, [pad]) == find_conflict(described, [fuse]) == ""
    assert "functions of other maps" in find_conflict(described, [fuse, pad])
    assert find_conflict(described, [pad, fuse])


def test_only_one_rewrite_changes_what_the_batch_gets() -> None:
    described = context(f"range 9 | {_PADS} rows=exact | batch 2")
    (pad,), (vectorize,) = (proposals(find_rule(name), described)[0] for name in (NAME, "vectorize-map"))
    assert "exclude each other" in find_conflict(described, [vectorize, pad])
