"""What a running pipeline reads, and sweeps of parallel reads over files and over a pipeline's own source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.measurement import RunFailed
from pipetune.core.profile import OperatorProfile, Stage
from pipetune.core.storage import Reader
from pipetune.tf.measure import file_reads, reading, source_reads
from pipetune.tf.measure.sweep import Rates, sweep
from pipetune.tf.pipelines import live

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
def test_bytes_per_element_are_those_of_the_records(shards: list[str]) -> None:
    if reading.counts() is None:
        pytest.skip("this system does not count what a process reads")
    found = reading.observe(tf.data.TFRecordDataset(shards).batch(10), seconds=0.3)
    assert found.elements > 10 and found.seconds > 0
    assert found.bytes_per_element == pytest.approx(10 * (RECORD + 16), rel=0.2)  # a record has 16 bytes of its own
    assert (found.storage_bytes_per_element or 0.0) <= (found.bytes_per_element or 0.0)


def test_a_pipeline_that_reads_nothing_reads_next_to_nothing() -> None:
    if reading.counts() is None:
        pytest.skip("this system does not count what a process reads")
    found = reading.observe(Dataset.range(1000).batch(10), seconds=0.1)
    assert (found.bytes_per_element or 0.0) * found.elements < 10_000
    assert found.opened == frozenset()


def test_files_that_python_code_opens_are_seen(tmp_path: Path) -> None:
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
    assert reading.observe(dataset, seconds=0.1).opened == {str(path)}


def test_a_pipeline_that_cannot_run_is_said() -> None:
    with pytest.raises(RunFailed, match="gives nothing"):
        reading.observe(Dataset.range(0), seconds=0.1)
    with pytest.raises(RunFailed, match="NotFoundError"):
        reading.observe(tf.data.TFRecordDataset(["/nowhere/at/all"]), seconds=0.1)


@pytest.mark.parametrize("text", ["rchar: 5\n", "nonsense", ""])
def test_counts_that_are_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "io").write_text(text)
    assert reading.counts(tmp_path / "io") is None
    assert reading.counts(tmp_path / "none") is None


@pytest.mark.mission("A5.sweep")
@pytest.mark.usefixtures("patient_sweeps")
def test_a_sweep_measures_every_level_in_every_round_and_finds_the_knee() -> None:
    asked: list[int] = []
    dropped: list[int] = []

    def window(parallel: int, seconds: float) -> Rates:
        asked.append(parallel)
        time.sleep(0.001)
        return Rates(bytes=1e6 * min(parallel, 4), elements=100.0 * min(parallel, 4))

    found = sweep(Reader.FILES, window, limit_seconds=0.5, seed=3, before=lambda: dropped.append(1))
    assert found is not None
    assert (found.knee, found.falling, found.cold) == (4, False, True)
    assert found.ceiling == pytest.approx(4e6)
    assert [level.parallel for level in found.levels] == [1, 2, 4, 8, 16, 32]
    rounds = len(found.levels[0].bytes_per_second and range(found.levels[0].bytes_per_second.pairs))
    assert rounds >= 2 and len(asked) == 6 * rounds + 1 and len(dropped) == 6 * rounds
    first, second = asked[1:7], asked[7:13]
    assert sorted(first) == sorted(second) == [1, 2, 4, 8, 16, 32] and first != second


def test_a_sweep_that_takes_too_long_is_given_up() -> None:
    def window(parallel: int, seconds: float) -> Rates:
        time.sleep(0.05)
        return Rates(bytes=1.0)

    assert sweep(Reader.FILES, window, limit_seconds=0.02) is None


def test_a_sweep_of_what_delivers_nothing_is_none() -> None:
    assert sweep(Reader.FILES, lambda parallel, seconds: Rates(), limit_seconds=0.1) is None


def test_files_are_read_whole_and_in_segments(tmp_path: Path) -> None:
    small, large, empty = tmp_path / "small", tmp_path / "large", tmp_path / "empty"
    small.write_bytes(b"x" * 10)
    empty.write_bytes(b"")
    with open(large, "wb") as stream:
        stream.truncate(2 * file_reads.SEGMENT_BYTES + 5)
    found = file_reads.segments([str(small), str(large), str(empty), str(tmp_path / "gone")])
    size = file_reads.SEGMENT_BYTES
    assert found == [
        (str(small), 0, 10),
        (str(large), 0, size),
        (str(large), size, size),
        (str(large), 2 * size, 5),
    ]


@pytest.mark.usefixtures("patient_sweeps")
def test_a_sweep_over_files_reads_them(shards: list[str]) -> None:
    found = file_reads.sweep_files(shards, limit_seconds=0.6)
    assert found is not None and found.reader is Reader.FILES and not found.cold
    assert all(level.bytes_per_second is not None and level.bytes_per_second.low > 0 for level in found.levels)
    assert found.ceiling is not None and found.ceiling > 1e6
    assert file_reads.sweep_files([], limit_seconds=0.6) is None


def test_files_that_vanish_meanwhile_do_not_stop_a_sweep(tmp_path: Path, shards: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.write_bytes(b"x" * 100)
    stretches = file_reads.InTurn([(str(gone), 0, 100), *file_reads.segments(shards)])
    gone.unlink()
    assert file_reads.read(stretches, 4, 0.05) > 0


def test_a_cold_window_reads_nothing_twice(tmp_path: Path) -> None:
    names = [tmp_path / str(number) for number in range(3)]
    for name in names:
        name.write_bytes(b"x" * 100_000)
    found = file_reads.segments(list(map(str, names)))
    turns = file_reads.InTurn(found, once=True)
    started = time.perf_counter()
    rate = file_reads.read(turns, 2, 60.0)
    spent = time.perf_counter() - started
    assert turns.take() is None and spent < 30.0  # it ended with the files, not with the time
    assert 300_000 / spent <= rate  # all of them, each once: no thread was left behind
    again = file_reads.InTurn(found)
    assert [again.take() for _ in range(4)] == [*found, found[0]]


def costs(node: str, **more: Any) -> OperatorProfile:
    return OperatorProfile(node, Stage.EXTRACT, **more)


@pytest.mark.usefixtures("patient_sweeps")
@pytest.mark.parametrize(
    "make",
    [
        lambda names: Dataset.from_tensor_slices(names).interleave(tf.data.TFRecordDataset, cycle_length=2),
        lambda names: Dataset.from_tensor_slices(names).flat_map(tf.data.TFRecordDataset),
        lambda names: tf.data.TFRecordDataset(names),
    ],
)
def test_a_source_is_read_with_no_more_readers_than_files(shards: list[str], make: Any) -> None:
    source = live.read(make(shards).map(tf.strings.length).batch(10))
    node = source_reads.source_of(source)
    assert node is not None and source_reads.readers(source, node) == 4
    found = source_reads.sweep_source(
        source, node, costs(node.id, bytes_out=RECORD, wall_seconds=1e-5), limit_seconds=0.6
    )
    assert found is not None and found.reader is Reader.SOURCE and found.node == node.id
    assert [level.parallel for level in found.levels] == [1, 2, 4]
    for level in found.levels:
        assert level.bytes_per_second is not None and level.elements_per_second is not None
        ratio = level.bytes_per_second.median / level.elements_per_second.median
        assert ratio == pytest.approx(RECORD)


@pytest.mark.usefixtures("patient_sweeps")
def test_a_source_that_waits_gains_from_parallel_reads() -> None:
    """Reading only sleeps, and there are threads enough for it: the rate rises with the readers on any machine."""
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
    node = source_reads.source_of(source)
    assert node is not None
    calls = len(opened)
    found = source_reads.sweep_source(source, node, costs(node.id, wall_seconds=0.02), limit_seconds=3.0)
    assert found is not None and len(opened) > calls
    one, _, four = (level.elements_per_second for level in found.levels)
    assert one is not None and four is not None and four.median > 1.4 * one.median
    assert found.knee is None or found.knee > 1
    assert found.ceiling is None  # its bytes are not known


def test_what_opens_no_reader_is_no_source() -> None:
    assert source_reads.source_of(live.read(Dataset.range(9).batch(3).map(lambda x: x + 1))) is None
    windows = Dataset.range(9).window(3).flat_map(lambda one: one.batch(3))
    assert source_reads.source_of(live.read(windows)) is None


def test_a_source_that_raises_has_no_sweep() -> None:
    source = live.read(tf.data.TFRecordDataset(["/nowhere/at/all"]))
    node = source_reads.source_of(source)
    assert node is not None
    assert source_reads.sweep_source(source, node, None, limit_seconds=0.2) is None
