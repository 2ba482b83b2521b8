"""The cost of opening many small files: a sample read one by one, and the same bytes from one TFRecord file."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from pipetune.core import scratch
from pipetune.core.storage import SmallFiles
from pipetune.tf.measure import windows

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_FILES = 256  # in the sample, from all over the data
_ROUNDS = 3  # of both ways, alternately
_MOST_BYTES = 64 << 20


def compare(paths: Sequence[str], *, folder: str = "") -> SmallFiles | None:
    """Returns seconds per file both ways, in one thread; None if a file cannot be read or the sample is too large.

    Args:
        paths: of all files; a sample from all over the data is read.
        folder: directory for the temporary TFRecord file; if it does not exist, the system's directory for such files.
    """
    chosen = list(paths[:: max(1, len(paths) // _FILES)])[:_FILES]
    with scratch.folder("files", within=folder if os.path.isdir(folder) else None) as place:
        together = os.path.join(place, "all.tfrecord")
        try:
            if not chosen or sum(map(os.path.getsize, chosen)) > _MOST_BYTES:
                return None
            with tf.io.TFRecordWriter(together) as writer:
                for path in chosen:
                    with open(path, "rb") as file:
                        writer.write(file.read())
            ways = (tf.data.Dataset.from_tensor_slices(chosen).map(tf.io.read_file), tf.data.TFRecordDataset(together))
            rounds = [[_seconds(windows.undisturbed(way)) for way in ways] for _ in range(_ROUNDS)]
        except (OSError, tf.errors.OpError):
            return None
    apart, as_one = (statistics.median(seconds) / len(chosen) for seconds in zip(*rounds, strict=True))
    return SmallFiles(len(chosen), apart, as_one)


def _seconds(dataset: Any) -> float:
    """Seconds from requesting the first element to having the last; elements are consumed inside TensorFlow."""
    started = time.perf_counter()
    dataset.reduce(0, lambda total, content: total + tf.strings.length(content)).numpy()
    return time.perf_counter() - started
