"""Several processes at once: how errors are computed, and that real processes start, answer and exit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy import reading_process, sharing
from benchmarks.accuracy.sharing import SharingRow
from pipetune.core.results import RunFailed

TRAIN = """
import tensorflow as tf

def training_dataset():
    return tf.data.Dataset.range(1000).map(lambda x: tf.reduce_sum(tf.range(x + 20_000))).batch(4)
"""


def test_errors_are_of_the_median_rate_and_there_is_no_target() -> None:
    rows = [SharingRow("csv", 1, 110.0, 100.0, 90.0, 120.0), SharingRow("csv", 2, 150.0, 200.0, 190.0, 210.0)]
    result = sharing.summarize(rows)
    assert (result.runs, result.mean_abs_error, result.max_abs_error) == (2, pytest.approx(0.175), pytest.approx(0.25))
    first, *each = sharing.claims(result, quick=False)
    assert first.measured == "17.5%, at most 25.0%" and all(one.met is None for one in (first, *each))
    assert each[1].what == "csv, 2 processes at once"
    nothing = sharing.summarize([], notes=("csv was removed",))
    assert nothing.mean_abs_error is None and sharing.claims(nothing, quick=True)[0].measured == "not measured"


def test_empty_epoch_is_an_error() -> None:
    with pytest.raises(ValueError, match="epoch 1 has no element"):
        reading_process.read([], seconds=1, warmup_seconds=0)


def test_epochs_are_read_one_after_another() -> None:
    elements, seconds = reading_process.read([1, 2, 3], seconds=0.01, warmup_seconds=0.001)
    assert elements > 3 and seconds >= 0.01


def test_process_that_cannot_start_is_reported_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise RuntimeError('no data here')\n")
    with pytest.raises(RunFailed, match="no data here"), sharing.start_readers(tmp_path, 1):
        pass


@pytest.mark.exhaustive
def test_real_processes_read_at_the_same_time_and_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = lambda folder: {1: 100.0, 2: 200.0}  # noqa: E731, a profile takes half a minute
    constants = {"WINDOW_SECONDS": 0.5, "WARMUP_SECONDS": 0.2, "PROCESSES": (1, 2), "predict_rates": predicted}
    for name, value in constants.items():
        monkeypatch.setattr(sharing, name, value)
    (tmp_path / "train.py").write_text(TRAIN)
    one, two = sharing.measure_example(tmp_path, rounds=1, seed=0, progress=lambda activity: None)
    rows = [(row.example, row.processes, row.predicted) for row in (one, two)]
    assert rows == [(tmp_path.name, 1, 100.0), (tmp_path.name, 2, 200.0)]
    assert one.low == one.measured == one.high > 0 and two.measured > 0
    with sharing.start_readers(tmp_path, 2) as running:
        assert all(process.poll() is None for process in running)
    assert all(process.poll() is not None for process in running)
