"""JPEG files, one an image, as ImageNet is published: windows of 500 x 375 pixels of two photographs, some 110 kB.

python examples/staged/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, cut, jpeg, photographs

WIDTH, HEIGHT = 500, 375
QUALITY = 98
SEED = 22


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    sources = photographs()
    for number in range(72 if small else 320):
        which = draw.randrange(len(sources))
        image, lower_half = cut(sources[which], draw, width=WIDTH, height=HEIGHT)
        (folder / f"image-{number:05d}-class-{2 * which + int(lower_half)}.jpg").write_bytes(jpeg(image, QUALITY))


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
