"""Handwritten digits, 28 x 28 grey pixels, in 8 TFRecord files: what every example here but `tfds` reads.

The 1,797 digits of `examples/digits` (8 x 8 pixels) scaled up, each four times, a little turned.

    python examples/distributed/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, digits, serialised, write_shards

SIDE_PIXELS = 28
DEGREES = (-12, -4, 4, 12)
FILES = 8


def make(folder: Path, small: bool) -> None:
    records = []
    for degrees in DEGREES[:1] if small else DEGREES:
        for digit, label in zip(*digits(), strict=True):
            image = Image.fromarray((digit * 15.9).astype(np.uint8)).resize((SIDE_PIXELS, SIDE_PIXELS))
            records.append(serialised({"image": [image.rotate(degrees).tobytes()], "label": [int(label)]}))
    write_shards(folder, records, FILES)


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
