"""`parallel-map`, `parallel-interleave` and `map-and-batch-fusion`: where they are proposed and where not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pipetune.core.edits import Consent, Safety, SetArgument
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.rewrites.parallel_reads import effective_cycle_length
from tests.rewrites.tables import Row, functions, outlines, proposal_test, rows, silent_test
from tests.rules import check_no_proposal, check_proposes, context, proposals

_PASSES = "experimental_optimization."
_OFF = {"options": {f"{_PASSES}apply_default_optimizations": False}}
_UNORDERED = {"options": {"deterministic": False}}


def _calls(safety: str, *numbers: int, node: str = "n1") -> list[str]:
    return [f"{safety} {node}.num_parallel_calls={number}" for number in numbers]


MAP_SILENT: list[Row] = [
    ("range 9 | [batch 2 or filter | batch 2 or scan | batch 2]", None),
    ("list_files | interleave | batch 2", None),
    *functions("range 9 | map ?", "variable=w writes table print file unknown"),
    ("range 9 | map [variable=w random or variable=w python or 4 variable=w]", "reads the variable w"),
    ("range 9 | map python print", "PrintV2"),
    ("range 9 | map synchronous=True", "synchronous"),
    # Python code that runs in parallel, and is measured to compute: more calls would wait for each other.
    ("range 9 | map 2 python cpu=2ms waits=0us", "at most 500 elements/s"),
    ("range 9 | map 4 python cpu=2ms waits=2ms", "at most 250 elements/s (4.0 ms each, 50% of that waiting)"),
    ("range 9 | map 2 python_random python cpu=2ms waits=0us", {"cores": 8}, "hold the GIL"),
]

MAP_FIRES: list[Row] = [
    ("range 9 | map", {"cores": 1}, _calls("EXACT", 2)),
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
    ("TFRecordDataset[ or  filenames=one num_parallel_reads=4] | batch 2", None),
    ("list_files | flat_map | batch 2", None),  # left to `read-shards`
    ("list_files elements=4 | TFRecordDataset | batch 2", None),
    *functions("list_files | interleave ?", "variable=w writes table print unknown"),
    ("list_files | interleave file python", "side effect"),
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


def test_parallel_calls_never_exceed_the_cycle_length() -> None:
    for cores, cycle in itertools.product((1, 2, 3, 8, 64), (1, 2, 3, 7, 16)):
        for rewrite in check_proposes(
            "parallel-interleave", f"list_files | interleave cycle_length={cycle}", cores=cores
        ):
            values = {edit.name: edit.value for edit in rewrite.edits if isinstance(edit, SetArgument)}
            length, calls = values.get("cycle_length", cycle), values["num_parallel_calls"]
            assert isinstance(length, int) and isinstance(calls, int) and calls <= length


def test_predicted_bytes_count_the_readers_buffers() -> None:
    words = "list_files elements=2 | interleave cycle_length=2 block_length=1 bytes=1k"
    assert [rewrite.predicted_bytes for rewrite in check_proposes("parallel-interleave", words)] == [18_000] * 2


_FUSES = "already fuses"
_NO_MAP = "is upstream of it, not a map"

FUSION_SILENT: list[Row] = [
    ("range 9 | map", None),
    ("range 9 | map | padded_batch 2", "padded_batch has no fused variant"),
    ("range 9 | map | ragged_batch 2", "ragged_batch has no fused variant"),
    ("range 9 | map[ or  2 or  AUTOTUNE random] | batch 2", _FUSES),
    ("range 9 | map [random or variable=w or python] | batch 2", "one call at a time"),
    ("a = range 9 | map; b = a | batch 2; zip a b", _FUSES),  # another reader does not prevent it
    ("range 9 | map | batch 2 drop_remainder=True", _FUSES),
    ("range 9 | map | batch 2", _UNORDERED, _FUSES),
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
    ("range 9 | batch 2", _NO_MAP),
    ("range 9 | map use_unbounded_threadpool=True | batch 2", "unbounded thread pool"),
]  # fmt: skip

_SWITCH_ON = f"EXACT options.{_PASSES}map_and_batch_fusion=True"

MOVES: list[Row] = [
    ("range 9 | map | [shuffle 5 or prefetch 5 or take 5 or skip 5 or shard 2 index=0 or repeat] | batch 2",
     ["EXACT n2>n0"]),
    ("range 9 | map | map | shuffle 5 | batch 2", ["EXACT n3>n1"]),
    ("range 9 | map [raises or 2 deterministic=False] | shuffle 5 | batch 2", ["EXACT n2>n0"]),
    ("range 9 | map 2 deterministic=False | repeat | batch 2", ["REORDERS n2>n0"]),
    ("range 9 | map random | [shuffle 5 or repeat or take 5 or skip 5 or shard 2 index=0] | batch 2",
     ["STATISTICAL n2>n0"]),
    ("range 9 | map | batch 2", {"options": {f"{_PASSES}map_and_batch_fusion": False}}, [_SWITCH_ON]),
    ("range 9 | map | batch 2", _OFF, [_SWITCH_ON]),
]  # fmt: skip

test_fused_batch_stays = silent_test("map-and-batch-fusion", FUSION_SILENT)


def _moves(words: str, **fields: Any) -> tuple[list[str], list[str]]:
    """The rewrites other than a parallel batch, and the reasons for none."""
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


@pytest.mark.mission("A4.fusion")
def test_fusion_observed_at_runtime_leaves_no_proposal() -> None:
    words = "range 9 | map | batch 2 num_parallel_calls=2"
    assert check_no_proposal("map-and-batch-fusion", words, observed_kernels={"n2": "MapAndBatch"})


def test_moved_buffer_is_priced_by_what_it_holds() -> None:
    words = "range 9 bytes=8 | map bytes=1000 | prefetch 10 | batch 2"
    (move,) = (one for one in check_proposes("map-and-batch-fusion", words) if "n2>n0" in outlines([one])[0])
    assert move.predicted_bytes == 80 - 10_000
    assert "9.7 KiB less" in " ".join(move.notes)
