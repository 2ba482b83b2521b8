"""The files that a pipeline names, found without running it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.pipelines import files, live

Dataset = tf.data.Dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{number}.tfrecord")) as writer:
            writer.write(b"record")
        (tmp_path / f"{number}.txt").write_text("one\ntwo\n")
    return tmp_path


def found(dataset: Any) -> set[str]:
    return {Path(path).name for path in files.named_files(live.read(dataset)).paths}


RECORDS = {"part-0.tfrecord", "part-1.tfrecord", "part-2.tfrecord"}


@pytest.mark.parametrize("make", [
    lambda names, pattern: Dataset.list_files(pattern).interleave(tf.data.TFRecordDataset),
    lambda names, pattern: tf.data.TFRecordDataset(names),
    lambda names, pattern: tf.data.TFRecordDataset(Dataset.from_tensor_slices(names)),
    lambda names, pattern: tf.data.TFRecordDataset(Dataset.list_files(pattern)),
    lambda names, pattern: tf.data.TextLineDataset(names),
    lambda names, pattern: tf.data.FixedLengthRecordDataset(names, 4),
    lambda names, pattern: tf.data.experimental.CsvDataset(names, [tf.string]),
    lambda names, pattern: Dataset.from_tensor_slices((names, [0, 1, 2])).map(
        lambda path, label: (tf.io.read_file(path), label)
    ),
    lambda names, pattern: Dataset.from_tensors(names).unbatch().map(tf.io.read_file),
    lambda names, pattern: Dataset.from_tensor_slices({"name": names, "take": [1, 1, 1]}).interleave(
        lambda shard: tf.data.TFRecordDataset(shard["name"])
    ),
    lambda names, pattern: Dataset.range(3).map(lambda i: tf.io.read_file(tf.gather(tf.constant(names), i))),
    lambda names, pattern: Dataset.range(3).flat_map(lambda i: tf.data.TFRecordDataset(list(names))),
])  # fmt: skip
def test_file_names_are_found_in_every_kind_of_reader(folder: Path, make: Callable[[list[str], str], Any]) -> None:
    names = sorted(str(path) for path in folder.glob("*.tfrecord"))
    assert found(make(names, str(folder / "*.tfrecord"))) == RECORDS


def test_user_functions_are_neither_called_nor_run(folder: Path) -> None:
    calls = []

    def load(path: Any) -> Any:
        calls.append(path)
        return tf.py_function(lambda one: calls.append(one) or one, [path], tf.string)

    dataset = Dataset.list_files(str(folder / "*.txt")).map(load)
    before = len(calls)
    assert found(dataset) == {"0.txt", "1.txt", "2.txt"} and len(calls) == before


def test_files_of_saved_datasets_and_caches_are_found(folder: Path) -> None:
    Dataset.range(5).save(str(folder / "saved"))
    saved = found(Dataset.load(str(folder / "saved")))
    assert saved and all((folder / "saved").rglob(name) for name in saved)
    cached = Dataset.range(5).cache(str(folder / "kept"))
    assert found(cached) == set()  # not written yet
    list(cached)
    assert found(cached) == {"kept.index", "kept.data-00000-of-00001"}


def test_text_is_not_taken_for_file_names() -> None:
    words = Dataset.from_tensor_slices(["a man", "a plan", "a canal"])
    assert files.named_files(live.read(words)) == files.NamedFiles()
    numbers = Dataset.range(10).map(lambda x: x + 1).batch(2)
    assert files.named_files(live.read(numbers)) == files.NamedFiles()


def test_missing_files_are_left_out_and_others_counted_once_with_and_without_their_scheme(folder: Path) -> None:
    names = [f"{before}{folder}/{name}.txt" for before, name in (("", 0), ("file://", 1), ("", 0), ("", "gone"))]
    assert found(tf.data.TextLineDataset(names)) == {"0.txt", "1.txt"}


def test_remote_names_are_counted_by_scheme() -> None:
    names = ["gs://bucket/a.tfrecord", "gs://bucket/b.tfrecord", "s3://bucket/c.tfrecord"]
    named = files.named_files(live.read(tf.data.TFRecordDataset(names)))
    assert dict(named.remote) == {"gs": 2, "s3": 1} and named.paths == ()


def test_search_stops_at_its_time_limit(folder: Path) -> None:
    source = live.read(tf.data.TextLineDataset([str(folder / "0.txt")] * 5))
    assert not files.named_files(source, limit_seconds=-1).complete
