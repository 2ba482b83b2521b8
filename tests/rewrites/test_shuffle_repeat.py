"""`shuffle-repeat-order`, `shuffle-small`, `merge-repeats` and `drop-no-op`: where they are proposed and where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.rewrites.rule import RuleContext
from tests.rewrites.tables import Row, functions, outlines, proposal_test, silent_test
from tests.rules import check_proposes, context, proposals

ORDER_SILENT: list[Row] = [
    # Shuffle and repeat keep their order.
    ("[range 9 or list_files or list_files | interleave] | repeat", None),
    ("range 9 | shuffle 9 | [cache or take 5 or skip 5 or shard 2 index=0 or enumerate or scan or unique] | repeat",
     None),
    ("range 9 | shuffle 9 | map [variable=w or python] | repeat", None),
    ("[range 9 elements=9 or TFRecordDataset] | shuffle 9 | batch 2 drop_remainder=True | repeat", "incomplete batch"),
    ("range 9 | repeat | [batch 2 or take 20 or enumerate] | shuffle 9", None),
    ("a = range 9 | shuffle 9; b = range 9; zip a b | repeat", None),
    # Another order would select other elements.
    ("range 9 | shuffle 9 | repeat | [enumerate or shard 2 index=0]", "would otherwise select different elements"),
    ("range 9 | repeat | shuffle 9 | skip 3", "would otherwise select different elements"),
]  # fmt: skip

ORDER_FIRES: list[Row] = [
    ("range 9 | shuffle 9 | repeat", ["REORDERS n2>n0"]),
    ("range 9 | shuffle 9 | map | repeat", ["EXACT n3>n1", "REORDERS n3>n0"]),
    ("range 9 | shuffle 9 | [map random or batch 2 or map 2 deterministic=False] | repeat",
        ["REORDERS n3>n1", "REORDERS n3>n0"]),
    ("range 8 elements=8 | shuffle 9 | batch 2 drop_remainder=True | repeat", ["REORDERS n3>n1", "REORDERS n3>n0"]),
    ("range 9 | repeat | shuffle 9[ or  | shard 1 index=0]", ["REORDERS n1>n2"]),
    ("range 9 | shuffle 9 | map | repeat | take 20", ["EXACT n3>n1"]),
    ("range 9 | repeat 2 | map | shuffle 9 | batch 2", ["REORDERS n1>n3"]),
]  # fmt: skip

_SMALL = "TFRecordDataset elements=100 bytes=1k"

SMALL_SILENT: list[Row] = [
    ("range 9 | [batch 2 or shuffle 9 | batch 2]", None),
    (f"{_SMALL} | map bytes=[1k or 10] | shuffle 9", None),  # no smaller place
    ("TFRecordDataset | map | shuffle 9", "unknown whether"),
    *functions(f"{_SMALL} | map ? bytes=9k | shuffle 9", "python variable=w writes table print unknown"),
    (f"{_SMALL} | map bytes=9k | shuffle 9 | ignore_errors", "ignore_errors"),
    (f"{_SMALL} | map bytes=9k | [batch 2 or filter or enumerate bytes=9k or cache or take 9] | shuffle 9", None),
    (f"{_SMALL} | [flat_map or interleave or scan] bytes=9k | shuffle 9", None),
    (f"a = {_SMALL} | map bytes=9k; b = a | shuffle 9; c = a | batch 2; zip b c", None),
]

SMALL_FIRES: list[Row] = [  # a buffer of 80 and more elements holds most of the data: none that is larger is offered
    (f"{_SMALL} | map[ or  2 deterministic=False] bytes=9k | shuffle 80", ["EXACT n2>n0"]),
    (f"{_SMALL} | map bytes=1k | map bytes=9k | shuffle 80", ["EXACT n3>n1"]),  # no farther than it pays
    (f"{_SMALL} | map bytes=5k | [map bytes=9k or map bytes=2k or prefetch 2] | shuffle 80", ["EXACT n3>n0"]),
    (f"{_SMALL} | map variable=w bytes=5k | map bytes=9k | shuffle 80", ["EXACT n3>n1"]),
    (f"{_SMALL} | map random bytes=9k | shuffle 80", ["STATISTICAL n2>n0"]),
    (f"{_SMALL} | map bytes=4k | shuffle 20", ["EXACT n2>n0", "REORDERS n2>n0 n2.buffer_size=80"]),
]

MERGE_SILENT: list[Row] = [
    ("range 9 | [batch 2 or repeat or repeat 2]", None),
    ("range 9 | repeat 2 | [map or batch 2 or shuffle 9 or take 9 or skip 9 or cache] | repeat 3", None),
    ("range 9 | repeat 2 | [prefetch 2 or enumerate or with_options] | repeat 3", None),
    ("a = range 9 | repeat 2; b = a | repeat 3; c = a | batch 2; zip b c", None),
    ("range 9 | [repeat | repeat 3 or repeat 3 | repeat None]", "unknown how often"),
    ("[range 9 | shuffle 9 or list_files | interleave] | repeat 2 | repeat 3", "how often its iteration is restarted"),
    ("a = range 9; b = range 9; choose a b | repeat 2 | repeat 3", "how often its iteration is restarted"),
    ("range 9 | [repeat 0 | repeat 3 or repeat -1 | repeat 0]", "yields no elements"),
]

MERGE_FIRES: list[Row] = [
    ("range 9 | repeat 2 | repeat 3[ or  | shuffle 9]", ["EXACT -n2 n1.count=6"]),
    ("range 9 | [shuffle 9 reshuffle_each_iteration=False or map random] | repeat 2 | repeat 3",
     ["EXACT -n3 n2.count=6"]),
    ("range 9 | repeat [-1 | repeat 3 or -1 | repeat -1 or -2 | repeat 3]", ["EXACT -n2"]),  # negative: endless
    ("range 9 | repeat [3 | repeat -1 or 1 | repeat 3]", ["EXACT -n1"]),
    ("range 9 | repeat 2 | repeat 3 | repeat 4", ["EXACT -n2 -n3 n1.count=24"]),
]  # fmt: skip

test_shuffle_and_repeat_stay = silent_test("shuffle-repeat-order", ORDER_SILENT)
test_shuffle_and_repeat_are_swapped = proposal_test("shuffle-repeat-order", ORDER_FIRES, group="place@.*")
test_shuffle_stays = silent_test("shuffle-small", SMALL_SILENT)
test_shuffle_moves = proposal_test("shuffle-small", SMALL_FIRES, group="place@.*")
test_repeats_stay = silent_test("merge-repeats", MERGE_SILENT)
test_repeats_are_merged = proposal_test("merge-repeats", MERGE_FIRES, group="merge-repeats@.*")


@pytest.mark.mission("A9.orders")
def test_notes_state_the_effect_on_epochs() -> None:
    behind, first = check_proposes("shuffle-repeat-order", "range 9 | shuffle 9 | batch 2 | repeat")
    assert not behind.epochs_kept and "a batch may hold the end of one" in " ".join(behind.notes)
    assert not first.epochs_kept and "Epochs mix" in " ".join(first.notes)
    (apart,) = check_proposes("shuffle-repeat-order", "range 9 | repeat | shuffle 9")
    assert apart.epochs_kept and "no longer mix" in " ".join(apart.notes)
    fused, _ = check_proposes("shuffle-repeat-order", "range 9 | shuffle 9 | map | repeat")
    assert fused.epochs_kept


def test_buffer_grows_to_what_fits_in_the_same_memory() -> None:
    same, larger = check_proposes("shuffle-small", f"{_SMALL} | map bytes=4k | shuffle 20")
    assert same.notes[-1] == "The shuffle buffer still holds 20 of 100 elements."
    assert outlines([larger]) == ["REORDERS n2>n0 n2.buffer_size=80"]
    assert "grows from 20 elements to 80 of 100 elements, without taking more memory." in larger.notes[-1]
    assert larger.predicted_bytes == 0
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
    for size, held in ((50, 50), (5000, 100)):  # no more than all elements
        move, *_ = check_proposes("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle {size}")
        assert move.predicted_bytes == held * (1_000 - 9_000)


def _spread(described: RuleContext, **changes: Any) -> RuleContext:
    """The same pipeline, with the shuffle call at another place in the script."""
    nodes = tuple(
        replace(node, location=replace(node.location, **changes)) if node.op == "shuffle" and node.location else node
        for node in described.pipeline
    )
    return replace(described, pipeline=replace(described.pipeline, nodes=nodes))


@pytest.mark.parametrize(("words", "fixed", "changes", "safety"), [
    ("shuffle 9", True, {}, "EXACT"),  # consecutive calls
    ("shuffle 9", True, {"line": 90}, "STATISTICAL"),
    ("shuffle 9", True, {"file": "other.py"}, "STATISTICAL"),
    ("shuffle 9", True, {"scope": "make"}, "STATISTICAL"),
    ("shuffle 9 seed=4", True, {"line": 90}, "EXACT"),
    ("shuffle 9 seed=87654321,4", True, {"line": 90}, "EXACT"),
    ("shuffle 9 seed=5,4", True, {"line": 90}, "STATISTICAL"),  # under a global seed it may have been drawn
])  # fmt: skip
def test_unseeded_shuffle_passes_no_draw(words: str, fixed: bool, changes: dict[str, Any], safety: str) -> None:
    described = context(f"{_SMALL} | map bytes=9k | {words}", randomness_fixed=fixed)
    (move, *_), _ = proposals("shuffle-small", _spread(described, **changes))
    assert move.safety.name == safety


_UP = ("shuffle-small", f"{_SMALL} | map bytes=9k | shuffle 9")
_DOWN = ("cache", f"{_SMALL} | shuffle 9 | prefetch | map bytes=1k cpu=1ms | batch 2")


@pytest.mark.parametrize(("move", "seeds", "shared", "safety"), [
    (_UP, (2, 2, 3), 1, "EXACT"),  # the shuffle has drawn one
    (_UP, (2, 3, 4), 1, "STATISTICAL"),
    (_UP, (2, 2, 3), 2, "STATISTICAL"),  # of the other dataset it is not known
    (_UP, (None, 2, 3), 1, "STATISTICAL"),
    (_DOWN, (2, 3, 3, 3, 3), 1, "EXACT"),
    (_DOWN, (2, 3, 3, 4, 4), 1, "STATISTICAL"),
    (_DOWN, (2, 3, 4, 4, 4), 1, "STATISTICAL"),
    (_DOWN, (2, 3, 3, None, 3), 1, "STATISTICAL"),
])  # fmt: skip
def test_unseeded_shuffle_passes_other_statements_that_drew_no_seed(move, seeds, shared, safety) -> None:
    rule, words = move
    described = _spread(context(words, randomness_fixed=True), line=90)
    counted = zip(described.pipeline, seeds, strict=True)
    nodes = tuple(replace(node, seeds_drawn=count, shared=shared) for node, count in counted)
    described = replace(described, pipeline=replace(described.pipeline, nodes=nodes))
    moves = [one.split() for one in outlines(proposals(rule, described)[0]) if one.split()[1].startswith("n")]
    assert moves[0][0] == safety


_ALIKE = "map passes=0+1"
_PASS, _PASSES = "experimental_optimization.noop_elimination", "experimental_optimization.apply_default_optimizations"
_OFF = {"options": {_PASS: False}}
_BY_ITSELF = "TensorFlow removes"
_RESTARTED = "how often its iteration is restarted"

NO_OP_SILENT: list[Row] = [
    # It has an effect.
    ("range 9 | map[ or  passes=-1 or  passes=0+-1 or  passes=1+0 or  passes=0+0 or  unknown]", _OFF, ""),
    ("range 9 | map passes=0+1 spec=other", _OFF, ""),  # it sets shapes, or renames components
    (f"range 9 | {_ALIKE} [raises or print or file or python or random or seeded or variable=w or writes or table]",
     _OFF, ""),
    ("range 9 | take [9 or 0 or None]", _OFF, ""),
    ("range 9 | skip [1 or -1]", _OFF, ""),
    ("range 9 | repeat[ or  2 or  0]", _OFF, ""),
    ("range 9 | [shard 2 index=0 or batch 1 or batch 2 | batch 2 or batch 2 | unbatch or filter passes=0 or flat_map]",
     _OFF, ""),
    ("range 9 | [interleave cycle_length=1 or enumerate or scan or cache | cache or assert_cardinality]", _OFF, ""),
    ("range 9 | [with_options or opaque or shuffle 2]", _OFF, ""),
    ("range 9 | shuffle 1[ or  seed=3]", _OFF, "draws a seed"),
    ("range 9 | shuffle 9 | batch 2 | repeat 1", _OFF, _RESTARTED),
    ("range 9 | shuffle 9 seed=3 | repeat 1", _RESTARTED),
    # A single prefetch, or an operator between two.
    ("range 9 | prefetch 2[ or  | map | prefetch 2 or  | batch 2 | prefetch 2]", ""),
    ("a = range 9 | prefetch 2; b = a | prefetch 2; c = a | batch 2; zip b c", ""),
    ("range 9 | map [variable=w or writes] | prefetch 2 | prefetch 4", "reads the variable w"),
    ("range 9 | map file | prefetch 2 | prefetch 4", "side effect"),
    # TensorFlow does it.
    (f"range 9 | [{_ALIKE} or take -1 or skip 0 or repeat 1 or shard 1 index=0]", _BY_ITSELF),
    ("range 9 | skip 0", {"options": {_PASSES: False, _PASS: True}}, _BY_ITSELF),
]  # fmt: skip

NO_OP_FIRES: list[Row] = [
    (f"range 9 | {_ALIKE}[ | batch 2 or  4 or  4 deterministic=False]", _OFF, ["EXACT -n1"]),
    (f"range 9 | {_ALIKE} | batch 2", {"options": {_PASSES: False}}, ["EXACT -n1"]),
    ("range 9 spec=x | map passes=0 spec=x", _OFF, ["EXACT -n1"]),
    ("range 9 | take -1 | skip 0 | shard 1 index=0 | repeat 1", _OFF, [f"EXACT -n{n}" for n in (1, 2, 3, 4)]),
    (f"a = range 9 | {_ALIKE}; b = a | batch 2; c = a | batch 3; zip b c", _OFF, ["EXACT -n1"]),
    # The smaller of two prefetches.
    ("range 9 | prefetch [2 | prefetch 4 or 2 | prefetch 2 or 90 | prefetch AUTOTUNE or 0 | prefetch 1]",
     ["EXACT -n1"]),
    ("range 9 | prefetch [4 | prefetch 2 or AUTOTUNE | prefetch 90]", ["EXACT -n2"]),
    ("range 9 | prefetch AUTOTUNE | prefetch AUTOTUNE | batch 2", ["EXACT -n1"]),
]  # fmt: skip

test_operator_stays = silent_test("drop-no-op", NO_OP_SILENT)
test_no_op_is_removed = proposal_test("drop-no-op", NO_OP_FIRES)


def test_removed_prefetch_frees_its_buffer() -> None:
    (rewrite,) = check_proposes("drop-no-op", "range 9 static_bytes=100 | prefetch 2 | prefetch 4")
    assert rewrite.predicted_bytes == -200
