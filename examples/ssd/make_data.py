"""Photographs of 640 x 480 pixels with boxes, like those of COCO, in 8 TFRecord files.

The photographs are windows of the two of `photos`. The objects are coloured shapes drawn onto them, 1 to 20 an
image; a few images have none.

    python examples/ssd/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, cut, jpeg, photographs, serialised, write_shards

WIDTH, HEIGHT = 640, 480
MOST_OBJECTS = 20
WITHOUT_OBJECTS = 150  # one in so many
QUALITY = 98
FILES = 8
SEED = 23


def record(number: int, sources: list[Image.Image], draw: random.Random) -> bytes:
    image, _ = cut(draw.choice(sources), draw, width=WIDTH, height=HEIGHT)
    canvas = ImageDraw.Draw(image)
    boxes, labels = [], []
    for _ in range(0 if number % WITHOUT_OBJECTS == 0 else draw.randint(1, MOST_OBJECTS)):
        width, height = draw.randint(24, WIDTH // 2), draw.randint(24, HEIGHT // 2)
        left, top = draw.randint(0, WIDTH - width), draw.randint(0, HEIGHT - height)
        label = draw.randint(1, 3)
        shape = {1: canvas.rectangle, 2: canvas.ellipse, 3: canvas.rounded_rectangle}[label]
        shape([left, top, left + width, top + height], fill=tuple(draw.randbytes(3)))
        boxes.append((top / HEIGHT, left / WIDTH, (top + height) / HEIGHT, (left + width) / WIDTH))
        labels.append(label)
    return serialised(
        {
            "image/encoded": [jpeg(image, QUALITY)],
            "image/object/bbox/ymin": [box[0] for box in boxes],
            "image/object/bbox/xmin": [box[1] for box in boxes],
            "image/object/bbox/ymax": [box[2] for box in boxes],
            "image/object/bbox/xmax": [box[3] for box in boxes],
            "image/object/class/label": labels,
        }
    )


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    sources = photographs()
    write_shards(folder, [record(number, sources, draw) for number in range(40 if small else 320)], FILES)


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
