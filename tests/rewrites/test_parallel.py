"""`parallel-map`, `serial-map`, `parallel-interleave`, `read-shards`, `map-and-batch-fusion`: where proposed or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import Consent, Safety
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.core.storage import FileUse, SmallFileCosts, Sweep, SweepReader
from pipetune.rewrites.parallel_reads import effective_cycle_length
from tests.rewrites.tables import Row, functions, outlines, proposal_test, rows, silent_test, with_profile
from tests.rules import check_proposes, context, proposals

_PASSES = "experimental_optimization."
_OFF = {"options": {f"{_PASSES}apply_default_optimizations": False}}
_UNORDERED = {"options": {"deterministic": False}}


def _calls(safety: str, *numbers: int, node: str = "n1") -> list[str]:
    return [f"{safety} {node}.num_parallel_calls={number}" for number in numbers]


MAP_SILENT: list[Row] = [
    ("range 9 | [batch 2 or filter | batch 2 or scan | batch 2]", None),
    *functions("range 9 | map ?", "variable=w writes table print file unknown"),
    ("range 9 | map synchronous=True", "synchronous"),
    # Python code that runs in parallel, and is measured to compute: more calls would wait for each other.
    ("range 9 | map 4 python cpu=2ms waits=2ms", "at most 250 elements/s (4.0 ms each, 50 % of that waiting)"),
    ("range 9 | map 2 python_random python cpu=2ms waits=0us", {"cores": 8}, "hold the GIL"),
]

MAP_FIRES: list[Row] = [
    ("range 9 | map", {"cores": 8}, _calls("EXACT", 2, 8)),
    ("range 9 | map", _OFF, _calls("EXACT", -1, 2)),
    ("range 9 | map", {"options": {f"{_PASSES}map_parallelization": False}}, _calls("EXACT", -1, 2)),
    ("range 9 | map", {"options": {**_OFF["options"], f"{_PASSES}map_parallelization": True}}, _calls("EXACT", 2)),
    ("range 9 | map | batch 2", {"observed_kernels": {"n1": "MapAndBatch"}}, _calls("EXACT", 2)),
    ("range 9 | map", {"observed_kernels": {"n1": "Map"}}, _calls("EXACT", -1, 2)),
    ("range 9 | map 2", {"cores": 4}, _calls("EXACT", -1, 4)),
    ("range 9 | map [AUTOTUNE or raises reads_file or cpu=2ms waits=0us]", _calls("EXACT", 2)),
    ("range 9 | map deterministic=True", _UNORDERED, _calls("EXACT", 2)),
    ("range 9 | map [random or seeded or python_random or python]", _calls("STATISTICAL", -1, 2)),
    ("range 9 | map AUTOTUNE random", _calls("STATISTICAL", 2)),
    # It may release the lock while it computes (PIL, NumPy), or waits.
    ("range 9 | map python cpu=2ms [waits=0us or waits=3ms]", _calls("STATISTICAL", -1, 2)),
    ("range 9 | map 4 python cpu=2ms waits=3ms", _calls("STATISTICAL", -1, 2)),
    ("range 9 | map deterministic=False", _calls("REORDERS", 2)),
    ("range 9 | map 4", {"cores": 2, **_UNORDERED}, _calls("EXACT", -1, 2)),  # elements are reordered already
    ("range 9 | map", _UNORDERED, _calls("STATISTICAL", 2)),
    ("range 9 | map | with_options deterministic=False", _calls("STATISTICAL", 2)),
    ("range 9 | map random deterministic=False", _calls("REORDERS", -1, 2)),
    ("range 9 | map | map random", [*_calls("EXACT", 2), *_calls("STATISTICAL", -1, 2, node="n2")]),
    ("range 9 | map variable=w | map 4", _calls("EXACT", -1, 2, node="n2")),
]


def _consent(words: str) -> list[Consent]:
    runs_python = " python" in words.replace("python_random", "") or "GeneratorDataset" in words
    return [Consent.PYTHON_PARALLEL] if runs_python else []


test_no_parallel_map = silent_test("parallel-map", MAP_SILENT)
test_parallel_maps = proposal_test("parallel-map", MAP_FIRES, consent=_consent)


@pytest.mark.mission("A3.curve")
def test_parallel_map_is_priced_and_reproducible_only_without_randomness() -> None:
    rewrites = check_proposes("parallel-map", "range 9 | map random bytes=1k", cores=4)
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [4_000, 2_000, 4_000]  # a result for each call
    assert not any(rewrite.reproducible for rewrite in rewrites)
    rewrites, silences = proposals("parallel-map", context("range 9 | map"))
    assert all(rewrite.reproducible for rewrite in rewrites)
    assert ["already" in silence.why for silence in silences] == [True]  # TensorFlow uses AUTOTUNE by itself


INTERLEAVE_SILENT: list[Row] = [
    ("range 9 | [map or flat_map inner=TensorSliceDataset] | batch 2", None),
    ("list_files | flat_map | batch 2", None),  # left to `read-shards`
    *functions("list_files | interleave ?", "variable=w writes table print unknown"),
    ("list_files elements=1 | interleave cycle_length=4", "one inner dataset"),
    ("range 9 | opaque | interleave inner=", "nothing is known about what it reads"),  # such as datasets in memory
]


def _cycle(edits: str, *calls: int, safety: str = "EXACT", node: str = "n2") -> list[str]:
    return [" ".join(f"{safety} {edits} {node}.num_parallel_calls={number}".split()) for number in calls]


_BOTH = "n2.cycle_length=2 n2.block_length=1"
_FIRST = _BOTH.replace("n2", "n1")

INTERLEAVE_FIRES: list[Row] = [
    # All values in force are written out, whether or not they were given.
    ("list_files elements=2 | interleave", _cycle(_BOTH, -1, 2)),
    ("list_files elements=4 | interleave cycle_length=4", _cycle("n2.block_length=1", -1, 2)),
    ("list_files elements=4 | interleave cycle_length=4 block_length=3", {"cores": 4}, _cycle("", -1, 2, 4)),
    # Never more calls than the cycle length.
    ("list_files elements=3 | interleave cycle_length=3 block_length=1", {"cores": 8}, _cycle("", -1, 2)),
    # The default of this machine, not the number of available cores.
    ("list_files elements=8 | interleave block_length=1", {"cores": 2, "serial_cycle_length": 8},
     _cycle("n2.cycle_length=8", -1, 2)),
    # Parallel interleaves have another default.
    ("list_files elements=3 | interleave AUTOTUNE block_length=1", {"cores": 8}, _cycle("n2.cycle_length=3", 2)),
    ("list_files elements=2 | interleave 2 block_length=1", {"cores": 8}, _cycle("n2.cycle_length=2", -1)),
    # A longer cycle changes the order.
    ("list_files elements=16 | interleave cycle_length=4 block_length=1",
     [*_cycle("", -1, 2), *_cycle("n2.cycle_length=8", -1, safety="REORDERS"),
      *_cycle("n2.cycle_length=16", -1, safety="REORDERS")]),
    ("list_files elements=5 | interleave cycle_length=1 block_length=1",
     [*_cycle("", -1), *_cycle("n2.cycle_length=2", -1, safety="REORDERS"),
      *_cycle("n2.cycle_length=5", -1, safety="REORDERS")]),
    ("list_files elements=2 | interleave deterministic=False", _cycle(_BOTH, -1, 2, safety="REORDERS")),
    ("list_files elements=2 | interleave", _UNORDERED, _cycle(_BOTH, -1, 2, safety="STATISTICAL")),
    ("list_files elements=2 | interleave [random or inner=TFRecordDatasetV2+ShuffleDatasetV3]",
     _cycle(_BOTH, -1, 2, safety="STATISTICAL")),
    ("range 2 elements=2 | interleave inner=[GeneratorDataset or TensorDataset+FlatMapDataset calls=GeneratorDataset]",
     _cycle(_FIRST, -1, 2, safety="STATISTICAL", node="n1")),
]  # fmt: skip

test_no_parallel_interleave = silent_test("parallel-interleave", INTERLEAVE_SILENT)
test_parallel_interleaves = proposal_test("parallel-interleave", INTERLEAVE_FIRES, consent=_consent)


@pytest.mark.parametrize(("words", "length"), [
    ("list_files | interleave cycle_length=-1", 8),
    ("list_files | interleave 16", 8),
    ("list_files | interleave 4 cycle_length=6", 6),
])  # fmt: skip
def test_effective_cycle_length_is_the_runtimes_default(words: str, length: int) -> None:
    described = context(words, serial_cycle_length=8)
    assert effective_cycle_length(described.pipeline["n2"], described) == length


@pytest.mark.parametrize(("words", "resuming", "longer"), [
    *((words, (), 0) for words in ("take 9", "skip 9", "shard 2 index=0")),
    ("skip 9", (ResumePoint(ResumeMethod.SKIP, "skip(9)", node="n3"),), 2),
    ("shard 1 index=0", (), 2),
    ("map", (), 2),
    ("enumerate", (), 2),  # a comparison would notice
])  # fmt: skip
def test_longer_cycle_never_selects_other_elements(words: str, resuming: tuple[ResumePoint, ...], longer: int) -> None:
    text = f"list_files elements=16 | interleave cycle_length=4 block_length=1 | {words}"
    rewrites, silences = proposals("parallel-interleave", context(text, resuming=resuming))
    assert sum(rewrite.safety is Safety.REORDERS for rewrite in rewrites) == longer
    assert [silence.why for silence in silences if "different elements" in silence.why] == (
        [] if longer else [f"No longer cycle: {words.split()[0]} (train.py:4) would select different elements."]
    )


_FUSES = "already fuses"
_NO_MAP = "is upstream of it, not a map"

FUSION_SILENT: list[Row] = [
    ("range 9 | map | padded_batch 2", "padded_batch has no fused variant"),
    ("range 9 | map | ragged_batch 2", "ragged_batch has no fused variant"),
    ("range 9 | map[ or  2 or  AUTOTUNE random] | batch 2", _FUSES),
    ("range 9 | map [random or variable=w or python] | batch 2", "one call at a time"),
    ("a = range 9 | map; b = a | batch 2; zip a b", _FUSES),  # another reader does not prevent it
    ("range 9 | map | batch 2", _UNORDERED, _FUSES),
    ("range 9 | map | batch 2 num_parallel_calls=2", {"observed_kernels": {"n2": "MapAndBatch"}}, _FUSES),
    ("range 9 | map | batch 2",
     {"options": {f"{_PASSES}apply_default_optimizations": False, f"{_PASSES}map_and_batch_fusion": True}}, _FUSES),
]  # fmt: skip

STAYS: list[tuple[str, str]] = [
    ("range 9 | map variable=w | shuffle 5 | batch 2", "reads the variable w"),
    ("range 9 | map table | shuffle 5 | batch 2", "table"),
    ("range 9 | map python | shuffle 5 | batch 2", "Python"),
    ("range 9 | map print | prefetch 5 | batch 2", "side effect"),
    ("range 9 | map unknown | take 5 | batch 2", "nothing is known"),
    ("range 9 | map raises | skip 5 | batch 2", "validates values"),
    ("range 9 | map 2 deterministic=False | skip 5 | batch 2", "keep the order"),
    ("range 9 | cache | map 2 | take 5 | batch 2", "never be read to its end"),
    ("range 9 | map | shuffle 5 | batch 2 | ignore_errors", "ignore_errors"),
    ("a = range 9 | map; b = a | shuffle 5 | batch 2; c = a | batch 2; zip b c", "another consumer"),
    ("range 9 | map | [filter or cache or enumerate or scan or unique or flat_map or ignore_errors] | batch 2",
     _NO_MAP),
    ("range 9 | map use_unbounded_threadpool=True | batch 2", "unbounded thread pool"),
]  # fmt: skip

_SWITCH_ON = f"EXACT options.{_PASSES}map_and_batch_fusion=True"

MOVES: list[Row] = [
    ("range 9 | map | [shuffle 5 or prefetch 5 or take 5 or skip 5 or shard 2 index=0 or repeat] | batch 2",
     ["EXACT n2>n0"]),
    ("range 9 | map [raises or 2 deterministic=False] | shuffle 5 | batch 2", ["EXACT n2>n0"]),
    ("range 9 | map 2 deterministic=False | repeat | batch 2", ["REORDERS n2>n0"]),
    ("range 9 | map random | [shuffle 5 or repeat or take 5 or skip 5 or shard 2 index=0] | batch 2",
     ["STATISTICAL n2>n0"]),
    ("range 9 | map | batch 2", {"options": {f"{_PASSES}map_and_batch_fusion": False}}, [_SWITCH_ON]),
]  # fmt: skip

test_fused_batch_stays = silent_test("map-and-batch-fusion", FUSION_SILENT)


def _moves(words: str, **fields: Any) -> tuple[list[str], list[str]]:
    rewrites, silences = proposals("map-and-batch-fusion", context(words, **fields))
    moves = [text for text in outlines(rewrites) if "num_parallel_calls" not in text]
    return moves, [silence.why for silence in silences]


@pytest.mark.parametrize(("words", "fields", "why"), rows(STAYS))
def test_operator_between_map_and_batch_is_not_moved(words: str, fields: dict[str, Any], why: str) -> None:
    moves, reasons = _moves(words)
    assert moves == [] and any(why in reason for reason in reasons), reasons


@pytest.mark.parametrize(("words", "fields", "expected"), rows(MOVES))
@pytest.mark.mission("A4.fusion")
def test_operator_between_map_and_batch_is_moved(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert _moves(words, **fields)[0] == expected


def test_note_says_that_draws_continue_across_epochs() -> None:
    rewrites = check_proposes("map-and-batch-fusion", "range 9 | map random | repeat | batch 2")
    assert "of the map then continue from epoch to epoch" in " ".join(rewrites[0].notes)


def test_parallel_batch_is_made_serial_for_fusion() -> None:
    rewrites = check_proposes("map-and-batch-fusion", "range 9 | map | batch 2 num_parallel_calls=2")
    assert outlines(rewrites) == ["EXACT n2.num_parallel_calls=None", "EXACT n2.num_parallel_calls=-1"]
    assert len({rewrite.group for rewrite in rewrites}) == 1


@pytest.mark.parametrize(("words", "options", "safety"), [
    ("range 9 | filter | batch 10", {}, "EXACT"),
    ("range 9 | filter | batch 10", {"deterministic": False}, "REORDERS"),
    ("range 9 | filter | batch 10 drop_remainder=True", {"deterministic": False}, "STATISTICAL"),
    ("range 9 | filter | batch 10 deterministic=False", {}, "REORDERS"),
])  # fmt: skip
def test_parallel_batch_is_proposed_where_nothing_is_fused(words: str, options: dict[str, Any], safety: str) -> None:
    rewrites = check_proposes("map-and-batch-fusion", words, options=options)
    assert outlines(rewrites) == [f"{safety} n2.num_parallel_calls={n}" for n in (-1, 2)]
    assert all(rewrite.reproducible == (safety == "EXACT") for rewrite in rewrites)


def test_moved_buffer_is_priced_by_what_it_holds() -> None:
    words = "range 9 bytes=8 | map bytes=1000 | prefetch 10 | batch 2"
    (move,) = (one for one in check_proposes("map-and-batch-fusion", words) if "n2>n0" in outlines([one])[0])
    assert move.predicted_bytes == 80 - 10_000
    assert "9.7 KiB less" in " ".join(move.notes)


_PARALLELIZES = f"{_PASSES}map_parallelization"
_SERIAL = f"EXACT options.{_PARALLELIZES}=False"

SERIAL_SILENT: list[Row] = [
    ("range 9 | [batch 2 or filter | batch 2 or scan | batch 2]", None),
    ("range 9 | map [cpu=31us or cpu=2ms] | batch 2", "in parallel, which suits calls of"),
    ("range 9 | map cpu=3us | map! | batch 2", "in parallel, which suits calls of 10 ms"),
    # TensorFlow leaves them as they are.
    ("range 9 | map [1 or synchronous=True]", None),
    ("range 9 | map 4 [cpu=31us or random or python or deterministic=False or deterministic=True]", None),
    ("range 9 | map [variable=w or writes or table or print or file or random or unknown or python]", None),
    ("range 9 | map", {"options": {_PARALLELIZES: False}}, None),
    ("range 9 | map", {"options": {"autotune.enabled": False}}, None),
    ("range 9 | map", _OFF, None),
    ("range 9 | map", {"observed_kernels": {"n1": "Map"}}, None),
    ("range 9 | map", {"profiled": False}, None),
]

SERIAL_FIRES: list[Row] = [
    ("range 9 | map [cpu=3us or cpu=30us] [ or | batch 2]", [_SERIAL]),
    ("range 9 | map AUTOTUNE | batch 2", [f"EXACT n1.num_parallel_calls=None options.{_PARALLELIZES}=False"]),
    ("range 9 | map | map 4 | map! 4 | batch 2",
     [_SERIAL, f"EXACT n2.num_parallel_calls=None options.{_PARALLELIZES}=False"]),
    ("a = range 9; b = range 9; c = random | batch 2 | map cpu=3us; choose c a b", [_SERIAL]),
]  # fmt: skip

test_parallel_maps_stay = silent_test("serial-map", SERIAL_SILENT)
test_parallel_maps_are_turned_off = proposal_test("serial-map", SERIAL_FIRES)


def test_functions_are_named() -> None:
    (rewrite,), _ = proposals("serial-map", context("range 9 | map cpu=3us | shuffle 5 | map cpu=4us | batch 2"))
    assert "map (train.py:2), map (train.py:4)" in rewrite.summary


READS_SILENT: list[Row] = [
    ("[from_tensor_slices | batch 2 or from_generator or load]", ""),
    # No files are opened for the elements.
    ("range 9 | flat_map inner=[TensorSliceDataset or GeneratorDataset python]", ""),
    # They are read side by side already, or left to `parallel-interleave`.
    ("list_files | interleave[ or  cycle_length=4 AUTOTUNE]", ""),
    ("TFRecordDataset files=4 num_parallel_reads=[4 or 1]", ""),
    ("TextLineDataset files=4 num_parallel_reads=AUTOTUNE | batch 2", ""),
    # One file.
    ("[TFRecordDataset files=1 or FixedLengthRecordDataset files=1 | batch 2]", ""),
    ("list_files elements=1 | TextLineDataset", ""),
    ("list_files elements=1 | flat_map", "one file"),
    # The function does more than open a file.
    *functions("list_files elements=4 | flat_map ?", "python variable=w writes table print"),
    ("list_files elements=4 | flat_map unknown", "its function is unknown"),
    ("list_files elements=4 | flat_map inner=TFRecordDatasetV2+GeneratorDataset", "runs Python"),
    # Small files without measurements.
    ("list_files elements=5000 | map reads_file | batch 2", ""),
]


def _reads(node: str, *lengths: int, ahead: str = "EXACT") -> list[str]:
    return [f"{ahead} {node}.num_parallel_reads=1", *(f"REORDERS {node}.num_parallel_reads={n}" for n in lengths)]


def _cycles(*lengths: int, ahead: str = "EXACT") -> list[str]:
    text = "{} n2 interleave(cycle_length={},block_length={},num_parallel_calls=-1,deterministic=None)"
    return [text.format(ahead, 1, 1), *(text.format("REORDERS", length, n) for length in lengths for n in (1, 16))]


READS_FIRES: list[Row] = [
    ("[TFRecordDataset files=40 | batch 2 or FixedLengthRecordDataset]", _reads("n0", 2, 16)),
    ("TFRecordDataset files=2 | batch 2", _reads("n0", 2)),
    ("list_files elements=4 | TFRecordDataset | shuffle 9", _reads("n2", 2, 4)),
    ("list_files | TextLineDataset", {"cores": 1}, _reads("n2", 2, 16)),
    ("TFRecordDataset files=3", {"options": {"deterministic": False}}, _reads("n0", 2, 3, ahead="STATISTICAL")),
    ("list_files elements=20 | flat_map | batch 2", _cycles(2, 16)),
    ("list_files | flat_map inner=TextLineDataset+SkipDataset", _cycles(2, 16)),
    ("list_files elements=3 | flat_map inner=TensorSliceDataset calls=FlatMapDataset+TFRecordDatasetV2", _cycles(2, 3)),
    ("list_files elements=2 | flat_map [random or inner=TFRecordDatasetV2+ShuffleDatasetV3]",
     _cycles(2, ahead="STATISTICAL")),
    # Reading several files at a time would select other elements.
    ("TFRecordDataset files=40 | [take 9 | batch 2 or map | skip 9]", _reads("n0")),
    ("list_files elements=20 | flat_map | take 9", _cycles()),
]  # fmt: skip

test_no_other_reading = silent_test("read-shards", READS_SILENT)
test_files_ahead_or_several = proposal_test("read-shards", READS_FIRES)


def test_reason_for_one_file_at_a_time_before_a_take() -> None:
    _, silences = proposals("read-shards", context("TFRecordDataset files=40 | take 9"))
    why = "One file at a time: with more, take (train.py:2) would select different elements."
    assert [silence.why for silence in silences] == [why]


@pytest.mark.parametrize(("knee", "lengths"), [(None, (2, 16)), (4, (4,)), (64, (40,)), (1, ())])
def test_number_of_files_follows_the_sweep(knee: int | None, lengths: tuple[int, ...]) -> None:
    sweep = Sweep(SweepReader.SOURCE, (), node="n0", knee=knee)
    others = (Sweep(SweepReader.FILES, (), knee=3), Sweep(SweepReader.SOURCE, (), node="n1", knee=5))
    described = with_profile(
        context("TFRecordDataset files=40 | batch 2"), files=FileUse(files=40, sweeps=(*others, sweep))
    )
    rewrites, silences = proposals("read-shards", described)
    assert outlines(rewrites) == _reads("n0", *lengths)
    assert bool(silences) is (knee == 1)


def test_predicted_bytes_count_the_readers_buffers() -> None:
    one, *_, last = check_proposes("read-shards", "list_files elements=4 | flat_map bytes=1k")
    assert (one.predicted_bytes, last.predicted_bytes) == (9_000, 4 * 3 * 33 * 1000)


_SMALL = FileUse(files=5000, bytes_total=5000 * 12_000, small=SmallFileCosts(256, 120e-6, 20e-6))
_LOADS = "list_files elements=5000 | map reads_file cpu=400us | batch 32"


def test_many_small_files_are_reported_with_the_gain_of_a_conversion() -> None:
    rewrites, (silence,) = proposals("read-shards", with_profile(context(_LOADS), files=_SMALL))
    assert not rewrites and silence.node == "n2"
    assert (
        "5,000 files of 11.7 KiB" in silence.why
        and "120 us per file, compared with 20 us per element from one TFRecord file" in silence.why
    )
    assert "30 % of the operator's time" in silence.why and "1.33 times as fast" in silence.why
    assert "tf.io.TFRecordWriter" in silence.why and "tf.data.TFRecordDataset(shards" in silence.why


SAYS_NOTHING = {
    "few": (_LOADS, replace(_SMALL, files=999, bytes_total=999 * 12_000)),
    "large": (_LOADS, replace(_SMALL, bytes_total=5000 * 300_000)),
    "not measured": (_LOADS, replace(_SMALL, small=None)),
    "not read by a map": ("list_files elements=5000 | map | batch 2", _SMALL),
    "read by a reader": ("TFRecordDataset files=1 | map", _SMALL),
}


@pytest.mark.parametrize("name", SAYS_NOTHING)
def test_conversion_is_not_suggested(name: str) -> None:
    words, use = SAYS_NOTHING[name]
    assert proposals("read-shards", with_profile(context(words), files=use)) == ([], [])


def test_files_that_take_longer_alone_than_the_operator_are_all_of_its_time() -> None:
    small = replace(_SMALL, small=SmallFileCosts(256, 500e-6, 20e-6))
    _, (silence,) = proposals("read-shards", with_profile(context(_LOADS), files=small))
    assert "100 % of the operator's time" in silence.why and "25.00 times as fast" in silence.why
    assert proposals("read-shards", with_profile(context(_LOADS), files=small, operators=())) == ([], [])


def test_conversion_without_a_visible_gain_is_not_advised() -> None:
    small = replace(_SMALL, small=SmallFileCosts(256, 22e-6, 20e-6))
    _, (silence,) = proposals("read-shards", with_profile(context(_LOADS), files=small))
    assert "would make no visible difference here" in silence.why and "times as fast" not in silence.why
