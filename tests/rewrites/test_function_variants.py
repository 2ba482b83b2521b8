"""`decode-and-crop`, `where-to-cond`, `numpy-function` and `split-map`: where they are proposed and where not."""

from __future__ import annotations

import pytest

from pipetune.core.edits import Insert, ReplaceFunction, Rewrite, Safety, apply_edits
from pipetune.core.functions import FunctionVariant
from pipetune.core.measurement import percent
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from tests.rewrites.tables import Row, first, functions, proposal_test, silent_test, with_measured
from tests.rules import check_proposes, context, proposals

_CROPS = "map calls=DecodeJpeg+Slice crop=yes"
_SELECTS = "map branch=yes"
_CALLS = "map python arrays=yes"

CROP_SILENT: list[Row] = [
    # No JPEG is decoded by a map.
    ("range 9 | map[ or  unknown or  calls=Slice or  calls=ResizeBilinear random]", ""),
    ("range 9 | [filter or flat_map or scan or interleave] calls=DecodeJpeg", ""),
    # Other decoders.
    ("range 9 | map calls=DecodeImage[+Slice or  random]", "decode_image accepts any format"),
    ("range 9 | map calls=DecodePng+Slice", "decode_png"),
    # The whole image is needed, or this is unknown.
    ("range 9 | map calls=DecodeJpeg[ or  random]", "unknown what its function does with the images"),
    ("range 9 | map calls=DecodeJpeg crop=no[ or  random or  | ignore_errors]", "it uses it all"),
    # The function has other effects.
    *functions(f"range 9 | {_CROPS} ?", "python variable=w writes table print file"),
    # Errors are dropped downstream.
    (f"range 9 | {_CROPS} [| ignore_errors or random | shuffle 9 | batch 2 | ignore_errors | prefetch]",
     "ignore_errors downstream"),
]  # fmt: skip

_CROPPED = "decoding only what it crops"

CROP_FIRES: list[Row] = [
    (f"range 9 | {_CROPS} [raises reads_file 4 deterministic=False or python_random or | cache | map random"
     " or seeded AUTOTUNE | shuffle 9]", [f"STATISTICAL n1 {_CROPPED}"]),
    (f"list_files | {_CROPS} random | {_CROPS}", [f"STATISTICAL n2 {_CROPPED}", f"STATISTICAL n3 {_CROPPED}"]),
]  # fmt: skip

BRANCH_SILENT: list[Row] = [
    # No map selects large arrays.
    ("range 9 | map[ or  unknown or  calls=SelectV2 random]", ""),
    ("range 9 | [filter or flat_map or interleave or scan] branch=yes", ""),
    # The graph does not show that it is the same.
    ("range 9 | map branch=no[ or  random or  python]", "their shapes may differ"),
    # The function has other effects.
    *functions(f"range 9 | {_SELECTS} ?", "python variable=w writes table print"),
]

_BRANCHED = "computing only what it selects"

BRANCH_FIRES: list[Row] = [
    (f"range 9 | {_SELECTS}[ or  reads_file raises or  raises | ignore_errors]", [f"EXACT n1 {_BRANCHED}"]),
    (f"range 9 | {_SELECTS} random AUTOTUNE | batch 2", [f"STATISTICAL n1 {_BRANCHED}"]),
]

ARRAYS_SILENT: list[Row] = [
    # No map calls Python with eager tensors.
    ("[range 9 or from_generator]", ""),
    ("range 9 | map[ or  unknown or  python or  python print]", ""),
    ("range 9 | [filter or interleave or flat_map] python arrays=yes", ""),
    # The Python code needs tensors.
    ("range 9 | map[ or  4] python arrays=no[ or  | batch 2]", "needs x as a tensor"),
    (f"range 9 | {_CALLS} | ignore_errors", "ignore_errors downstream"),
]

_ARRAYS = "with arrays instead of eager tensors"

ARRAYS_FIRES: list[Row] = [
    (f"range 9 | {_CALLS}[ or  AUTOTUNE | batch 2 or  random variable=w print | shuffle 9]", [f"EXACT n1 {_ARRAYS}"]),
    (f"range 9 | {_CALLS} | ignore_errors | {_CALLS}", [f"EXACT n3 {_ARRAYS}"]),
]

_SOURCE = "TFRecordDataset elements=100 bytes=1k"
_DRAWS = "map random cpu=10ms draws=2k head=90%"
_DIFFERS = "the order upstream differs in each epoch"

SPLIT_SILENT: list[Row] = [
    # It was not probed, or there is nothing to split.
    (f"{_SOURCE} | [map or map random or map unknown or filter random or flat_map random]", ""),
    # The part before the draws cannot be split off.
    (f"{_SOURCE} | map random draws=no", "has no fixed shape"),
    *functions(f"{_SOURCE} | {_DRAWS} ?", "variable=w writes table print"),
    (f"{_SOURCE} | {_DRAWS} 2 deterministic=False", "overtake each other"),
    # Its result must not be cached, or need not be.
    (f"{_SOURCE} | {_DRAWS}", {"partial_read": True}, "stops before the end of the data"),
    (f"{_SOURCE} | {_DRAWS}", {"rebuilt_operators": frozenset({"n1"})}, "each time the cache would be empty"),
    (f"list_files elements=9 | interleave elements=100 bytes=1k | {_DRAWS}", _DIFFERS),
    (f"{_SOURCE} | shuffle 9 | {_DRAWS}", {"epochs": 2}, _DIFFERS),
    (f"{_SOURCE} | shuffle 9 | filter | {_DRAWS}", _DIFFERS),
    (f"from_generator | {_DRAWS}", "it runs Python"),
    (f"{_SOURCE} | map random | {_DRAWS}", "draws random numbers"),
    (f"{_SOURCE} | repeat | take 500 | {_DRAWS}", "repeats endlessly"),
    (f"{_SOURCE} | {_DRAWS} | take 5", "may stop reading before the end"),
    (f"{_SOURCE} | {_DRAWS} | cache", "stores elements here"),
    (f"TFRecordDataset bytes=1k | {_DRAWS}", "number of elements is unknown"),
    (f"{_SOURCE} | {_DRAWS} | batch 4", {"epochs": 1}, "reads its data once"),
    (f"{_SOURCE} | {_DRAWS} | batch 4", {"memory_limit_bytes": 150e3}, "more than the memory limit"),
    # It costs too little, or was not measured.
    (f"{_SOURCE} | {_DRAWS}", {"profiled": False}, "unknown"),
    (f"{_SOURCE} | map random cpu=[10ms draws=2k head=5% or 1ms draws=2k head=90% | map cpu=20ms]",
     "less than a tenth"),
]  # fmt: skip

_CUT = "STATISTICAL n1 cut in front of its first random draw"
_CUT_2 = _CUT.replace("n1", "n2")

SPLIT_FIRES: list[Row] = [
    (f"{_SOURCE} | {_DRAWS} | batch 4[ or  | shuffle 9]", [f"{_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} [asserts or python] | batch 4", [f"{_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} seeded AUTOTUNE | shuffle 9 | repeat", [f"{_CUT} n2>head@n1 cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} | prefetch 2 | map | shuffle 9 | batch 4", [f"{_CUT} n4>head@n1 cache(filename=)>head@n1"]),
    (f"{_SOURCE} | {_DRAWS} | map python | shuffle 9", [f"{_CUT} cache(filename=)>head@n1"]),  # it must not pass
    (f"{_SOURCE} | {_DRAWS} raises reads_file | batch 4", {"epochs": 2, "randomness_fixed": True},
     [f"{_CUT} cache(filename=)>head@n1"]),
    (f"{_SOURCE} | [shuffle 9 or repeat] | {_DRAWS} | batch 4", [f"{_CUT_2} n1>head@n2 cache(filename=)>head@n2"]),
    (f"list_files elements=100 | {_DRAWS} elements=100 | shuffle 99 elements=100",
     [f"{_CUT_2} n1>head@n2 cache(filename=)>head@n2"]),
    # As in a script for pairs of images: its files in another order in each epoch, then a shuffle of all elements.
    (f"list_files elements=100 | {_DRAWS} elements=100 | shuffle 100 elements=100 | batch 1",
     [f"{_CUT_2} n3>head@n2 cache(filename=)>head@n2"]),
]  # fmt: skip

test_no_cropped_decoding = silent_test("decode-and-crop", CROP_SILENT)
test_cropped_decoding = proposal_test("decode-and-crop", CROP_FIRES)
test_no_branch = silent_test("where-to-cond", BRANCH_SILENT)
test_branches = proposal_test("where-to-cond", BRANCH_FIRES)
test_no_arrays = silent_test("numpy-function", ARRAYS_SILENT)
test_arrays = proposal_test("numpy-function", ARRAYS_FIRES)
test_no_split_function = silent_test("split-map", SPLIT_SILENT)
test_split_functions = proposal_test("split-map", SPLIT_FIRES, group="cache")


@pytest.mark.parametrize(("rule", "words", "form", "least"), [
    ("decode-and-crop", f"range 9 | {_CROPS} random | batch 2", FunctionVariant.DECODE_AND_CROP, 0.1),
    ("where-to-cond", f"range 9 | {_SELECTS} random | batch 2", FunctionVariant.BRANCHING, 0.05),
    ("numpy-function", f"range 9 | {_CALLS}", FunctionVariant.ARRAYS, 0.05),
])  # fmt: skip
def test_small_saving_is_not_proposed(rule: str, words: str, form: FunctionVariant, least: float) -> None:
    for share in (None, 0.4, 1 - least, 1 - least + 0.01, 1.02):
        shares = {form: share} if share is not None else None
        rewrites, silences = proposals(rule, with_measured(context(words), variant_shares=shares))
        assert bool(rewrites) is (share is None or share <= 1 - least) and len(rewrites) + len(silences) == 1
        if share == 1 - least + 0.01:
            assert f"saves {percent(least - 0.01)} of the cost of map (train.py:2)" in silences[0].why


@pytest.mark.parametrize(("rule", "words", "digest"), [
    ("decode-and-crop", f"range 9 | {_CROPS} random", "cropped"),
    ("where-to-cond", f"range 9 | {_SELECTS} random", "branched"),
])  # fmt: skip
def test_rewrite_names_digest_and_draws(rule: str, words: str, digest: str) -> None:
    (rewrite,) = check_proposes(rule, words)
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == [digest]
    assert rewrite.reproducible and "train.py:2" in rewrite.summary
    assert "same random numbers in the same order" in rewrite.notes[-1]


def test_both_parts_are_maps() -> None:
    described = context(f"{_SOURCE} | {_DRAWS} 2 | batch 4")
    (rewrite,), _ = proposals("split-map", described)
    edited = apply_edits(described.pipeline, rewrite.edits)
    assert [node.id for node in edited] == ["n0", "head@n1", "cache@head@n1", "n1", "n2"]
    head, tail = edited["head@n1"], edited["n1"]
    assert head.function is not None and tail.function is not None
    assert (head.function.form, tail.function.form) == (FunctionVariant.HEAD, FunctionVariant.TAIL)
    assert not head.function.random and tail.function.random
    assert head.argument("num_parallel_calls") == tail.argument("num_parallel_calls") == 2
    assert head.element_bytes == 2000 and head.location is None


def test_cached_head_is_priced_and_described() -> None:
    (rewrite,) = check_proposes("split-map", f"{_SOURCE} | {_DRAWS} | batch 4")
    assert rewrite.predicted_bytes == 100 * 2000
    assert "100 elements" in rewrite.summary and "90 % of the work" in rewrite.summary
    assert "901 ms of CPU time" in rewrite.notes[0]  # and of the upstream reader


def test_parts_use_the_parallelism_of_other_rewrites() -> None:
    described = context(f"{_SOURCE} | {_DRAWS} | batch 4")
    rewrites, _ = propose_all(described)
    rules = [one.rule for one in rewrites]
    assert rules.index("split-map") > max(place for place, rule in enumerate(rules) if rule == "parallel-map")
    calls, split = first(rewrites, "parallel-map"), first(rewrites, "split-map")
    assert find_conflict(described, [calls, split]) == ""
    edited = apply_edits(described.pipeline, [*calls.edits, *split.edits])
    head, tail = (edited[node].argument("num_parallel_calls") for node in ("head@n1", "n1"))
    assert head == tail is not None


def test_conflicts_with_other_rewrites_of_the_map() -> None:
    described = context(f"{_SOURCE} | {_DRAWS}")
    (split,) = proposals("split-map", described)[0]
    cached = [one for one in propose_all(described)[0] if one.rule == "cache"]
    assert cached and all("exclude each other" in find_conflict(described, [one, split]) for one in cached)
    behind = Insert("n1", "cache", "cache@n1", {"filename": ""})
    assert "draws random" in find_conflict(described, [Rewrite("x", "n1", Safety.STATISTICAL, (behind,), "x.")])
