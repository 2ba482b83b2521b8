"""JPEG images of the size ImageNet has, 500 x 375 pixels and some 110 kB, in 16 TFRecord files.

Each is a random window of one of the two photographs of `photos`. The label says which, and which half of it: 1 to 4.

    python examples/resnet/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, cut, jpeg, photographs, serialised, write_shards

WIDTH, HEIGHT = 500, 375
QUALITY = 98
FILES = 16
SEED = 20


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    sources = photographs()
    records = []
    for _ in range(80 if small else 480):
        which = draw.randrange(len(sources))
        image, lower_half = cut(sources[which], draw, width=WIDTH, height=HEIGHT)
        label = 1 + 2 * which + int(lower_half)
        records.append(serialised({"image/encoded": [jpeg(image, QUALITY)], "image/class/label": [label]}))
    write_shards(folder, records, FILES)


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
