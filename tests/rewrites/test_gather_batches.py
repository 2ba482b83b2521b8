"""`gather-batches`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Move, ReplaceSource, Rewrite, Safety
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context
from tests.rewrites.outline import outlines

_ARRAYS = "from_tensor_slices gathers elements=90 bytes=4k"
_ROWS = "map rows=exact"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # Nothing to gather, or no batch.
    (_ARRAYS, {}, None),
    (f"{_ARRAYS} | shuffle 9", {}, None),
    (f"{_ARRAYS} | batch 1", {}, None),
    (f"{_ARRAYS} | batch None", {}, None),
    (f"{_ARRAYS} | padded_batch 2", {}, None),
    (f"{_ARRAYS} | ragged_batch 2", {}, None),
    (f"{_ARRAYS} | window 2", {}, None),
    # Other sources, and arrays with an unknown number of rows.
    ("range 90 elements=90 | batch 2", {}, None),
    ("from_tensors elements=1 | batch 2", {}, None),
    ("TFRecordDataset elements=90 | batch 2", {}, None),
    ("from_generator elements=90 | batch 2", {}, None),
    ("from_tensor_slices elements=90 | batch 2", {}, None),
    ("from_tensor_slices gathers | batch 2", {}, None),
    ("from_tensor_slices gathers elements=0 | batch 2", {}, None),
    ("from_tensor_slices gathers=no elements=90 | batch 2", {}, "sparse or ragged"),
    # An operator between them needs the rows, or turns them into other elements.
    (f"{_ARRAYS} | filter | batch 2", {}, None),
    (f"{_ARRAYS} | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | interleave | map | batch 2", {}, None),
    (f"{_ARRAYS} | unbatch | batch 2", {}, None),
    (f"{_ARRAYS} | batch 2 | batch 2", {"expected": 1}, None),
    (f"{_ARRAYS} | window 2 | batch 2", {}, None),
    (f"{_ARRAYS} | scan | batch 2", {}, None),
    (f"{_ARRAYS} | take_while | batch 2", {}, None),
    (f"{_ARRAYS} | unique | batch 2", {}, None),
    (f"{_ARRAYS} | group_by_window | batch 2", {}, None),
    (f"{_ARRAYS} | snapshot | batch 2", {}, None),
    (f"{_ARRAYS} | ignore_errors | batch 2", {}, None),
    (f"{_ARRAYS} | enumerate | batch 2", {}, None),
    (f"{_ARRAYS} | opaque | batch 2", {}, None),
    (f"{_ARRAYS} | cache filename=/tmp/c | batch 2", {}, "a file"),
    (f"{_ARRAYS} | copy_to_device | batch 2", {}, None),
    # A map that stays upstream of the batch.
    (f"{_ARRAYS} | map | batch 2", {}, "unknown how its function behaves on batches"),
    (f"{_ARRAYS} | map rows=no | batch 2", {}, "MatMul mixes rows"),
    (f"{_ARRAYS} | {_ROWS} random | shuffle 9 | batch 2", {}, "once per element"),
    (f"{_ARRAYS} | {_ROWS} python | batch 2", {}, "runs Python"),
    (f"{_ARRAYS} | {_ROWS} variable=w | batch 2", {}, "reads the variable w"),
    (f"{_ARRAYS} | {_ROWS} print | batch 2", {}, "PrintV2"),
    (f"{_ARRAYS} | {_ROWS} raises | batch 2", {}, "validates values"),
    (f"{_ARRAYS} | {_ROWS} | batch 2 | ignore_errors", {}, "ignore_errors"),
    (f"{_ARRAYS} | map random | {_ROWS} | batch 2", {}, "once per element"),
    (f"{_ARRAYS} | {_ROWS} | cache | batch 2", {}, "is between a map and the batch"),
    (f"{_ARRAYS} | {_ROWS} | with_options | batch 2", {}, "is between a map and the batch"),
    # The arrays, or what is made of them, have other readers.
    (f"a = {_ARRAYS}; b = a | batch 2; c = a | batch 3; zip b c", {}, None),
    (f"a = {_ARRAYS} | shuffle 9; b = a | batch 2; c = a | batch 3; zip b c", {}, None),
    (f"a = {_ARRAYS}; b = range 9; zip a b | batch 2", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    if fields.pop("expected", 0):  # the batch nearest to the arrays may gather; the one downstream may not
        (only,) = check_proposes("gather-batches", words, **fields)
        assert [edit.after for edit in only.edits if isinstance(edit, ReplaceSource)] == ["n1"]
        return
    silences = check_no_proposal("gather-batches", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"{_ARRAYS} | batch 2", {}, ["EXACT n0 numbers, gather>n1"]),
    (f"{_ARRAYS} | shuffle 9 | batch 2 drop_remainder=True", {}, ["EXACT n0 numbers, gather>n2"]),
    (f"{_ARRAYS} | shuffle 9 seed=1,2 | repeat | batch 2", {"randomness_fixed": True},
     ["EXACT n0 numbers, gather>n3"]),
    (f"{_ARRAYS} | cache | shuffle 9 | batch 2", {}, ["EXACT n0 numbers, gather>n3"]),
    (f"{_ARRAYS} | with_options | prefetch 2 | batch 2", {}, ["EXACT n0 numbers, gather>n3"]),
    (f"{_ARRAYS} | take 5 | skip 1 | shard 2 index=0 | batch 2", {}, ["EXACT n0 numbers, gather>n4"]),
    (f"{_ARRAYS} | batch 2 | map random", {}, ["EXACT n0 numbers, gather>n1"]),
    (f"{_ARRAYS} | batch 2 | cache filename=/tmp/c", {}, ["EXACT n0 numbers, gather>n1"]),
    (f"{_ARRAYS} | {_ROWS} | batch 2", {}, ["EXACT n1>n2 n1 on batches n0 numbers, gather>n2"]),
    (f"{_ARRAYS} | shuffle 9 | {_ROWS} | {_ROWS} | batch 2", {},
     ["EXACT n3>n4 n3 on batches n2>n4 n2 on batches n0 numbers, gather>n4"]),
    (f"{_ARRAYS} | map rows=Exp | shuffle 9 | batch 2", {},
     ["APPROXIMATE n1>n3 n1 on batches n0 numbers, gather>n3"]),
    (f"{_ARRAYS} | {_ROWS} 2 deterministic=False | batch 2", {},
     ["REORDERS n1>n2 n1 on batches n0 numbers, gather>n2"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("gather-batches", words, **fields)
    assert outlines(rewrites) == expected
    assert not rewrites[0].needs


def test_shuffle_buffers_hold_indices_instead_of_mapped_rows() -> None:
    words = "from_tensor_slices gathers elements=90 bytes=1k | shuffle 50 | map rows=exact bytes=3k | shuffle 200"
    (one,) = check_proposes("gather-batches", f"{words} | batch 3")
    assert one.predicted_bytes == 90 * (8 - 3_000)


def _of(words: str, rule: str) -> Any:
    rewrites, _ = propose_all(context(words))
    return next(rewrite for rewrite in rewrites if rewrite.rule == rule)


def test_only_one_rule_moves_maps_downstream_of_the_batch() -> None:
    words = f"{_ARRAYS} | shuffle 9 | {_ROWS} cpu=1ms | batch 3"
    gathered, vectorized = _of(words, "gather-batches"), _of(words, "vectorize-map")
    assert "exclude each other" in find_conflict(context(words), [gathered, vectorized])
    assert find_conflict(context(words), [_of(words, "prefetch"), gathered]) == ""


def test_operators_that_need_rows_conflict_with_gathering() -> None:
    words = f"{_ARRAYS} | batch 2 | map"
    gathered = _of(words, "gather-batches")
    above = Rewrite("a-rule", "n2", Safety.EXACT, (Move("n2", "n0"),), "")
    assert find_conflict(context(words), [gathered]) == find_conflict(context(words), [above]) == ""
    assert "map would receive row indices" in find_conflict(context(words), [above, gathered])
