"""Modules that are read by real processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.distribution import DeliveryMode, ElementIdentity
from pipetune.distributed import writing

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.distributed.collect.parts import collect as collect_parts
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known
from pipetune.distributed.verify.coverage import count
from pipetune.pipelines import live
from tests.distributed.numbered_files import helper_module, records
from tests.processes import side_by_side

FILES, RECORDS = 5, 4

HELPERS = """
import tensorflow as tf


def parse(record):
    return tf.strings.to_number(record, tf.int64) % 5


def build(pattern):
    dataset = tf.data.Dataset.list_files(pattern)
    return dataset.interleave(tf.data.TFRecordDataset, cycle_length=2).map(parse).shuffle(8).batch(4)
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Any]:
    """Twenty numbers below 5 from five files; each occurs four times, so that values do not identify elements."""
    with helper_module("processes_helpers", HELPERS, tmp_path) as helpers:
        yield helpers.build(records(tmp_path, files=FILES, each=RECORDS))


def side_by_side_of(dataset: Any, name: str) -> Any:
    """The coverage by real processes that read the module written for the dataset."""
    source, kind = live.read(dataset), kinds.find(name)
    parts, parameter = collect_parts(source, source.pipeline)
    written = kind.emit(parts, Known("train.py"))
    counted = writing.count_deliveries(kind, written, source, source.pipeline, parameter=parameter)
    assert counted.expectation is not None
    if kind.delivery is DeliveryMode.SERVICE:
        serve, rows = dict(written.companions)["serve.py"], written.batch_size or 1
        return side_by_side.run_with_service(
            written.text, serve, counted.expectation, splits=written.splits, full_batch=rows
        )
    rows = counted.checks[0].per_replica_batch or written.batch_size
    return side_by_side.run(
        written.text,
        counted.expectation,
        delivery=kind.delivery,
        global_batch_size=written.global_batch_size,
        full_batch=rows,
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_workers_of_cluster_share_an_epoch(dataset: Any) -> None:
    found = side_by_side_of(dataset, "multiworker")
    assert found.complete and (found.elements, found.told_by) == (20, ElementIdentity.INDEX)
    assert [(one.elements, one.batches, one.short_batches) for one in found.workers] == [(12, 6, 0), (8, 4, 0)]
    assert found.by_file and [one.cells for one in found.workers] == [(4, 0, 4, 0, 4), (0, 4, 0, 4, 0)]
    assert found.first_out == 4 and found.idle_workers == ()
    assert [(one.read_bytes, one.used_bytes) for one in found.workers] == [(210, 210), (140, 140)]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_ranks_are_determined_by_variables_of_horovodrun(dataset: Any) -> None:
    source = live.read(dataset.repeat())
    parts, _ = collect_parts(source, source.pipeline)
    kind = kinds.find("horovod")
    made = kind.emit(parts, Known("train.py"))
    counted = count(kind, made, source, source.pipeline)
    assert counted.expectation is not None
    options: dict[str, Any] = {"delivery": DeliveryMode.RANKS, "full_batch": 4, "most_steps": 5}
    # Both ranks read the first part: the values do not reveal it.
    wrong = made.text.replace(".shard(size, rank)", ".shard(size, 0)")
    found = side_by_side.run(wrong, counted.expectation, **options)
    assert (found.never, found.once, found.twice) == (8, 0, 12)
    assert [one.elements for one in found.workers] == [12, 12]
    assert [one.batches for one in found.workers] == [5, 5], "data without end is read for so many steps"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_service_of_processes_delivers_an_epoch(dataset: Any) -> None:
    found = side_by_side_of(dataset, "service")
    assert found.complete and found.servers == 2 and found.elements == 20
    (reader,) = found.workers
    assert reader.elements == 20 and reader.batches is not None and reader.batches >= 5
    assert (reader.read_bytes, reader.used_bytes) == (350, 350), "what its workers read together"
