"""Filled last batches: they are full, the mask selects all of the data, and the cost of dropping them is reported."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.core.errors import CannotExpress
from pipetune.core.session import DistributedResult

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from pipetune.distributed.verify import coverage
from tests.distributed.written_modules import emit, load


def rows(count: int = 26, *, drop_remainder: bool = False) -> Any:
    dataset = tf.data.Dataset.range(count)
    dataset = dataset.map(lambda number: {"id": number, "name": tf.strings.as_string(number)})
    return dataset.batch(8, drop_remainder=drop_remainder)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> DistributedResult:
    """A module that can keep the remainder that the script drops."""
    return emit(rows(drop_remainder=True), "multiworker", tmp_path_factory.mktemp("written"))


def made(module: Any, workers: int, worker: int, replicas: int) -> list[tuple[Any, Any]]:
    return list(module.dataset_fn(tf.distribute.InputContext(workers, worker, replicas), fill=True))


@pytest.mark.mission("B7.offer")
def test_every_row_is_delivered_once_in_full_batches(written: DistributedResult) -> None:
    module = load(written)
    for workers, replicas in ((2, 2), (1, 2), (2, 4)):
        seen: Counter[int] = Counter()
        for worker in range(workers):
            batches = made(module, workers, worker, replicas)
            assert len(batches) % (replicas // workers) == 0, "whole steps of the replicas of this worker"
            for batch, mask in batches:
                assert len(batch["id"]) == len(mask) == 8 // replicas
                assert batch["id"].shape == (8 // replicas,)
                seen.update(int(number) for number in tf.boolean_mask(batch["id"], mask))
        assert seen == Counter(range(26)), (workers, replicas)
    assert "With fill=True all 26 elements came in full batches" in " ".join(written.module.split())


@pytest.mark.mission("B7.lost")
def test_dropped_and_filled_rows_are_reported_per_number_of_workers(
    written: DistributedResult, tmp_path: Path, counted_alone: None
) -> None:
    result = written
    assert [(row.dropped, row.filled) for row in result.checks] == [(2, 6), (2, 2), (2, 2)]
    dropped = "of 26 samples per epoch, drop_remainder drops 2, 2 and 2 with 2, 3 and 4 workers"
    assert any(note.startswith(dropped) for note in result.notes), result.notes
    one = emit(rows(), "mirrored", tmp_path)
    assert [(row.dropped, row.filled) for row in one.checks] == [(2, 6), (2, 4), (2, 6)]
    would = "drop_remainder would drop 2, 2 and 2 with 2, 3 and 4 replicas; with fill=True"
    assert any(would in note for note in one.notes)
    blended = emit(tf.data.Dataset.range(26).repeat().batch(8), "multiworker", tmp_path)
    assert blended.module and blended.checks[0].dropped is None


def test_tpu_module_has_fixed_shapes_and_predictions_of_every_row(tmp_path: Path, counted_alone: None) -> None:
    numbers = tf.data.Dataset.range(26).map(lambda number: tf.cast(number, tf.int32)).batch(8)
    module = load(emit(numbers, "tpu", tmp_path))
    for workers in (1, 2):
        parts = [module.indexed_dataset_fn(tf.distribute.InputContext(workers, one, 2)) for one in range(workers)]
        assert all(one.element_spec[1].shape == (4,) for one in parts)
        pairs = [pair for one in reversed(parts) for pair in one]
        said = module.in_order([batch for _, batch in pairs], [index for index, _ in pairs])
        assert said.tolist() == list(range(26))


def test_function_that_needs_full_batches_has_no_filled_variant(tmp_path: Path) -> None:
    fixed = tf.data.Dataset.range(26).batch(8, drop_remainder=True)
    result = emit(fixed.map(lambda batch: (batch, tf.reduce_sum(batch))), "multiworker", tmp_path)
    assert result.module and "fill=False" not in result.module
    assert any(note.startswith("last batches have no form that fills them") for note in result.notes), result.notes
    assert not any("with fill=True none is dropped" in note for note in result.notes)
    stored = emit(fixed.cache(str(tmp_path / "stored")), "multiworker", tmp_path)
    assert stored.module and "fill=False" not in stored.module, "the file may be without the remainder"


def test_function_that_needs_the_rows_of_all_replicas_is_refused(tmp_path: Path) -> None:
    """Eight numbers in two rows: of the four numbers of a replica, they would be rows of two."""
    fixed = tf.data.Dataset.range(26).batch(8, drop_remainder=True)
    result = emit(fixed.map(lambda batch: tf.reshape(batch, [2, -1])), "multiworker", tmp_path)
    assert result.module == "" and "(2, 4) int64 becomes (2, 2) int64" in result.notes[0], result.notes


@pytest.mark.parametrize("until", [1, 2])
def test_all_elements_are_claimed_only_if_both_passes_came_to_their_end(
    written: DistributedResult, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """The first pass takes longer than there is time, or neither does."""
    clock = itertools.chain([0.0] if until == 1 else [], itertools.repeat(100.0))
    monkeypatch.setattr(coverage, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    said = coverage.check_fill(written.module, global_batch_size=8, elements=26)
    assert ("all 26 elements" in said) is (until == 2)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("tf.range(wanted)", "tf.range(wanted - 1)", "of 4 rows"),
        ("place < count", "place < count + 1", "stand in full batches"),
        ("tf.logical_and(mask, real[:, tf.newaxis])", "mask", "stand in full batches"),
        (".batch(replicas).map(full_step).unbatch()", "", "no whole steps"),
    ],
)
def test_wrong_filling_is_detected(written: DistributedResult, old: str, new: str, reason: str) -> None:
    assert old in written.module
    with pytest.raises(CannotExpress, match=reason):
        coverage.check_fill(written.module.replace(old, new), global_batch_size=8, elements=26)
