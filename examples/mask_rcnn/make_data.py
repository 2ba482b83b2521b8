"""Photographs with boxes and masks, like those of COCO, upright ones and wide ones, in 8 TFRecord files.

The photographs are windows of the two of `photos`. The objects are coloured shapes drawn onto them, 1 to 20 an
image. The mask of an object is a PNG file of 112 x 112 pixels that covers its box.

    python examples/mask_rcnn/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, cut, jpeg, photographs, serialised, write_shards

LONG, SHORT = 640, 480
MASK_PIXELS = 112
MOST_OBJECTS = 20
QUALITY = 98
FILES = 8
SEED = 24


def mask(label: int) -> bytes:
    """The shape of an object in its box, as a PNG file."""
    image = Image.new("L", (MASK_PIXELS, MASK_PIXELS))
    canvas = ImageDraw.Draw(image)
    shape = {1: canvas.rectangle, 2: canvas.ellipse, 3: canvas.regular_polygon}[label]
    if label == 3:
        shape((MASK_PIXELS / 2, MASK_PIXELS / 2, MASK_PIXELS / 2), 6, fill=255)
    else:
        shape([0, 0, MASK_PIXELS - 1, MASK_PIXELS - 1], fill=255)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def record(sources: list[Image.Image], draw: random.Random) -> bytes:
    width, height = (LONG, SHORT) if draw.random() < 0.7 else (SHORT, LONG)
    image, _ = cut(draw.choice(sources), draw, width=width, height=height)
    boxes, labels, masks = [], [], []
    for _ in range(draw.randint(1, MOST_OBJECTS)):
        wide, high = draw.randint(24, width // 2), draw.randint(24, height // 2)
        left, top = draw.randint(0, width - wide), draw.randint(0, height - high)
        label = draw.randint(1, 3)
        data = mask(label)
        with Image.open(io.BytesIO(data)) as shape:
            image.paste(tuple(draw.randbytes(3)), (left, top), shape.resize((wide, high)))
        boxes.append((top / height, left / width, (top + high) / height, (left + wide) / width))
        labels.append(label)
        masks.append(data)
    return serialised(
        {
            "image/encoded": [jpeg(image, QUALITY)],
            "image/object/bbox/ymin": [box[0] for box in boxes],
            "image/object/bbox/xmin": [box[1] for box in boxes],
            "image/object/bbox/ymax": [box[2] for box in boxes],
            "image/object/bbox/xmax": [box[3] for box in boxes],
            "image/object/class/label": labels,
            "image/object/mask": masks,
        }
    )


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    sources = photographs()
    write_shards(folder, [record(sources, draw) for _ in range(24 if small else 240)], FILES)


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
