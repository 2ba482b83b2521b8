"""`gather-batches` and `gather-windows`: where they are proposed and where not."""

from __future__ import annotations

import pytest

from pipetune.core.edits import Insert, Move, ReplaceSource, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.functions import RowWindows
from pipetune.rewrites.conflicts import find_conflict
from tests.rewrites.tables import Row, functions, proposal_test, rows, silent_test
from tests.rules import check_no_proposal, check_proposes, context, proposals

_ROWS = "map rows=exact"
_UNORDERED = {"options": {"deterministic": False}}
_BETWEEN = "is between a map and the batch"

_ARRAYS = "from_tensor_slices gathers elements=90 bytes=4k"

BATCHES_SILENT: list[Row] = [
    # Nothing to gather, or no batch.
    (f"{_ARRAYS} | [shuffle 9 or batch 1 or batch None or padded_batch 2 or ragged_batch 2 or window 2]", None),
    # Other sources, and arrays with an unknown number of rows.
    ("[range 90 or TFRecordDataset or from_generator or from_tensor_slices or from_tensors] elements=90 | batch 2",
     None),
    ("from_tensor_slices gathers[ or  elements=0] | batch 2", None),
    ("from_tensor_slices gathers=no elements=90 | batch 2", "sparse or ragged"),
    # An operator between them needs the rows, or turns them into other elements.
    (f"{_ARRAYS} | [filter or flat_map or interleave | map or unbatch or window 2 or take_while] | batch 2", None),
    (f"{_ARRAYS} | [scan or group_by_window or snapshot or ignore_errors or enumerate or opaque] | batch 2", None),
    (f"{_ARRAYS} | [copy_to_device or unique] | batch 2", None),
    (f"{_ARRAYS} | cache filename=/tmp/c | batch 2", "a file"),
    # A map that stays upstream of the batch.
    (f"{_ARRAYS} | map | batch 2", "unknown how its function behaves on batches"),
    (f"{_ARRAYS} | map rows=no | batch 2", "MatMul mixes rows"),
    (f"{_ARRAYS} | [{_ROWS} random | shuffle 9 or map random | {_ROWS}] | batch 2", "once per element"),
    *functions(f"{_ARRAYS} | {_ROWS} ? | batch 2", "python variable=w print raises"),
    (f"{_ARRAYS} | {_ROWS} | batch 2 | ignore_errors", "ignore_errors"),
    (f"{_ARRAYS} | {_ROWS} | [cache or with_options] | batch 2", _BETWEEN),
    # The arrays, or what is made of them, have other readers.
    (f"a = {_ARRAYS}[ or  | shuffle 9]; b = a | batch 2; c = a | batch 3; zip b c", None),
    (f"a = {_ARRAYS}; b = range 9; zip a b | batch 2", None),
]  # fmt: skip

BATCHES_FIRES: list[Row] = [
    (f"{_ARRAYS} | batch 2[ or  | map random or  | cache filename=/tmp/c or  | batch 2]",
     ["EXACT n0 numbers, gather>n1"]),
    (f"{_ARRAYS} | shuffle 9 | batch 2 drop_remainder=True", ["EXACT n0 numbers, gather>n2"]),
    (f"{_ARRAYS} | cache | shuffle 9 | with_options | prefetch 2 | take 5 | skip 1 | shard 2 index=0 | batch 2",
     ["EXACT n0 numbers, gather>n8"]),
    (f"{_ARRAYS} | shuffle 9 | {_ROWS} | {_ROWS} | batch 2",
     ["EXACT n3>n4 n3 on batches n2>n4 n2 on batches n0 numbers, gather>n4"]),
    (f"{_ARRAYS} | map rows=Exp | shuffle 9 | batch 2", ["APPROXIMATE n1>n3 n1 on batches n0 numbers, gather>n3"]),
    (f"{_ARRAYS} | {_ROWS} 2 deterministic=False | batch 2", ["REORDERS n1>n2 n1 on batches n0 numbers, gather>n2"]),
]  # fmt: skip

_SERIES_ARRAYS = "from_tensor_slices gathers=windows elements=90 bytes=8"
_SERIES = f"{_SERIES_ARRAYS} | window 3 | flat_map bytes=24"
_SINGLY = """numbers = range 90; starts = from_tensors | repeat; rows = from_tensors | repeat
    each = zip numbers starts | map AUTOTUNE
    pairs = zip rows each
    windows = pairs | map AUTOTUNE elements=90 bytes=24
    windows | prefetch elements=90 bytes=24 gathers=series"""
"""As built by `keras.utils.timeseries_dataset_from_array`: windows taken by their indices, one at a time."""

WINDOWS_SILENT: list[Row] = [
    # No batch to gather for, or no windows built in this way.
    (f"{_SERIES} | [shuffle 9 or batch 1 or padded_batch 2]", None),
    ("from_tensor_slices gathers elements=90 | batch 2", None),
    (f"{_SERIES_ARRAYS} | [window 3 or flat_map or window 3 | interleave] | batch 2", None),
    (f"{_SERIES_ARRAYS} | window 3 | [shuffle 9 or map] | flat_map | batch 2", None),
    (f"{_SERIES_ARRAYS} | [shuffle 9 or {_ROWS} or cache or take 50 or repeat] | window 3 | flat_map | batch 2", None),
    ("[range 90 or TextLineDataset] elements=90 | window 3 | flat_map | batch 2", None),
    # The flat_map does something else, or the rows cannot be gathered.
    ("from_tensor_slices gathers elements=90 | window 3 | flat_map | batch 2", "does not just batch each window whole"),
    ("from_tensor_slices gathers=no elements=90 | window 3 | flat_map | batch 2", "sparse or ragged"),
    ("from_tensor_slices [elements=90 or gathers=windows] | window 3 | flat_map | batch 2", None),
    # An operator between them needs the windows themselves.
    (f"{_SERIES} | [filter or scan or enumerate or unbatch or ignore_errors] | batch 2", None),
    (f"{_SERIES} | map rows=no | batch 2", "MatMul mixes rows"),
    (f"{_SERIES} | {_ROWS} random | batch 2", "once per element"),
    (f"{_SERIES} | {_ROWS} python | shuffle 9 | batch 2", "runs Python"),
    (f"{_SERIES} | {_ROWS} | cache | batch 2", _BETWEEN),
    (f"{_SERIES} | cache filename=/tmp/c | batch 2", "a file"),
    # The same for windows taken one at a time.
    (f"{_SINGLY} | [shuffle 9 or batch 1 or padded_batch 2]", None),
    (f"{_SINGLY} | [filter or unbatch or interleave] | batch 2", None),
    (f"{_SINGLY} | window 3 | flat_map | batch 2", "does not just batch each window whole"),
    (f"{_SINGLY} | map | batch 2", "unknown how its function behaves on batches"),
    (f"{_SINGLY} | {_ROWS} random | batch 2", "once per element"),
    (f"{_SINGLY} | {_ROWS} | cache | batch 2", _BETWEEN),
    (f"{_SINGLY} | cache filename=/tmp/c | batch 2", "a file"),
    (f"{_SINGLY} | batch 2".replace("gathers=series", "[ or gathers=no]"), None),
    (f"{_SINGLY} | batch 2".replace("elements=90", ""), None),
    (f"{_SINGLY.replace('windows |', 'a = windows |')}; b = a | batch 2; c = a | batch 3; zip b c", None),
    # Those of several series are joined.
    (f"a = {_SERIES}; b = {_SERIES} | {_ROWS}; concatenate a b | [batch 2 or shuffle 9 | batch 2]", "of several"),
    (f"s = random; a = {_SERIES}; b = {_SERIES}; choose s a b | batch 2", "of several"),
    ("a = range 9 | flat_map; b = range 9; concatenate a b | batch 2", ""),
    # The windows have other readers.
    (f"a = {_SERIES}; b = a | batch 2; c = a | batch 3; zip b c", None),
    (f"a = {_SERIES_ARRAYS} | window 3; b = a | flat_map | batch 2; c = a | flat_map | batch 3; zip b c", None),
]

WINDOWS_FIRES: list[Row] = [
    (f"{_SERIES} | batch 2", ["EXACT -n2 -n1 n0 numbers, gather>n3"]),
    (f"{_SERIES} | [shuffle 9 | repeat or cache | shuffle 9] | batch 2", ["EXACT -n2 -n1 n0 numbers, gather>n5"]),
    (f"{_SERIES} | {_ROWS} | shuffle 9 | batch 2 | prefetch 2",
     ["EXACT n3>n5 n3 on batches -n2 -n1 n0 numbers, gather>n5"]),
    (f"{_SINGLY} | batch 2", ["EXACT n9 numbers, gather>n10"]),
    (f"{_SINGLY} | shuffle 9 | {_ROWS} | batch 2 | prefetch 2",
     ["EXACT n11>n12 n11 on batches n9 numbers, gather>n12"]),
    (f"{_SINGLY} | batch 2", _UNORDERED, ["REORDERS n9 numbers, gather>n10"]),
    (f"{_SINGLY} | batch 2 drop_remainder=True", _UNORDERED, ["STATISTICAL n9 numbers, gather>n10"]),
    (f"{_SERIES} | map rows=Exp | batch 2", ["APPROXIMATE n3>n4 n3 on batches -n2 -n1 n0 numbers, gather>n4"]),
]  # fmt: skip

test_no_gathered_batch = silent_test("gather-batches", BATCHES_SILENT)
test_gathered_batches = proposal_test("gather-batches", BATCHES_FIRES, group="batch-first@.*")
test_no_gathered_windows = silent_test("gather-windows", WINDOWS_SILENT)
test_gathered_windows = proposal_test("gather-windows", WINDOWS_FIRES, group="batch-first@.*")


def test_windows_are_left_to_one_of_the_rules() -> None:
    for words, fields, _ in (*rows(WINDOWS_FIRES), *(row for row in rows(WINDOWS_SILENT) if " window " in row[0])):
        check_no_proposal("gather-batches", words, **fields)
    for words, windows in ((_SERIES, RowWindows(3, 1, 1)), (_SINGLY, None)):
        (rewrite,) = check_proposes("gather-windows", f"{words} | batch 2")
        assert isinstance(edit := rewrite.edits[-1], ReplaceSource) and edit.windows == windows


def test_shuffle_buffers_hold_indices() -> None:
    words = "from_tensor_slices gathers elements=90 bytes=1k | shuffle 50 | map rows=exact bytes=3k | shuffle 200"
    (rows,) = check_proposes("gather-batches", f"{words} | batch 3")
    assert rows.predicted_bytes == 90 * (8 - 3_000)
    (windows,) = check_proposes("gather-windows", f"{_SERIES} | shuffle 50 | batch 2")
    assert windows.predicted_bytes == 50 * (8 - 24)


def test_operators_that_need_rows_conflict_with_gathering() -> None:
    described = context(f"{_ARRAYS} | batch 2 | map")
    (gathered,), _ = proposals("gather-batches", described)
    above = Rewrite("a-rule", "n2", Safety.EXACT, (Move("n2", "n0"),), "")
    assert find_conflict(described, [gathered]) == find_conflict(described, [above]) == ""
    assert "map would receive row indices" in find_conflict(described, [above, gathered])


def test_operators_that_built_the_windows_are_removed() -> None:
    described = context(f"{_SINGLY} | shuffle 50 | batch 2")
    (one,), _ = proposals("gather-windows", described)
    edited = apply_edits(described.pipeline, one.edits)
    assert [node.op for node in edited] == ["range", "shuffle", "batch", "map"] and edited.nodes[0].id == "n9"
    assert one.predicted_bytes == 50 * (8 - 24)
    assert not any("flat_map" in note for note in one.notes)


def test_rewrites_of_removed_operators_conflict() -> None:
    described = context(f"{_SINGLY} | batch 2")
    (gathered,), _ = proposals("gather-windows", described)
    faster = Rewrite("parallel-map", "n8", Safety.EXACT, (SetArgument("n8", "num_parallel_calls", 2),), "")
    larger = Rewrite("prefetch", "n9", Safety.EXACT, (SetArgument("n9", "buffer_size", 2),), "")
    put = Rewrite("prefetch", "n8", Safety.EXACT, (Insert("n8", "prefetch", "prefetch@n8", {"buffer_size": 2}),), "")
    for other in (faster, larger, put):
        assert find_conflict(described, [other]) == ""
        assert "removed together with the operators that built the rows" in find_conflict(described, [other, gathered])
    assert find_conflict(described, [gathered, faster]) and find_conflict(described, [gathered, put])


@pytest.mark.parametrize(("rows", "windows", "starts"), [
    (10, RowWindows(3, 2, 1), [0, 2, 4, 6]),
    (10, RowWindows(3, 3, 3), [0, 3]),
    (2, RowWindows(3, 1, 1), []),
])  # fmt: skip
def test_window_starts(rows: int, windows: RowWindows, starts: list[int]) -> None:
    assert list(windows.window_starts(rows)) == starts
