"""Modules that are read by real processes on this machine, and processes that fail or hang."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipetune.core.distribution import DeliveryMode, ElementIdentity
from pipetune.distributed import writing

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.distributed.collect.parts import collect as collect_parts
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known
from pipetune.distributed.verify.coverage import Counted, count
from pipetune.pipelines import live
from tests.distributed.numbered_files import helper_module, records
from tests.processes import order, service_processes, side_by_side
from tests.processes.side_by_side import NotRun, running

FILES, RECORDS = 5, 4

HELPERS = """
import tensorflow as tf


def parse(record):
    return tf.strings.to_number(record, tf.int64) % 5


def build(pattern):
    dataset = tf.data.Dataset.list_files(pattern)
    return dataset.interleave(tf.data.TFRecordDataset, cycle_length=2).map(parse).shuffle(8).batch(4)
"""


INDEXED = """

def indexed_dataset_fn(*, size=None, rank=None):
    if size is None:
        rank, size = rank_and_size()
    indices = tf.data.Dataset.range(20).shuffle(20).filter(lambda index: index % size == rank)
    return indices.batch(3).map(lambda index: (index, index))


def in_order(predictions, indices):
    import numpy as np

    order = np.argsort(np.concatenate(indices))
    return np.concatenate(predictions)[order]
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Any]:
    """Twenty numbers below 5 from five files; each occurs four times, so that values do not identify elements."""
    with helper_module("processes_helpers", HELPERS, tmp_path) as helpers:
        yield helpers.build(records(tmp_path, files=FILES, each=RECORDS))


def side_by_side_of(dataset: Any, name: str) -> Any:
    """The coverage by real processes that read the module written for the dataset."""
    source, kind = live.read(dataset), kinds.find(name)
    parts = collect_parts(source, source.pipeline)
    written = kind.emit(parts.parts, Known("train.py"))
    counted = writing.count_deliveries(kind, written, source, source.pipeline, parameter=parts.parameter)
    assert counted.expectation is not None
    if kind.delivery is DeliveryMode.SERVICE:
        serve, rows = dict(written.companions)["serve.py"], written.batch_size or 1
        return service_processes.run(written.text, serve, counted.expectation, splits=written.splits, full_batch=rows)
    rows = counted.checks[0].per_replica_batch or written.batch_size
    return side_by_side.run(
        written.text,
        counted.expectation,
        delivery=kind.delivery,
        global_batch_size=written.global_batch_size,
        full_batch=rows,
    ).coverage


def python(*programs: str) -> list[tuple[str, ...]]:
    return [(sys.executable, "-c", program) for program in programs]


# any processes


def test_successful_processes(tmp_path: Path) -> None:
    with running(tmp_path, python("print('a')", "open('/dev/null')"), [{}, {}]) as started:
        started.wait_until_done(100)
        assert started.printed(0) == "a\n"


def test_each_process_has_its_own_variables_and_none_of_another_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", "another")
    shows = "import os; print(os.environ.get('TF_CONFIG'), os.environ.get('HOROVOD_RANK'))"
    with running(tmp_path, python(shows, shows), [{"HOROVOD_RANK": "0"}, {"TF_CONFIG": "mine"}]) as started:
        started.wait_until_done(100)
        assert [started.printed(0), started.printed(1)] == ["None 0\n", "mine None\n"]


def test_failed_process_is_named_and_others_are_ended(tmp_path: Path) -> None:
    programs = python("import time; time.sleep(600)", "import sys; print('one'); sys.exit('the reason')")
    with (
        pytest.raises(NotRun, match="Process 1 ended with 1: the reason"),
        running(tmp_path, programs, [{}, {}]) as started,
    ):
        started.wait_until_done(100)
    assert all(process.returncode is not None for process in started.processes)


def test_wait_ends_at_timeout_or_process_exit(tmp_path: Path) -> None:
    sleeps = python("import time; time.sleep(600)")
    with pytest.raises(NotRun, match="took too long"), running(tmp_path, sleeps, [{}]) as started:
        started.wait_for(lambda: False, 0.2)
    assert started.processes[0].returncode is not None
    with pytest.raises(NotRun, match="Process 0 ended with 0"), running(tmp_path, python("pass"), [{}]) as started:
        started.wait_for(lambda: False, 60)


def test_missing_program_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="cannot be started"), running(tmp_path, [(str(tmp_path / "missing"),)], [{}]):
        pass


# modules


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
    parts = collect_parts(source, source.pipeline).parts
    made = kinds.find("horovod").emit(parts, Known("train.py"))
    counted: Counted = count(
        made.text,
        source,
        tuned=source.pipeline,
        shard_by=made.shard_by,
        batch_size=4,
        delivery=DeliveryMode.RANKS,
        worker_counts=(2,),
    )
    assert counted.expectation is not None
    options: dict[str, Any] = {"delivery": DeliveryMode.RANKS, "full_batch": 4, "most_steps": 5}
    # Both ranks read the first part: the values do not reveal it.
    wrong = made.text.replace(".shard(size, rank)", ".shard(size, 0)")
    ran = side_by_side.run(wrong + INDEXED, counted.expectation, **options)
    found = ran.coverage
    assert (found.never, found.once, found.twice) == (8, 0, 12)
    assert [one.elements for one in found.workers] == [12, 12]
    assert [one.batches for one in found.workers] == [5, 5], "data without end is read for so many steps"
    assert ran.in_order is True, "what its indices number is divided by the true rank"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_service_of_processes_delivers_an_epoch(dataset: Any) -> None:
    found = side_by_side_of(dataset, "service")
    assert found.complete and found.servers == 2 and found.elements == 20
    (reader,) = found.workers
    assert reader.elements == 20 and reader.batches is not None and reader.batches >= 5
    assert (reader.read_bytes, reader.used_bytes) == (350, 350), "what its workers read together"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([[4, 0], [2]], [[1, 3]], True),
        ([[4, 0]], [[1, 3]], True),  # a missing element is detected by the counts
        ([[4, 0], [2]], [[1, 2]], False),  # a repeated element
    ],
)
def test_indices_of_all_processes_restore_order(
    tmp_path: Path, first: list[list[int]], second: list[list[int]], expected: bool
) -> None:
    namespace: dict[str, Any] = {"tf": tf}
    exec(INDEXED, namespace)
    module = SimpleNamespace(**namespace)
    assert order.restored(module, tmp_path, range(2)) is None, "nothing was written"
    for process, batches in enumerate((first, second)):
        np.savez(tmp_path / f"indices-{process}.npz", *map(np.array, batches))
    assert order.restored(module, tmp_path, range(2)) is expected
    assert order.restored(SimpleNamespace(dataset_fn=None), tmp_path, range(2)) is None
