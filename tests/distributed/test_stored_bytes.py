"""Bytes that workers read from files compared with those they use, with elements of different sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune import tensorflow_private
from pipetune.distributed.verify import counting
from pipetune.distributed.verify.original import WorkerJob, measure_worker_coverage
from pipetune.pipelines import live

Data, Lines = tf.data.Dataset, tf.data.TextLineDataset

SIZES = ((1, 200, 3), (4, 5, 6), (1, 1, 500), (7, 8, 9))
"""Of the records of each file."""


def lines(folder: Path, sizes: Sequence[Sequence[int]] = SIZES) -> list[str]:
    names = [folder / f"part{index}" for index in range(len(sizes))]
    for name, of_file in zip(names, sizes, strict=True):
        name.write_text("".join("x" * size + "\n" for size in of_file))
    return [str(name) for name in names]


def records(folder: Path, sizes: Sequence[Sequence[int]] = SIZES, *, packing: str = "") -> list[str]:
    names = [str(folder / f"part{index}.tfrecord") for index in range(len(sizes))]
    for name, of_file in zip(names, sizes, strict=True):
        with tf.io.TFRecordWriter(name, options=packing) as writer:
            for size in of_file:
                writer.write(os.urandom(size))
    return names


def total(names: Sequence[str]) -> int:
    return sum(map(os.path.getsize, names))


def divided(dataset: Any, **job: Any) -> Coverage:
    found = measure_worker_coverage(live.read(dataset), WorkerJob(2, **job))
    assert found.coverage is not None, found.why
    return found.coverage


OF_LINES = [sum(of_file) + 3 for of_file in SIZES]
FIRST, SECOND = OF_LINES[0] + OF_LINES[2], OF_LINES[1] + OF_LINES[3]
EVERY = FIRST + SECOND


OWN = {"own_index": 0, "queries_index": True}


def long_lines(names: list[str]) -> Any:
    return Lines(names).filter(lambda line: tf.strings.length(line) > 8)


def fourth(names: list[str]) -> Any:
    return Data.from_tensor_slices(names).shard(4, 0).interleave(Lines)


@pytest.mark.parametrize(
    ("made", "job", "expected"),
    [
        (Lines, {"policy": "FILE"}, [(FIRST, FIRST), (SECOND, SECOND)]),
        (Lines, {"policy": "OFF"}, [(EVERY, EVERY)] * 2),
        # lines 0, 2, 4... for the first worker, 1, 3, 5... for the second: batches of two are cut into single lines
        (Lines, {"policy": "DATA"}, [(EVERY, 524), (EVERY, 233)]),
        # a shard after the reader reads everything
        (lambda names: Lines(names).shard(2, 0), OWN, [(EVERY, 524), (EVERY, 233)]),
        # the wrong number of shards: two files are read by no worker
        (fourth, OWN, [(OF_LINES[0], OF_LINES[0]), (OF_LINES[1], OF_LINES[1])]),
        # sharded by the script and again by TensorFlow
        (lambda names: Lines(names).shard(2, 0), {"policy": "FILE", **OWN}, [(FIRST, 2 + 4 + 2), (SECOND, 6 + 8 + 10)]),
        # records that a filter drops are read; nothing of the second file is left
        (long_lines, {"policy": "FILE"}, [(FIRST, 201 + 501), (OF_LINES[3], 10)]),
    ],
)
@pytest.mark.mission("B3.waste")
def test_bytes_read_and_used_follow_the_sharding(
    tmp_path: Path, made: Callable[[list[str]], Any], job: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    found = divided(made(lines(tmp_path)).batch(2), **job)
    assert [(one.read_bytes, one.used_bytes) for one in found.workers] == expected
    assert found.bytes_read_over_used == sum(read for read, _ in expected) / sum(used for _, used in expected)


def zipped(name: Any) -> Any:
    return tf.data.TFRecordDataset(name, compression_type="GZIP").map(tf.strings.length)


def deflated(name: Any) -> Any:
    return tf.data.TFRecordDataset(name, compression_type="ZLIB")


@pytest.mark.parametrize(
    ("packing", "read"),
    [
        ("", lambda names: tf.data.TFRecordDataset(names)),
        ("GZIP", lambda names: Data.from_tensor_slices(names).interleave(zipped, cycle_length=2)),
        ("ZLIB", lambda names: Data.from_tensor_slices(names).shuffle(9).flat_map(deflated)),
    ],
)
def test_records_use_their_share_of_a_compressed_file(tmp_path: Path, packing: str, read: Any) -> None:
    names = records(tmp_path, packing=packing)
    found = divided(read(names).batch(2), policy="FILE")
    parts = [total(names[::2]), total(names[1::2])]
    assert [(one.read_bytes, one.used_bytes) for one in found.workers] == list(zip(parts, parts, strict=True))


def without_header(names: list[str]) -> Any:
    return Data.from_tensor_slices(names).flat_map(lambda name: Lines(name).skip(1))


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (lambda names: Data.from_tensor_slices((names, [3, 1, 0, 2])).map(lambda n, y: (tf.io.read_file(n), y)), True),
        (without_header, True),  # the remaining lines have equal parts of all bytes of their file
        # the bytes of dropped lines are unknown
        (lambda names: without_header(names).filter(lambda line: tf.strings.length(line) > 3), False),
        (lambda names: Data.from_tensor_slices(names).flat_map(long_lines), False),
        (lambda names: Data.from_tensor_slices(names), False),  # names that are not opened
    ],
)
def test_bytes_are_known_for_whole_files_and_unknown_after_a_filter(
    tmp_path: Path, made: Callable[[list[str]], Any], known: bool
) -> None:
    names = lines(tmp_path)
    found = divided(made(names).batch(2), policy="DATA")
    if known:
        assert found.read_bytes == 2 * total(names)
        assert found.used_bytes == pytest.approx(total(names), abs=2)  # shares are rounded for each worker
    else:
        assert found.bytes_read_over_used is None


def test_bytes_read_agree_with_the_system_s_counters(tmp_path: Path) -> None:
    """Compared with the bytes of this process's read calls."""
    names = records(tmp_path, [(700_000, 10, 300_000), (5, 900_000), (400_000, 20), (30, 600_000, 1)])
    dataset = tf.data.TFRecordDataset(names).map(tf.strings.length).batch(2)
    for policy in ("FILE", "DATA"):
        found = divided(dataset, policy=policy)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
        for worker, share in enumerate(found.workers):
            whole = dataset.with_options(options)
            mine = tensorflow_private.worker_pipeline(whole, workers=2, worker=worker, replicas=2)
            before = _read_so_far()
            lengths = [int(length) for batch in mine.as_numpy_iterator() for length in batch]
            really = _read_so_far() - before
            assert share.read_bytes is not None and share.read_bytes <= really < share.read_bytes + 300_000
            assert share.used_bytes == sum(lengths) + 16 * len(lengths)


def _read_so_far() -> int:
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


def test_bytes_are_divided_evenly_over_equal_digests(tmp_path: Path) -> None:
    """As with a service, through which numbers are not passed on."""
    names = records(tmp_path, [(1, 2), (3,)])
    source = live.read(tf.data.TFRecordDataset(names).map(lambda _: 7).filter(lambda x: x > 0).batch(2))
    found = counting.expect(source, source, source.pipeline, "", numbers=False)
    assert found.key is ElementIdentity.DIGEST and found.stored is not None
    ((key, share),) = found.stored.bytes_by_key.items()
    assert share == total(names) / 3 and found.stored.used_bytes({key: 3}) == total(names)
