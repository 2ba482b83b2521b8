"""What opening many small files costs: some of them read one by one, and the same bytes from one TFRecord file."""

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

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_FILES = 256  # read, from all over the data
_ROUNDS = 3  # of both, in turns
_MOST_BYTES = 64 << 20


def compare(paths: Sequence[str], *, folder: str = "") -> SmallFiles | None:
    """Seconds per file both ways, in one thread; None where a file cannot be read.

    Args:
        paths: of all files; some from every part are read.
        folder: where the TFRecord file may stand for a moment; the system's own for such files where there is none.
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
    """The time from asking for the first element to having the last; they are counted inside TensorFlow."""
    started = time.perf_counter()
    dataset.reduce(0, lambda total, content: total + tf.strings.length(content)).numpy()
    return time.perf_counter() - started
