"""Predictions of several workers are put into the order of the source, by the modules' variant with indices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipetune.core.distribution import DeliveryMode
from pipetune.core.errors import CannotExpress
from pipetune.core.session import DistributedResult

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("counted_for_two_workers", "patient_looks")]

from pipetune.distributed.verify import coverage
from pipetune.pipelines import live
from tests.distributed.numbered_files import helper_module, records
from tests.distributed.written_modules import emit, load

FILES, RECORDS = 5, 4

HELPERS = """
import tensorflow as tf

def parse(record):
    return tf.strings.to_number(record, tf.int64)

def odd(number):
    return number % 2 == 1

def row(number):
    return {"id": number, "x": tf.fill([2], tf.cast(number, tf.float32))}
"""


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("helpers")
    with helper_module("index_helpers", HELPERS, folder) as module:
        yield module


def shuffled(folder: Path, helpers: Any) -> Any:
    """Odd numbers in a random order, in batches of which the last is dropped."""
    dataset = tf.data.Dataset.list_files(records(folder, files=FILES, each=RECORDS))
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2, deterministic=False)
    dataset = dataset.map(helpers.parse).filter(helpers.odd).map(helpers.row)
    return dataset.shuffle(8).batch(6, drop_remainder=True).repeat().prefetch(1)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> tuple[Any, DistributedResult]:
    """The pipeline over five files, and its module for several workers."""
    folder = tmp_path_factory.mktemp("written")
    dataset = shuffled(folder, helpers)
    return dataset, emit(dataset, "multiworker", folder)


def datasets(module: Any, workers: int) -> list[Any]:
    return [
        module.indexed_dataset_fn(tf.distribute.InputContext(workers, worker, workers)) for worker in range(workers)
    ]


def predicted(module: Any, made: list[Any], steps: int | None = None) -> list[int]:
    """Predictions of a model that returns the `id` of each row, for all batches of all workers, the last one first."""
    pairs = [pair for one in reversed(made) for pair in (one if steps is None else one.take(steps))]
    found = module.in_order([{"said": batch["id"]} for _, batch in pairs], [index for index, _ in pairs])
    return list(map(int, found["said"]))


def told(result: DistributedResult) -> str:
    return " ".join(result.notes)


@pytest.mark.mission("B8.index")
def test_predictions_of_several_workers_are_in_the_order_of_the_source(
    written: tuple[Any, DistributedResult],
) -> None:
    _, result = written
    module = load(result)
    wanted = [number for number in range(FILES * RECORDS) if number % 2]
    said = f"With 2 and 3 workers indices put all {len(wanted)} rows back into the order of the source."
    assert said in told(result) and said in " ".join(result.module.split())
    for workers in (1, 2, 3):
        made = datasets(module, workers)
        assert predicted(module, made) == wanted
    as_given = [int(number) for one in made for _, batch in one for number in batch["id"]]
    assert sorted(as_given) == wanted != as_given, "they come as workers give them"


def test_rows_delivered_by_every_worker_are_taken_once(tmp_path: Path, helpers: Any) -> None:
    result = emit(shuffled(tmp_path, helpers), "parameter-server", tmp_path)
    assert "With 2 workers indices put all 10 rows back" in told(result), result.notes
    module = load(result)
    made = [module.indexed_dataset_fn(tf.distribute.InputContext(1, 0, 1)) for _ in range(2)]
    assert predicted(module, made, steps=4) == list(range(1, FILES * RECORDS, 2))


def test_rows_of_zipped_and_concatenated_sources_are_put_in_order(tmp_path: Path) -> None:
    first, second = tf.data.Dataset.range(10), tf.data.Dataset.range(100, 107)
    labels = tf.data.Dataset.from_tensor_slices(np.arange(17, dtype=np.float32) / 2)
    both = tf.data.Dataset.zip({"x": first.concatenate(second), "y": labels})
    result = emit(both.map(lambda pair: {"id": pair["x"], "half": pair["y"]}).batch(6), "multiworker", tmp_path)
    assert result.module, result.notes
    module = load(result)
    for workers in (2, 3):
        assert predicted(module, datasets(module, workers)) == [*range(10), *range(100, 107)]


def test_single_elements_are_stacked(tmp_path: Path) -> None:
    result = emit(tf.data.Dataset.range(9).map(lambda number: (number, -number)), "multiworker", tmp_path)
    module = load(result)
    pairs = [pair for one in datasets(module, 2) for pair in one]
    assert list(module.in_order([first for _, (first, _) in pairs], [index for index, _ in pairs])) == list(range(9))


def test_padded_batches_are_compared_by_index_only(tmp_path: Path) -> None:
    lengths = tf.data.Dataset.range(1, 8).map(lambda number: {"id": number, "x": tf.range(number)})
    padded = lengths.padded_batch(4, padding_values={"id": None, "x": tf.constant(-1, tf.int64)})
    result = emit(padded, "multiworker", tmp_path)
    assert "indices put all 7 indices back" in told(result), result.notes
    module = load(result)
    made = datasets(module, 2)
    assert predicted(module, made) == list(range(1, 8))
    assert any((batch["x"].numpy() == -1).any() for one in made for _, batch in one)


def unbatched() -> Any:
    return tf.data.Dataset.range(12).batch(3).flat_map(tf.data.Dataset.from_tensor_slices).batch(4)


def cut_anew() -> Any:
    return tf.data.Dataset.range(24).batch(8, drop_remainder=True).map(lambda batch: tf.reshape(batch, [-1, 2]))


@pytest.mark.parametrize(
    ("made", "why"),
    [(unbatched, "batch makes one element of several"), (cut_anew, "what stands behind the batch makes")],
)
def test_rows_that_are_not_those_of_the_source_have_no_indexed_variant(tmp_path: Path, made: Any, why: str) -> None:
    result = emit(made(), "multiworker", tmp_path)
    assert result.module and "indexed_dataset_fn" not in result.module
    assert why in told(result)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(tf.range(len(files), dtype=tf.int64), files)", "(tf.zeros(len(files), tf.int64), files)", "have one index"),
        ("dataset = dataset.shard(workers, worker)", "pass", "have one index"),
        ("shard(workers, worker)", "shard(workers + 1, worker)", "order of one"),
        ("(index * 2**32 + row, one)", "(index * 2**32 - worker_of(index) - row, one)", "does not run"),
    ],
)
@pytest.mark.mission("B8.index")
def test_wrong_indices_are_detected(
    written: tuple[Any, DistributedResult], monkeypatch: pytest.MonkeyPatch, old: str, new: str, reason: str
) -> None:
    monkeypatch.setattr(coverage, "WORKER_COUNTS", (2,))
    dataset, result = written
    at = result.module.index("def numbering_rows")
    broken = result.module[:at] + result.module[at:].replace(old, new, 1)
    assert broken != result.module
    with pytest.raises(CannotExpress, match=reason):
        coverage.check_order(
            broken, tuned=live.read(dataset).pipeline, delivery=DeliveryMode.PARTS, global_batch_size=6
        )
