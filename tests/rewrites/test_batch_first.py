"""`vectorize-map`, `parse-batches`, `map-fusion` and `pad-batches`: where they are proposed and where not."""

from __future__ import annotations

from pipetune.core.edits import Consent, Insert, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionVariant
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from tests.rewrites.tables import Row, functions, proposal_test, silent_test
from tests.rules import check_proposes, context

_ROWS = "map rows=exact"
_PARSE = "map rows=exact calls=ParseExampleV2"
_NEXT = "map fused=n1"
_PADS = "map pads=7"
_UNORDERED = {"options": {"deterministic": False}}

VECTORIZE_SILENT: list[Row] = [
    # Nothing to move, or no batch to move it after.
    (f"range 9 | [batch 2 or {_ROWS} or batch 2 | {_ROWS}]", None),
    (f"range 9 | {_ROWS} | [batch 1 or batch None or padded_batch 2 or ragged_batch 2 or window 2 or rebatch 2]", None),
    # The function must not be called on batches.
    ("range 9 | map | batch 2", "unknown how its function behaves on batches"),
    ("range 9 | map rows=no[ or  random] | batch 2", "MatMul mixes rows"),
    *functions("range 9 | map rows=vectorized ? | batch 2", "python python_random variable=w writes table print file"),
    *functions("range 9 | map ? | batch 2", "unknown"),
    *functions(
        f"range 9 | {_ROWS} ? | batch 2", "python python_random random seeded variable=w writes table print file raises"
    ),
    (f"range 9 | {_ROWS} | batch 2 | ignore_errors", "ignore_errors"),
    # An operator between them does not pass every element on unchanged.
    (f"range 9 | {_ROWS} | [filter or flat_map or interleave or unbatch or cache or snapshot or scan] | batch 2", None),
    (f"range 9 | {_ROWS} | [take_while or unique or enumerate or group_by_window or with_options] | batch 2", None),
    (f"range 9 | {_ROWS} | [opaque or ignore_errors] | batch 2", None),
    (f"range 9 | {_ROWS} | map rows=no | batch 2", "MatMul"),
    # The map has other readers, or the batch joins branches.
    (f"a = range 9 | {_ROWS}; b = a | batch 2; c = a | batch 3; zip b c", None),
    (f"a = range 9 | {_ROWS}; b = range 9; zip a b | batch 2", None),
]

VECTORIZE_FIRES: list[Row] = [
    (f"range 9 | {_ROWS} [| batch 2 or | batch 2 | map random or 4 | batch 2 drop_remainder=True]",
     ["EXACT n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} | shuffle 9 | prefetch 2 | take 5 | skip 1 | shard 2 index=0 | repeat | batch 2",
     ["EXACT n1>n8 n1 on batches"]),
    (f"range 9 | {_ROWS} | batch 3 | unbatch | batch 2", ["EXACT n1>n2 n1 on batches"]),
    (f"range 9 | map random | {_ROWS} | batch 2", ["EXACT n2>n3 n2 on batches"]),
    ("range 9 | map rows=vectorized | batch 2", ["EXACT n1>n2 n1 vectorized"]),
    ("range 9 | map rows=vectorized [random or seeded] | shuffle 9 | batch 2", ["STATISTICAL n1>n3 n1 vectorized"]),
    (f"range 9 | map rows=vectorized random | {_ROWS} | batch 2",
     ["EXACT n2>n3 n2 on batches", "STATISTICAL n2>n3 n2 on batches n1>n3 n1 vectorized"]),
    (f"range 9 | {_ROWS} | shuffle 9 | {_ROWS} | batch 2",
     ["EXACT n3>n4 n3 on batches", "EXACT n3>n4 n3 on batches n1>n4 n1 on batches"]),
    (f"range 9 | map rows=Exp | {_ROWS} | batch 2",
     ["EXACT n2>n3 n2 on batches", "APPROXIMATE n2>n3 n2 on batches n1>n3 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 deterministic=False | batch 2", ["REORDERS n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 | batch 2", _UNORDERED, ["REORDERS n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 | batch 2 drop_remainder=True", _UNORDERED,
     ["EXACT n1>n2 n1 on batches"]),  # no short batch that could overtake others
    # Batches of one epoch could overtake those of the epoch before.
    (f"range 9 | {_ROWS} 2 deterministic=False | shuffle 9 | repeat 3 | batch 2 drop_remainder=True",
     ["REORDERS n1>n4 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 | repeat 3 | batch 2 drop_remainder=True | prefetch 1", _UNORDERED,
     ["REORDERS n1>n3 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 | repeat 3 | batch 2 drop_remainder=True | map random 2", _UNORDERED,
     ["EXACT n1>n3 n1 on batches"]),  # as they do already
    (f"range 9 | {_ROWS} 2 deterministic=True | repeat 3 | batch 2 drop_remainder=True", _UNORDERED,
     ["EXACT n1>n3 n1 on batches"]),
]  # fmt: skip

PARSE_SILENT: list[Row] = [
    (f"TFRecordDataset | {_PARSE}[ or  | padded_batch 2 or  | batch 1]", None),
    (f"TFRecordDataset | batch 2 | {_PARSE}", None),  # it is there already
    ("TFRecordDataset | map rows=exact[ or  calls=Mul+Cast] | batch 2", None),  # left to vectorize-map
    ("TFRecordDataset | map rows=no | batch 2", None),  # vectorize-map gives the reason
    ("TFRecordDataset | map calls=ParseExampleV2 | batch 2", "unknown how its function behaves"),
    ("TFRecordDataset | map rows=no calls=[ParseExampleV2+DecodeJpeg or ParseSequenceExampleV2] | batch 2",
     "mixes rows"),
    *functions(f"TFRecordDataset | {_PARSE} ? | batch 2", "random python variable=w writes table print raises"),
    (f"TFRecordDataset | {_PARSE} | batch 2 | ignore_errors", "ignore_errors"),
    (f"TFRecordDataset | {_PARSE} | [ignore_errors or filter or cache or unbatch] | batch 2", None),
    (f"TFRecordDataset | {_PARSE} | map [rows=no or random] | batch 2", None),
    (f"a = TFRecordDataset | {_PARSE}; b = a | batch 2; c = a | batch 3; zip b c", None),
]  # fmt: skip

PARSE_FIRES: list[Row] = [
    (f"TFRecordDataset | {_PARSE} | shuffle 9 | batch 2", ["EXACT n1>n3 n1 on batches"]),
    ("TextLineDataset | map rows=exact calls=[DecodeCSV or StringLower or DecodeRaw+Cast] | batch 2",
     ["EXACT n1>n2 n1 on batches"]),
    ("TextLineDataset | map rows=Log calls=StringToNumber+Log | batch 2", ["APPROXIMATE n1>n2 n1 on batches"]),
    (f"TFRecordDataset | {_PARSE} | map rows=exact | batch 2", ["EXACT n2>n3 n2 on batches n1>n3 n1 on batches"]),
    ("FixedLengthRecordDataset | map rows=parts calls=DecodeRaw+SplitV | shuffle 9 | batch 2",
     ["EXACT n1 cut behind what takes its text apart n1>n3 n1 vectorized head@n1>n3 head@n1 on batches"]),
    (f"TFRecordDataset | {_PARSE} 2 deterministic=False | batch 2", ["REORDERS n1>n2 n1 on batches"]),
]  # fmt: skip

FUSION_SILENT: list[Row] = [
    # There are not two maps.
    ("range 9 | map[ or  | batch 2]", None),
    (f"range 9 | map | [batch 2 or shuffle 9 or repeat or prefetch 2 or cache or filter or take 5 or skip 5] | {_NEXT}",
     None),
    (f"range 9 | map | [ignore_errors or enumerate or unbatch or with_options or opaque] | {_NEXT}", None),
    (f"range 9 | [scan or flat_map] | {_NEXT}", None),
    (f"a = range 9 | map; b = a | {_NEXT}; c = a | batch 2; zip b c", None),
    # The functions are stateful.
    (f"range 9 | map [unknown or python or python_random or random variable=w or variable=w] | {_NEXT}", None),
    (f"range 9 | map [table or file] | {_NEXT}", None),
    (f"range 9 | map | [map unknown or {_NEXT} python or {_NEXT} writes or {_NEXT} print]", None),
    (f"range 9 | map | {_NEXT} [random or seeded]", None),  # a cache may follow the first
    # They are called in another way.
    (f"range 9 | map [2 | {_NEXT} or 2 | {_NEXT} 4 or AUTOTUNE | {_NEXT} 4 or 2 deterministic=False | {_NEXT} 2]",
     None),
    (f"range 9 | map [synchronous=True or use_unbounded_threadpool=True] | {_NEXT}", None),
    # Their composition does not compute the same, or this is unknown.
    ("range 9 | map[ or  random] | map unfused=n1", "do something else"),
    ("range 9 | map | [map or map fused=n0]", "unknown what their functions would compute"),
]  # fmt: skip

_MERGED = "on what the functions of the maps above give"
_ONE = f"n2 {_MERGED} -n1"

FUSION_FIRES: list[Row] = [
    (f"range 9 | map | {_NEXT} | [batch 2 or ignore_errors or map random or map 2]", [f"EXACT {_ONE}"]),
    ("range 9 | map random[ or  4] | map | map fused=n2", [f"EXACT n3 {_MERGED} -n2"]),
    ("range 9 | map | map | map fused=n1+n2", [f"EXACT n3 {_MERGED} -n2 -n1"]),
    (f"range 9 | map random 4 | {_NEXT} 4 seeded | batch 2", [f"STATISTICAL {_ONE}"]),
    ("range 9 | map | map fused=n1 | map random | map fused=n3", [f"EXACT {_ONE}", f"STATISTICAL n4 {_MERGED} -n3"]),
    (f"range 9 | map [4 | {_NEXT} 4 or raises | {_NEXT} raises]", [f"EXACT {_ONE}"]),
    (f"range 9 | map 2 deterministic=False | {_NEXT} 2 deterministic=False", [f"EXACT {_ONE}"]),
]  # fmt: skip

PAD_SILENT: list[Row] = [
    # No map pads what is batched.
    ("range 9 | map[ or  unknown] | batch 2", None),
    (f"range 9 | [{_PADS} or {_PADS} | shuffle 5 or batch 2 | {_PADS} or filter pads=7 | batch 2]", None),
    # Not with another operator of a batch.
    (f"range 9 | {_PADS} | [padded_batch 2 or ragged_batch 2 or batch 1]", None),
    (f"range 9 | {_PADS} | batch 2 num_parallel_calls=3", "has parallel calls"),
    # Something else gets the padded elements.
    (f"range 9 | {_PADS} | [map or filter or cache or window 3 or unique or ignore_errors] | batch 2", None),
    (f"a = range 9 | {_PADS}; b = range 9; zip a b | batch 2", None),
    (f"a = range 9 | {_PADS}; b = a | batch 2; c = a | batch 3; concatenate b c", None),
    # The function does something else, too.
    ("range 9 | map pads=no | [batch 2 or shuffle 4 | repeat | batch 2]", "does more than pad"),
    *functions(f"range 9 | {_PADS} ? | batch 2", "python random print variable=w"),
    (f"range 9 | {_PADS} | batch 2 | ignore_errors", "drop a whole batch"),
]

_AS_BATCH = "padded_batch(batch_size=2,padded_shapes=[7],drop_remainder="

PAD_FIRES: list[Row] = [
    (f"range 9 | {_PADS}[ or  raises 4] | batch 2", [f"EXACT n2 {_AS_BATCH}False) -n1"]),
    (f"range 9 | map random | {_PADS} | shuffle 5 | repeat | batch 2", [f"EXACT n5 {_AS_BATCH}False) -n2"]),
    (f"range 9 | {_PADS} AUTOTUNE deterministic=False | shard 2 | batch 2", [f"EXACT n3 {_AS_BATCH}False) -n1"]),
]  # fmt: skip

test_no_vectorized_map = silent_test("vectorize-map", VECTORIZE_SILENT)
test_no_parsed_batch = silent_test("parse-batches", PARSE_SILENT)
test_no_fused_map = silent_test("map-fusion", FUSION_SILENT)
test_no_padded_batch = silent_test("pad-batches", PAD_SILENT)
test_parsed_batches = proposal_test("parse-batches", PARSE_FIRES, group="batch-first@.*")
test_fused_maps = proposal_test("map-fusion", FUSION_FIRES)
test_padded_batches = proposal_test("pad-batches", PAD_FIRES, group="batch-first@.*")
test_vectorized_maps = proposal_test("vectorize-map", VECTORIZE_FIRES, group="batch-first@.*")


def test_predicted_bytes_count_shuffle_buffers_between() -> None:
    first = "range 90 elements=90 bytes=10 | map rows=exact bytes=1k | shuffle 50"
    one, both = check_proposes("vectorize-map", f"{first} | map rows=exact bytes=3k | shuffle 200 | batch 3")
    assert one.predicted_bytes == 90 * (1_000 - 3_000)  # no more than all elements
    assert both.predicted_bytes == 90 * (10 - 3_000) + 50 * (10 - 1_000)
    (unknown,) = check_proposes("vectorize-map", "range 90 | map rows=exact | shuffle 50 | batch 3", profiled=False)
    assert unknown.predicted_bytes == 0
    words = f"range 9 bytes=100 elements=50 | {_PADS} bytes=1k | shuffle 20 | batch 2"
    assert check_proposes("pad-batches", words)[0].predicted_bytes == -20 * 900


def test_note_names_inexact_ops() -> None:
    (rewrite,) = check_proposes("vectorize-map", "range 9 | map rows=Exp+Log | batch 2")
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == ["on batches"]
    assert "In a batch Log may treat a denormal" in rewrite.notes[-2]
    assert "Exp, Log" in rewrite.notes[-1], "what is approved"


def test_draws_in_a_worse_class_need_a_consent_of_their_own() -> None:
    """Who allows other last bits, or another order, has not allowed other draws."""
    draws, arrays = "map rows=vectorized random", "from_tensor_slices gathers elements=90 bytes=8"
    rounded = check_proposes("vectorize-map", f"range 9 | {draws} | map rows=Exp | batch 2")
    assert [one.safety for one in rounded] == [Safety.APPROXIMATE] * 2
    assert [one.needs for one in rounded] == [frozenset(), {Consent.STATISTICAL}]
    (unordered,) = check_proposes("vectorize-map", f"range 9 | {draws} 2 | batch 2", **_UNORDERED)
    assert (unordered.safety, unordered.needs) == (Safety.REORDERS, {Consent.STATISTICAL})
    (gathered,) = check_proposes("gather-batches", f"{arrays} | {draws} | map rows=Exp | batch 2")
    assert (gathered.safety, gathered.needs) == (Safety.APPROXIMATE, {Consent.STATISTICAL})
    (overtaking,) = check_proposes("gather-batches", f"{arrays} | {draws} 2 deterministic=True | batch 2", **_UNORDERED)
    assert (overtaking.safety, overtaking.needs) == (Safety.REORDERS, {Consent.STATISTICAL})
    (rounded,) = check_proposes("vectorize-map", "range 9 | map rows=Exp 2 deterministic=False | batch 2")
    assert (rounded.safety, rounded.needs) == (Safety.APPROXIMATE, {Consent.REORDER})
    (rounded,) = check_proposes("gather-batches", f"{arrays} | map rows=Exp | batch 2", **_UNORDERED)
    assert (rounded.safety, rounded.needs) == (Safety.APPROXIMATE, {Consent.REORDER})


def test_fusion_with_repeat_in_a_worse_class_needs_a_consent_of_its_own() -> None:
    rewrites, _ = propose_all(context("range 9 | shuffle 9 seed=1 | map rows=Exp | repeat 2 | batch 2"))
    (rounded,) = (one for one in rewrites if one.rule == "vectorize-map")
    assert (rounded.safety, rounded.needs) == (Safety.APPROXIMATE, {Consent.REORDER})


def test_note_says_that_fused_maps_share_the_parallel_calls() -> None:
    (rewrite,) = check_proposes("map-fusion", f"range 9 | map 4 | {_NEXT} 4")
    assert "the merged map has 4 in total" in rewrite.notes[0]


def test_fusion_conflicts_with_other_edits_of_the_fused_map() -> None:
    described = context(f"range 9 | map | {_NEXT}")
    (rewrite,) = check_proposes("map-fusion", f"range 9 | map | {_NEXT}")
    form = Rewrite("free", "n1", Safety.EXACT, (ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d"),), "Does it.")
    assert "by another edit" in find_conflict(described, [form, rewrite])
    between = Rewrite("free", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1"),), "Does it.")
    assert "There is an operator between n2" in find_conflict(described, [between, rewrite])
