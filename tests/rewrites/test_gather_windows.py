"""`gather-windows`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Insert, ReplaceSource, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.functions import RowWindows
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context
from tests.rewrites.outline import outlines

_ARRAYS = "from_tensor_slices gathers=windows elements=90 bytes=8"
_SERIES = f"{_ARRAYS} | window 3 | flat_map bytes=24"
_ROWS = "map rows=exact"
_UTILITY = """
    numbers = range 90; starts = from_tensors | repeat; rows = from_tensors | repeat
    each = zip numbers starts | map AUTOTUNE
    pairs = zip rows each
    windows = pairs | map AUTOTUNE elements=90 bytes=24
    windows | prefetch elements=90 bytes=24 gathers=series
"""  # as built by keras.utils.timeseries_dataset_from_array
_SINGLY = _UTILITY.strip()

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No batch to gather for, or no windows built in this way.
    (_SERIES, {}, None),
    (f"{_SERIES} | shuffle 9", {}, None),
    (f"{_SERIES} | batch 1", {}, None),
    (f"{_SERIES} | padded_batch 2", {}, None),
    ("from_tensor_slices gathers elements=90 | batch 2", {}, None),
    (f"{_ARRAYS} | window 3 | batch 2", {}, None),
    (f"{_ARRAYS} | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | window 3 | interleave | batch 2", {}, None),
    (f"{_ARRAYS} | window 3 | shuffle 9 | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | shuffle 9 | window 3 | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | map rows=exact | window 3 | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | cache | window 3 | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | take 50 | window 3 | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | repeat | window 3 | flat_map | batch 2", {}, None),
    (f"{_ARRAYS} | window 3 | map | flat_map | batch 2", {}, None),
    ("range 90 elements=90 | window 3 | flat_map | batch 2", {}, None),
    ("TextLineDataset elements=90 | window 3 | flat_map | batch 2", {}, None),
    # The flat_map does something else, or the rows cannot be gathered.
    (
        "from_tensor_slices gathers elements=90 | window 3 | flat_map | batch 2",
        {},
        "does not just batch each window whole",
    ),
    ("from_tensor_slices gathers=no elements=90 | window 3 | flat_map | batch 2", {}, "sparse or ragged"),
    ("from_tensor_slices elements=90 | window 3 | flat_map | batch 2", {}, None),
    ("from_tensor_slices gathers=windows | window 3 | flat_map | batch 2", {}, None),
    # An operator between them needs the windows themselves.
    (f"{_SERIES} | filter | batch 2", {}, None),
    (f"{_SERIES} | scan | batch 2", {}, None),
    (f"{_SERIES} | enumerate | batch 2", {}, None),
    (f"{_SERIES} | unbatch | batch 2", {}, None),
    (f"{_SERIES} | map rows=no | batch 2", {}, "MatMul mixes rows"),
    (f"{_SERIES} | {_ROWS} random | batch 2", {}, "once per element"),
    (f"{_SERIES} | {_ROWS} python | shuffle 9 | batch 2", {}, "runs Python"),
    (f"{_SERIES} | {_ROWS} | cache | batch 2", {}, "is between a map and the batch"),
    (f"{_SERIES} | cache filename=/tmp/c | batch 2", {}, "a file"),
    (f"{_SERIES} | ignore_errors | batch 2", {}, None),
    # Windows taken by their indices, one at a time.
    (_SINGLY, {}, None),
    (f"{_SINGLY} | shuffle 9", {}, None),
    (f"{_SINGLY} | batch 1", {}, None),
    (f"{_SINGLY} | padded_batch 2", {}, None),
    (f"{_SINGLY} | filter | batch 2", {}, None),
    (f"{_SINGLY} | unbatch | batch 2", {}, None),
    (f"{_SINGLY} | interleave | batch 2", {}, None),
    (f"{_SINGLY} | window 3 | flat_map | batch 2", {}, "does not just batch each window whole"),
    (f"{_SINGLY} | map | batch 2", {}, "unknown how its function behaves on batches"),
    (f"{_SINGLY} | {_ROWS} random | batch 2", {}, "once per element"),
    (f"{_SINGLY} | {_ROWS} | cache | batch 2", {}, "is between a map and the batch"),
    (f"{_SINGLY} | cache filename=/tmp/c | batch 2", {}, "a file"),
    (f"{_SINGLY} | batch 2".replace("gathers=series", ""), {}, None),
    (f"{_SINGLY} | batch 2".replace("gathers=series", "gathers=no"), {}, None),
    (f"{_SINGLY} | batch 2".replace("elements=90", ""), {}, None),
    (f"{_SINGLY.replace('windows |', 'a = windows |')}; b = a | batch 2; c = a | batch 3; zip b c", {}, None),
    # The windows have other readers.
    (f"a = {_SERIES}; b = a | batch 2; c = a | batch 3; zip b c", {}, None),
    (f"a = {_ARRAYS} | window 3; b = a | flat_map | batch 2; c = a | flat_map | batch 3; zip b c", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("gather-windows", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])
    if " window " in words:
        check_no_proposal("gather-batches", words, **fields)


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"{_SERIES} | batch 2", {}, ["EXACT -n2 -n1 n0 numbers, gather>n3"]),
    (f"{_SERIES} | shuffle 9 | repeat | batch 2", {}, ["EXACT -n2 -n1 n0 numbers, gather>n5"]),
    (f"{_SERIES} | cache | shuffle 9 | batch 2", {}, ["EXACT -n2 -n1 n0 numbers, gather>n5"]),
    (f"{_SERIES} | {_ROWS} | shuffle 9 | batch 2 | prefetch 2", {},
     ["EXACT n3>n5 n3 on batches -n2 -n1 n0 numbers, gather>n5"]),
    (f"{_SINGLY} | batch 2", {}, ["EXACT n9 numbers, gather>n10"]),
    (f"{_SINGLY} | shuffle 9 | batch 2", {}, ["EXACT n9 numbers, gather>n11"]),
    (f"{_SINGLY} | shuffle 9 | {_ROWS} | batch 2 | prefetch 2", {},
     ["EXACT n11>n12 n11 on batches n9 numbers, gather>n12"]),
    (f"{_SINGLY} | batch 2", {"options": {"deterministic": False}}, ["REORDERS n9 numbers, gather>n10"]),
    (f"{_SINGLY} | batch 2 drop_remainder=True", {"options": {"deterministic": False}},
     ["STATISTICAL n9 numbers, gather>n10"]),
    (f"{_SERIES} | map rows=Exp | batch 2", {}, ["APPROXIMATE n3>n4 n3 on batches -n2 -n1 n0 numbers, gather>n4"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("gather-windows", words, **fields)
    assert outlines(rewrites) == expected
    edit = rewrites[0].edits[-1]
    assert isinstance(edit, ReplaceSource) and edit.windows == (None if _SINGLY in words else RowWindows(3, 1, 1))
    check_no_proposal("gather-batches", words, **fields)


def test_shuffle_buffers_hold_indices_instead_of_windows() -> None:
    (one,) = check_proposes("gather-windows", f"{_SERIES} | shuffle 50 | batch 2")
    assert one.predicted_bytes == 50 * (8 - 24)


def test_operators_that_built_the_windows_are_removed() -> None:
    (one,) = check_proposes("gather-windows", f"{_SINGLY} | shuffle 50 | batch 2")
    edited = apply_edits(context(f"{_SINGLY} | shuffle 50 | batch 2").pipeline, one.edits)
    assert [node.op for node in edited] == ["range", "shuffle", "batch", "map"] and edited.nodes[0].id == "n9"
    assert one.predicted_bytes == 50 * (8 - 24)
    assert not any("flat_map" in note for note in one.notes)


def test_rewrites_of_removed_operators_conflict() -> None:
    described = context(f"{_SINGLY} | batch 2")
    (gathered,) = check_proposes("gather-windows", f"{_SINGLY} | batch 2")
    faster = Rewrite("parallel-map", "n8", Safety.EXACT, (SetArgument("n8", "num_parallel_calls", 2),), "")
    larger = Rewrite("prefetch", "n9", Safety.EXACT, (SetArgument("n9", "buffer_size", 2),), "")
    put = Rewrite("prefetch", "n8", Safety.EXACT, (Insert("n8", "prefetch", "prefetch@n8", {"buffer_size": 2}),), "")
    for other in (faster, larger, put):
        assert find_conflict(described, [other]) == ""
        assert "removed together with the operators that built the rows" in find_conflict(described, [other, gathered])
    assert find_conflict(described, [gathered, faster]) and find_conflict(described, [gathered, put])


def test_cache_of_the_windows_conflicts() -> None:
    described = context(f"{_SERIES} | batch 2")
    (gathered,) = check_proposes("gather-windows", f"{_SERIES} | batch 2")
    cached = Rewrite("cache", "n2", Safety.EXACT, (Insert("n2", "cache", "cache@n2", {"filename": ""}),), "")
    assert find_conflict(described, [gathered]) == find_conflict(described, [cached]) == ""
    assert "cache would stay in place while n2 is moved" in find_conflict(described, [cached, gathered])


@pytest.mark.parametrize(
    ("rows", "windows", "starts"),
    [
        (10, RowWindows(3, 1, 1), [0, 1, 2, 3, 4, 5, 6, 7]),
        (10, RowWindows(3, 2, 1), [0, 2, 4, 6]),
        (10, RowWindows(3, 4, 3), [0]),
        (10, RowWindows(3, 3, 3), [0, 3]),
        (10, RowWindows(10, 1, 1), [0]),
        (2, RowWindows(3, 1, 1), []),
    ],
)
def test_window_starts(rows: int, windows: RowWindows, starts: list[int]) -> None:
    assert list(windows.window_starts(rows)) == starts
