"""Beside the report: a script that puts many small files into TFRecord files. pipetune offers it and never runs it."""

from __future__ import annotations

from pathlib import Path

from pipetune.core.files import write_text
from pipetune.core.storage import CONVERSION
from pipetune.stages.study import Study

SCRIPT = '''\
"""Puts the small files of a folder into a few TFRecord files, one record for each file, in the order of their paths.

    python convert_to_tfrecord.py FOLDER OUT --pattern "**/*.jpg" --shards 8

Written by pipetune, which does not run it. Nothing in FOLDER is changed; OUT must be new or empty. How to read the
records is in the last lines.
"""

import argparse
from pathlib import Path

import tensorflow as tf


def example(path, folder):
    """The record of one file: its bytes, and its path below the folder, which may say its label."""
    values = {"path": path.relative_to(folder).as_posix().encode(), "content": path.read_bytes()}
    feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[values[name]])) for name in values}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def convert(folder, out, pattern="**/*", shards=8):
    """Writes the records; how many there are."""
    paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"{out} is not empty.")
    for shard in range(min(shards, len(paths))):
        first, end = (len(paths) * number // min(shards, len(paths)) for number in (shard, shard + 1))
        with tf.io.TFRecordWriter(str(out / f"{shard:05}-of-{min(shards, len(paths)):05}.tfrecord")) as writer:
            for path in paths[first:end]:
                writer.write(example(path, folder))
    return len(paths)


def read(record):
    """The path and the bytes of one record, where the pipeline had a path and tf.io.read_file(path) before."""
    kind = tf.io.FixedLenFeature([], tf.string)
    found = tf.io.parse_single_example(record, {"path": kind, "content": kind})
    return found["path"], found["content"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pattern", default="**/*", help="of the files, below the folder")
    parser.add_argument("--shards", type=int, default=8, help="files to write, of 100 MB or more each")
    given = parser.parse_args()
    print(convert(given.folder, given.out, given.pattern, given.shards), "records. To read them, with read() above:")
    print(
        f"""
    shards = tf.data.Dataset.list_files({str(given.out / '*.tfrecord')!r})
    records = shards.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = records.map(read, num_parallel_calls=tf.data.AUTOTUNE)

shuffle(shards) and shuffle(records) take the place of a shuffle of the paths."""
    )
'''


def offer_conversion(study: Study) -> None:
    """Writes the script where a rule said that it would pay and there is a folder for results."""
    advised = any(CONVERSION in silence.why for silence in study.journal.result.silences)
    if advised and study.settings.out:
        write_text(Path(study.settings.out) / CONVERSION, SCRIPT)
