"""Writes the rows that the scripts of this folder read: TFRecord files of 24 numbers and a class each.

The images are those of the photos example: run its `make_data.py` first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from making import command_line, serialised

NUMBERS = 24
FILES = {"train": 8, "validation": 2, "test": 2}


def make(folder, small):
    import tensorflow as tf

    draw = np.random.default_rng(0)
    rows = 50 if small else 10_000
    for split, files in FILES.items():
        for number in range(files):
            with tf.io.TFRecordWriter(str(folder / f"{split}-{number}-of-{files}.tfrecord")) as writer:
                for values in draw.normal(size=(rows, NUMBERS)).astype("float32"):
                    writer.write(serialised({"numbers": values.tolist(), "class": [int(values.sum() > 0)]}))


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
