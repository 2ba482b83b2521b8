"""JPEG files in a folder for each class, as Imagenette has them: windows of 500 x 375 pixels of two photographs.

python examples/simclr/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, cut, jpeg, photographs

WIDTH, HEIGHT = 500, 375
QUALITY = 98
SEED = 21


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    sources = photographs()
    for number in range(72 if small else 400):
        which = draw.randrange(len(sources))
        image, _ = cut(sources[which], draw, width=WIDTH, height=HEIGHT)
        path = folder / ("china", "flower")[which] / f"image-{number:04d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(image, QUALITY))


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
