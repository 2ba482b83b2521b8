"""Elements of an epoch: readers are iterated, what follows them is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.pipelines import element_counting, live
from pipetune.pipelines.element_counting import count_elements

Dataset = tf.data.Dataset


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    (tmp_path / "lines").write_text("line\n" * 23)
    return tf.data.TextLineDataset(str(tmp_path / "lines"))


@pytest.mark.parametrize("further", [
    lambda lines: lines.concatenate(lines.map(tf.strings.upper)).shuffle(9),
    lambda lines: Dataset.zip((lines.skip(3), lines)),
    lambda lines: lines.batch(5).enumerate(),
    lambda lines: lines.take(7).batch(2),
    lambda lines: lines.take(40),
    lambda lines: lines.skip(-1),
    lambda lines: lines.shard(5, 4),
    lambda lines: lines.batch(5).batch(2, drop_remainder=True).prefetch(2),
])  # fmt: skip
def test_count_is_that_of_an_epoch(lines: Any, further: Callable[[Any], Any]) -> None:
    dataset = further(lines)
    source = live.read(dataset)
    assert count_elements(source, limit_seconds=60)[source.pipeline.output.id] == sum(1 for _ in dataset)


@pytest.mark.parametrize(
    "further",
    [lambda lines: lines.filter(lambda x: tf.strings.length(x) > 2), lambda lines: lines.repeat().take(9).repeat()],
)
def test_count_that_only_running_would_show_is_unknown(lines: Any, further: Callable[[Any], Any]) -> None:
    source = live.read(further(lines))
    assert source.pipeline.output.id not in count_elements(source, limit_seconds=60)


def test_rows_of_a_table_are_counted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2\n" * 23)
    rows = tf.data.experimental.CsvDataset(str(tmp_path / "rows.csv"), [tf.int32, tf.int32])
    assert count_elements(live.read(rows.map(tf.add).batch(5)), limit_seconds=60) == {"n0": 23, "n1": 23, "n2": 5}


def test_what_was_counted_before_is_not_read_again(lines: Any, tmp_path: Path) -> None:
    source = live.read(lines.batch(5))
    known = count_elements(source, limit_seconds=60)
    (tmp_path / "lines").write_text("line\n" * 2)
    assert count_elements(source, limit_seconds=60, known=known) == known == {"n0": 23, "n1": 5}


def test_elements_of_generators_are_counted_in_limited_time() -> None:
    def numbers(count: int) -> Any:
        return Dataset.from_generator(lambda: iter(range(count)), output_signature=tf.TensorSpec([], tf.int64))

    found = count_elements(live.read(numbers(23).map(lambda x: x + 1).batch(5)), limit_seconds=60)
    assert list(found.values())[-2:] == [23, 5]
    of_each = Dataset.range(3).interleave(lambda _: numbers(5))
    assert count_elements(live.read(of_each), limit_seconds=60) == {"n0": 3, "n1": 15}
    assert count_elements(live.read(numbers(1 << 40)), limit_seconds=0.1) == {}


def test_slow_first_elements_do_not_keep_the_others_from_being_counted_at_once() -> None:
    """As those of an interleave, which open a file each."""
    opening = tf.data.Dataset.range(9).map(lambda x: tf.numpy_function(lambda y: time.sleep(0.02) or y, [x], tf.int64))
    dataset = opening.concatenate(tf.data.Dataset.range(60_000))
    batched: list[int] = []

    class Counted:  # one call per element of as many takes longer than the limit
        element_spec = tf.TensorSpec([], tf.int64)

        def __iter__(self) -> Any:
            return iter(dataset)

        def batch(self, rows: int) -> Any:
            batched.append(rows)
            return dataset.batch(rows)

    assert element_counting._iterate(Counted(), 4.0) == 60_009 and len(batched) == 1


def test_counting_slow_elements_ends_within_a_batch_of_them() -> None:
    """The clock was looked at every 256 elements: batches that a generator makes took 36 s of a budget of 60 s."""
    drawn: list[int] = []

    def slow() -> Iterator[int]:
        for number in range(256):
            time.sleep(0.02)
            drawn.append(number)
            yield number

    dataset = tf.data.Dataset.from_generator(slow, output_signature=tf.TensorSpec([], tf.int64))
    assert count_elements(live.read(dataset), limit_seconds=0.1) == {}
    assert 0 < len(drawn) < 100


@pytest.fixture
def records(tmp_path: Path) -> list[str]:
    names = [str(tmp_path / f"{number}.tfrecord") for number in range(3)]
    for number, name in enumerate(names):
        with tf.io.TFRecordWriter(name) as writer:
            for size in range(5 * number):
                writer.write(b"x" * size)
    return names


@pytest.mark.parametrize("read", [
    tf.data.TFRecordDataset,
    lambda names: tf.data.TFRecordDataset(names, num_parallel_reads=2),
    lambda names: tf.data.TFRecordDataset(Dataset.from_tensor_slices(names).shuffle(3)),
    lambda names: Dataset.from_tensor_slices(names).interleave(tf.data.TFRecordDataset, num_parallel_calls=2),
    lambda names: Dataset.from_tensor_slices(names).flat_map(tf.data.TFRecordDataset),
])  # fmt: skip
def test_records_are_counted_without_reading_them(read, records, monkeypatch) -> None:
    monkeypatch.setattr(element_counting, "_iterate", lambda *_: None)
    source = live.read(read(records))
    assert count_elements(source, limit_seconds=60)[source.pipeline.output.id] == 15


def test_what_is_no_plain_record_is_read_to_be_counted(records: list[str], tmp_path: Path) -> None:
    packed = str(tmp_path / "packed")
    with tf.io.TFRecordWriter(packed, "GZIP") as writer:
        for _ in range(7):
            writer.write(b"record")
    for dataset, count in (
        (tf.data.TFRecordDataset(packed, "GZIP"), 7),
        (Dataset.from_tensor_slices([packed]).interleave(lambda name: tf.data.TFRecordDataset(name, "GZIP")), 7),
        (Dataset.from_tensor_slices(records).interleave(lambda name: tf.data.TFRecordDataset([name, name])), 30),
        (Dataset.from_tensor_slices(records).interleave(lambda name: tf.data.TFRecordDataset(name).take(2)), 4),
        (
            Dataset.from_tensor_slices((records, [1, 2, 3])).interleave(lambda name, _: tf.data.TFRecordDataset(name)),
            15,
        ),
        (Dataset.from_tensor_slices(records).enumerate().flat_map(lambda _, name: tf.data.TFRecordDataset(name)), 15),
        (Dataset.range(4).interleave(lambda _: tf.data.TFRecordDataset(records[1])), 20),
        (Dataset.from_tensor_slices(records).interleave(lambda _: tf.data.TFRecordDataset(records[2])), 30),
    ):
        source = live.read(dataset)
        assert count_elements(source, limit_seconds=60)[source.pipeline.output.id] == count
