"""The bytes and files a running pipeline reads, and sweeps of parallel reads over files and over its source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.profile import OperatorProfile, Stage
from pipetune.core.storage import SweepReader
from pipetune.measure import files, source_reads
from pipetune.measure.source_reads import Rates, sweep
from pipetune.pipelines import live

Dataset = tf.data.Dataset
RECORD = 10_000


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("shards")
    names = [str(folder / f"{number}.tfrecord") for number in range(4)]
    for name in names:
        with tf.io.TFRecordWriter(name) as writer:
            for _ in range(100):
                writer.write(os.urandom(RECORD))
    return names


@pytest.mark.mission("A5.sweep")
def test_bytes_per_element_are_the_stored_sizes_of_records(shards: list[str]) -> None:
    if source_reads.read_counters() is None:
        pytest.skip("this system does not count what a process reads")
    found = source_reads.observe(tf.data.TFRecordDataset(shards).batch(10), seconds=0.3)
    assert found.elements > 10 and found.seconds > 0
    assert found.bytes_per_element == pytest.approx(10 * (RECORD + 16), rel=0.2)  # each record has 16 bytes of framing
    assert (found.storage_bytes_per_element or 0.0) <= (found.bytes_per_element or 0.0)
    nothing = source_reads.observe(Dataset.range(1000).batch(10), seconds=0.1)
    assert (nothing.bytes_per_element or 0.0) * nothing.elements < 10_000
    assert nothing.opened_files == frozenset()


def test_files_opened_by_python_code_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "hidden.npy"
    np.save(path, np.arange(1000))
    written = tmp_path / "written.txt"

    def generate() -> Any:
        with open(path, "rb") as stream, open(written, "w") as other:
            for _ in range(50):
                time.sleep(0.002)
                other.write("x")
                yield len(stream.read(8))

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int32))
    assert source_reads.observe(dataset, seconds=0.1).opened_files == {str(path)}


@pytest.mark.mission("A5.sweep")
@pytest.mark.usefixtures("patient_sweeps")
def test_sweep_measures_all_levels_in_each_round_and_finds_the_knee() -> None:
    asked: list[int] = []
    dropped: list[int] = []

    def window(parallel: int, seconds: float) -> Rates:
        asked.append(parallel)
        time.sleep(0.001)
        return Rates(bytes=1e6 * min(parallel, 4), elements=100.0 * min(parallel, 4))

    found = sweep(SweepReader.FILES, window, limit_seconds=0.5, seed=3, before=lambda: dropped.append(1))
    assert found is not None
    assert (found.knee, found.falling, found.cold) == (4, False, True)
    assert found.ceiling == pytest.approx(4e6)
    assert [level.parallel for level in found.levels] == [1, 2, 4, 8, 16, 32]
    rounds = len(found.levels[0].bytes_per_second and range(found.levels[0].bytes_per_second.pairs))
    assert rounds >= 2 and len(asked) == 6 * rounds + 1 and len(dropped) == 6 * rounds
    first, second = asked[1:7], asked[7:13]
    assert sorted(first) == sorted(second) == [1, 2, 4, 8, 16, 32] and first != second


def test_sweep_that_exceeds_its_time_or_reads_nothing_is_none() -> None:
    def window(parallel: int, seconds: float) -> Rates:
        time.sleep(0.05)
        return Rates(bytes=1.0)

    assert sweep(SweepReader.FILES, window, limit_seconds=0.02) is None
    assert sweep(SweepReader.FILES, lambda parallel, seconds: Rates(), limit_seconds=0.1) is None


def test_large_files_are_divided_into_segments(tmp_path: Path) -> None:
    small, large, empty = tmp_path / "small", tmp_path / "large", tmp_path / "empty"
    small.write_bytes(b"x" * 10)
    empty.write_bytes(b"")
    with open(large, "wb") as stream:
        stream.truncate(2 * files.SEGMENT_BYTES + 5)
    found = files.segments([str(small), str(large), str(empty), str(tmp_path / "gone")])
    size = files.SEGMENT_BYTES
    assert found == [
        (str(small), 0, 10),
        (str(large), 0, size),
        (str(large), size, size),
        (str(large), 2 * size, 5),
    ]


@pytest.mark.usefixtures("patient_sweeps")
def test_sweep_over_files_measures_every_level(shards: list[str]) -> None:
    found = files.sweep_files(shards, limit_seconds=0.6)
    assert found is not None and found.reader is SweepReader.FILES and not found.cold
    assert all(level.bytes_per_second is not None and level.bytes_per_second.low > 0 for level in found.levels)
    assert found.ceiling is not None and found.ceiling > 1e6
    assert files.sweep_files([], limit_seconds=0.6) is None


def test_deleted_file_does_not_stop_a_sweep(tmp_path: Path, shards: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.write_bytes(b"x" * 100)
    stretches = files.SegmentQueue([(str(gone), 0, 100), *files.segments(shards)])
    gone.unlink()
    assert files.read_rate(stretches, 4, 0.05) > 0


def test_cold_window_reads_each_segment_once(tmp_path: Path) -> None:
    names = [tmp_path / str(number) for number in range(3)]
    for name in names:
        name.write_bytes(b"x" * 100_000)
    found = files.segments(list(map(str, names)))
    turns = files.SegmentQueue(found, once=True)
    started = time.perf_counter()
    rate = files.read_rate(turns, 2, 60.0)
    spent = time.perf_counter() - started
    assert turns.take() is None and spent < 30.0  # it ended with the files, before the time limit
    assert 300_000 / spent <= rate  # all files, each once, by all threads
    again = files.SegmentQueue(found)
    assert [again.take() for _ in range(4)] == [*found, found[0]]


def costs(node: str, **more: Any) -> OperatorProfile:
    return OperatorProfile(node, Stage.EXTRACT, **more)


@pytest.mark.sample(1)
@pytest.mark.usefixtures("patient_sweeps")
@pytest.mark.parametrize("make", [
    lambda names: Dataset.from_tensor_slices(names).interleave(tf.data.TFRecordDataset, cycle_length=2),
    lambda names: Dataset.from_tensor_slices(names).flat_map(tf.data.TFRecordDataset),
    lambda names: tf.data.TFRecordDataset(names),
])  # fmt: skip
def test_source_sweep_has_at_most_one_reader_per_file(shards: list[str], make: Any) -> None:
    source = live.read(make(shards).map(tf.strings.length).batch(10))
    node = source_reads.reading_operator(source)
    assert node is not None and source_reads.most_readers(source, node) == 4
    found = source_reads.sweep_source(
        source, node, costs(node.id, bytes_out=RECORD, wall_seconds=1e-5), limit_seconds=0.6
    )
    assert found is not None and found.reader is SweepReader.SOURCE and found.node == node.id
    assert [level.parallel for level in found.levels] == [1, 2, 4]
    for level in found.levels:
        assert level.bytes_per_second is not None and level.elements_per_second is not None
        ratio = level.bytes_per_second.median / level.elements_per_second.median
        assert ratio == pytest.approx(RECORD)


@pytest.mark.usefixtures("patient_sweeps")
def test_waiting_source_gains_from_parallel_reads() -> None:
    """Reading only sleeps and there are enough threads: the rate rises with the readers on any machine."""
    opened = []

    def generate(number: int) -> Any:
        opened.append(number)
        for _ in range(20):
            time.sleep(0.02)
            yield number

    def open_reader(number: Any) -> Any:
        return Dataset.from_generator(generate, args=(number,), output_signature=tf.TensorSpec([], tf.int64))

    threads = tf.data.Options()
    threads.threading.private_threadpool_size = 8
    source = live.read(Dataset.range(4).with_options(threads).interleave(open_reader, cycle_length=1))
    node = source_reads.reading_operator(source)
    assert node is not None
    calls = len(opened)
    found = source_reads.sweep_source(source, node, costs(node.id, wall_seconds=0.02), limit_seconds=3.0)
    assert found is not None and len(opened) > calls
    one, _, four = (level.elements_per_second for level in found.levels)
    assert one is not None and four is not None and four.median > 1.4 * one.median
    assert found.knee is None or found.knee > 1
    assert found.ceiling is None  # its bytes are not known


def test_pipeline_without_a_reader_or_that_fails_has_no_sweep() -> None:
    assert source_reads.reading_operator(live.read(Dataset.range(9).batch(3).map(lambda x: x + 1))) is None
    windows = Dataset.range(9).window(3).flat_map(lambda one: one.batch(3))
    assert source_reads.reading_operator(live.read(windows)) is None
    source = live.read(tf.data.TFRecordDataset(["/nowhere/at/all"]))
    node = source_reads.reading_operator(source)
    assert node is not None
    assert source_reads.sweep_source(source, node, None, limit_seconds=0.2) is None
