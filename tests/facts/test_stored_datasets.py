"""What TensorFlow promises for datasets stored on disk, as `rewrites/cache_places.py` assumes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

Dataset = tf.data.Dataset
COUNT = 11


def _numbers(dataset: Any) -> list[int]:
    return [int(element) for element in dataset]


def _files(folder: Path) -> list[str]:
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]


def _machine_of(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: processors)


@pytest.mark.parametrize("processors", [1, 2, 8])
def test_saved_dataset_is_one_shard_and_keeps_its_order(
    processors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Dataset.range(COUNT).map(lambda x: x * 3).save(str(tmp_path / "saved"))
    assert len([name for name in _files(tmp_path) if name.endswith(".snapshot")]) == 1
    _machine_of(processors, monkeypatch)
    loaded = Dataset.load(str(tmp_path / "saved"))
    assert _numbers(loaded) == _numbers(loaded) == [3 * number for number in range(COUNT)]


def test_several_shards_keep_their_order_only_with_enough_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Dataset.range(COUNT).save(str(tmp_path), shard_func=lambda x: x % 4)
    orders = {}
    for processors in (2, 4, 8):
        _machine_of(processors, monkeypatch)
        orders[processors] = _numbers(Dataset.load(str(tmp_path)))
    assert orders[4] == orders[8] == list(range(COUNT)) != orders[2]


def test_saved_dataset_needs_little_more_than_its_bytes_on_disk(tmp_path: Path) -> None:
    Dataset.range(50).map(lambda x: tf.fill([4096], tf.cast(x, tf.float32))).save(str(tmp_path))
    stored = sum(map(os.path.getsize, _files(tmp_path)))
    assert 50 * 4096 * 4 <= stored < 1.05 * 50 * 4096 * 4


def test_snapshot_is_written_in_the_first_epoch_and_read_in_the_next(tmp_path: Path) -> None:
    calls = tf.Variable(0, dtype=tf.int64)

    def counted(x: Any) -> Any:
        calls.assign_add(1)
        return x * 3

    stored = Dataset.range(COUNT).map(counted).snapshot(str(tmp_path))
    assert _numbers(stored) == _numbers(stored) == [3 * number for number in range(COUNT)]
    assert int(calls) == COUNT


@pytest.mark.exhaustive
def test_snapshot_of_the_same_files_is_sometimes_rewritten(tmp_path: Path) -> None:
    records = str(tmp_path / "records")
    with tf.io.TFRecordWriter(records) as writer:
        writer.write(b"word")
    for _ in range(60):
        lengths = tf.data.TFRecordDataset(records).map(lambda word: tf.strings.length(word) * 3)
        list(lengths.snapshot(str(tmp_path / "stored")))
    written = sum(name.endswith(".metadata") for name in _files(tmp_path))
    assert 1 < written < 30


def test_snapshot_keeps_its_order_only_with_enough_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine_of(4, monkeypatch)
    assert _numbers(Dataset.range(COUNT).snapshot(str(tmp_path))) == list(range(COUNT))

    def read_by(processors: int) -> list[int]:
        """What a machine with `processors` processors reads of it; see the test above for the repeated attempts."""
        _machine_of(processors, monkeypatch)
        for attempt in range(60):
            folder = tmp_path.with_name(f"{tmp_path.name}-{processors}-{attempt}")
            shutil.copytree(tmp_path, folder)
            before = len(_files(folder))
            numbers = _numbers(Dataset.range(COUNT).snapshot(str(folder)))
            if len(_files(folder)) == before:
                return numbers
        raise AssertionError("it was written anew each time")

    assert read_by(8) == read_by(4) == list(range(COUNT)) != read_by(2)


def test_snapshot_is_rewritten_for_another_graph_but_not_for_changed_files(tmp_path: Path) -> None:
    records, folder = str(tmp_path / "records"), str(tmp_path / "stored")

    def write(word: bytes) -> None:
        with tf.io.TFRecordWriter(records) as writer:
            writer.write(word)

    read = tf.data.TFRecordDataset(records)
    stored = read.map(lambda word: word + "!").snapshot(folder)
    write(b"old")
    assert [word.numpy() for word in stored] == [b"old!"]
    write(b"new")
    assert [word.numpy() for word in stored] == [b"old!"]
    assert [word.numpy() for word in read.map(lambda word: word + "?").snapshot(folder)] == [b"new?"]


_PYTHON = """
import sys, tensorflow as tf
times = lambda x: x * int(sys.argv[2])
mapped = tf.data.Dataset.range(4).map(lambda x: tf.numpy_function(times, [x], tf.int64))
print({tuple(int(x) for x in mapped.snapshot(sys.argv[1])) for _ in range(int(sys.argv[3]))})
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_snapshot_is_not_rewritten_for_changed_python_code(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PYTHON, str(tmp_path)]
    for factor, times in (("1", "1"), ("5", "60")):
        done = subprocess.run([*command, factor, times], capture_output=True, text=True, check=True)
        assert "(0, 1, 2, 3)" in done.stdout  # written by the other program


def test_snapshot_of_large_elements_is_readable_only_without_compression(tmp_path: Path) -> None:
    large = Dataset.range(2).map(lambda x: tf.random.stateless_uniform([80_000], [x, x]))  # 312 KiB
    by_default = large.snapshot(str(tmp_path / "default"))
    assert len(list(by_default)) == 2
    with pytest.raises(tf.errors.ResourceExhaustedError, match="262144"):
        list(by_default)
    plain = large.snapshot(str(tmp_path / "plain"), compression=None)
    assert len(list(plain)) == len(list(plain)) == 2
