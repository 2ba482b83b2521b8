"""Files read ahead or several at a time: the promised order, and the patched source."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.edits import Rewrite, Safety, apply_edits
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.rewrites import parallel_reads
from pipetune.rewrites.rule import RuleContext
from tests.rewrites.on_data.patching import Sample, check_patch, proposed, script

FILES = 5

BEFORE = """
import glob
import os
import tensorflow as tf

FOLDER = os.path.dirname(__file__)
RECORDS = sorted(glob.glob(os.path.join(FOLDER, "*.tfrecord")))
LINES = sorted(glob.glob(os.path.join(FOLDER, "*.txt")))

def number(text):
    return tf.strings.to_number(text)
"""

CASES: dict[str, tuple[str, str]] = {
    "records": (
        'ds = tf.data.TFRecordDataset(RECORDS, "GZIP").batch(4)',
        'ds = tf.data.TFRecordDataset(RECORDS, "GZIP", num_parallel_reads={length}).batch(4)'),
    "opened by a function": ("""
        def lines(name):
            return tf.data.TextLineDataset(name).skip(1)

        ds = tf.data.Dataset.from_tensor_slices(LINES)
        ds = ds.flat_map(lines)
        ds = ds.map(number).batch(4)
        """, "ds = ds.interleave(lines, cycle_length={length}, block_length=1, num_parallel_calls=tf.data.AUTOTUNE)\n"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of unequal length, one of them empty."""
    made = tmp_path_factory.mktemp("shards")
    for file in range(FILES):
        numbers = range(10, 10 + (7 * file) % 15)
        (made / f"{file}.txt").write_text("".join(f"{number}\n" for number in numbers) or "09\n")
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        with tf.io.TFRecordWriter(str(made / f"{file}.tfrecord"), options) as writer:
            for number in numbers:
                writer.write(str(100 * file + number).encode())
    return made


def _source(folder: Path, text: str) -> tuple[Sample, live.LivePipeline, list[Rewrite]]:
    sample = script(folder, text, above=BEFORE)
    linecache.clearcache()
    return sample, *proposed(parallel_reads.propose_read_shards, sample.run().ds, cores=1)


def _elements(dataset: Any) -> list[Any]:
    return [element.tolist() if hasattr(element, "tolist") else element for element in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_reading_ahead_keeps_the_order(text: str, expected: str, folder: Path) -> None:
    sample, source, rewrites = _source(folder, text)
    assert [rewrite.safety for rewrite in rewrites] == [Safety.EXACT, *[Safety.REORDERS] * (len(rewrites) - 1)]
    made = replay(source, apply_edits(source.pipeline, rewrites[0].edits))
    for _ in range(3):
        assert _elements(made) == _elements(source.dataset)
    check_patch(sample, source, rewrites[0], expected=expected.format(length=1), elements=40)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
def test_reading_several_files_is_deterministic_in_another_order(name: str, folder: Path) -> None:
    text, expected = CASES[name]
    sample, source, rewrites = _source(folder, text)
    check_patch(sample, source, rewrites[1], expected=expected.format(length=2), elements=40)
    made = replay(source, apply_edits(source.pipeline, rewrites[1].edits))
    assert _elements(made) == _elements(made) != _elements(source.dataset)


def test_reader_arguments_are_read_from_the_dataset(folder: Path) -> None:
    """`TextLineDataset` does not keep its `num_parallel_reads`."""
    names = [str(path) for path in sorted(folder.glob("*.txt"))]
    for number in (None, 1, 3, tf.data.AUTOTUNE):
        for made in (
            tf.data.TextLineDataset(names, num_parallel_reads=number),
            tf.data.FixedLengthRecordDataset(names, 1, num_parallel_reads=number),
            tf.data.TFRecordDataset(names, num_parallel_reads=number),
        ):
            pipeline = live.read(made).pipeline
            arguments = pipeline.output.arguments
            assert (arguments["num_parallel_reads"], arguments["files"]) == (number, FILES)
            assert number is None or list(parallel_reads.propose_read_shards(RuleContext(pipeline))) == []
    shuffled = tf.data.Dataset.from_tensor_slices(names).filter(lambda name: True)
    assert live.read(tf.data.TextLineDataset(shuffled)).pipeline.output.argument("files") is None
