"""`read-shards`: where it is proposed and where not, and what it reports for many small files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.storage import FileUse, SmallFileCosts, Sweep, SweepReader
from tests.rewrites.tables import Row, functions, outlines, proposal_test, silent_test, with_profile
from tests.rules import check_proposes, context, proposals

NAME = "read-shards"

SILENT: list[Row] = [
    ("range 9 | map | batch 2", ""),
    ("[from_tensor_slices | batch 2 or from_generator or load]", ""),
    # No files are opened for the elements.
    ("range 9 | flat_map inner=[TensorSliceDataset or GeneratorDataset python]", ""),
    ("range 9 | window 3 | flat_map inner=BatchDatasetV2", ""),
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


FIRES: list[Row] = [
    ("TFRecordDataset files=40 | batch 2", _reads("n0", 2, 16)),
    ("TFRecordDataset files=2 | batch 2", _reads("n0", 2)),
    ("TextLineDataset files=9", {"cores": 8}, _reads("n0", 8, 9)),
    ("FixedLengthRecordDataset", _reads("n0", 2, 16)),
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

test_no_other_reading = silent_test(NAME, SILENT)
test_files_ahead_or_several = proposal_test(NAME, FIRES)


def test_reason_for_one_file_at_a_time_before_a_take() -> None:
    _, silences = proposals(NAME, context("TFRecordDataset files=40 | take 9"))
    why = "One file at a time: with more, take (train.py:2) would select different elements."
    assert [silence.why for silence in silences] == [why]


@pytest.mark.parametrize(("knee", "lengths"), [(None, (2, 16)), (4, (4,)), (64, (40,)), (1, ())])
def test_number_of_files_follows_the_sweep(knee: int | None, lengths: tuple[int, ...]) -> None:
    sweep = Sweep(SweepReader.SOURCE, (), node="n0", knee=knee)
    others = (Sweep(SweepReader.FILES, (), knee=3), Sweep(SweepReader.SOURCE, (), node="n1", knee=5))
    described = with_profile(
        context("TFRecordDataset files=40 | batch 2"), files=FileUse(files=40, sweeps=(*others, sweep))
    )
    rewrites, silences = proposals(NAME, described)
    assert outlines(rewrites) == _reads("n0", *lengths)
    assert bool(silences) is (knee == 1)


def test_predicted_bytes_count_the_readers_buffers() -> None:
    one, *_, last = check_proposes(NAME, "list_files elements=4 | flat_map bytes=1k")
    assert (one.predicted_bytes, last.predicted_bytes) == (9_000, 4 * 3 * 33 * 1000)


_SMALL = FileUse(files=5000, bytes_total=5000 * 12_000, small=SmallFileCosts(256, 120e-6, 20e-6))
_LOADS = "list_files elements=5000 | map reads_file cpu=400us | batch 32"


def test_many_small_files_are_reported_with_the_gain_of_a_conversion() -> None:
    rewrites, (silence,) = proposals(NAME, with_profile(context(_LOADS), files=_SMALL))
    assert not rewrites and silence.node == "n2"
    assert (
        "5,000 files of 11.7 KiB" in silence.why
        and "120 us per file, compared with 20 us per element from one TFRecord file" in silence.why
    )
    assert "30% of the operator's time" in silence.why and "1.33 times as fast" in silence.why
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
    assert proposals(NAME, with_profile(context(words), files=use)) == ([], [])


def test_files_that_take_longer_alone_than_the_operator_are_all_of_its_time() -> None:
    small = replace(_SMALL, small=SmallFileCosts(256, 500e-6, 20e-6))
    _, (silence,) = proposals(NAME, with_profile(context(_LOADS), files=small))
    assert "100% of the operator's time" in silence.why and "25.00 times as fast" in silence.why
    assert proposals(NAME, with_profile(context(_LOADS), files=small, operators=())) == ([], [])


def test_conversion_without_a_visible_gain_is_not_advised() -> None:
    small = replace(_SMALL, small=SmallFileCosts(256, 22e-6, 20e-6))
    _, (silence,) = proposals(NAME, with_profile(context(_LOADS), files=small))
    assert "would make no visible difference here" in silence.why and "times as fast" not in silence.why
