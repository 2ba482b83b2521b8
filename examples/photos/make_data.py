"""Cut two real photographs into about 2,000 JPEG files, stored in TFRecord shards. Nothing is downloaded.

Random windows of `china.jpg` and `flower.jpg`, beside this file, scaled and compressed as differently as real
collections are, give images of 50 to 110 kB. The label says which photograph a window comes from and whether its
centre lies in the upper or the lower half: four classes.

    python examples/photos/make_data.py [--out DIRECTORY] [--count 2000] [--shards 16]

The same arguments give the same images (with the same version of Pillow). A folder that is complete is left
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import jpeg, photographs

CLASSES = ("china, upper half", "china, lower half", "flower, upper half", "flower, lower half")
SMALLEST_BYTES, LARGEST_BYTES = 50_000, 110_000
SMALLEST_SIDE_PIXELS = 288
SEED = 20


def cut(photograph: Image.Image, draw: random.Random) -> tuple[Image.Image, bool]:
    """A random window of the photograph at a random scale, and whether its centre lies in the lower half."""
    width = draw.randint(SMALLEST_SIDE_PIXELS + 12, photograph.width)
    height = draw.randint(SMALLEST_SIDE_PIXELS + 12, photograph.height)
    left = draw.randint(0, photograph.width - width)
    top = draw.randint(0, photograph.height - height)
    window = photograph.crop((left, top, left + width, top + height))
    smallest_scale = SMALLEST_SIDE_PIXELS / min(width, height)
    scale = draw.uniform(smallest_scale, 1.1)
    size = (max(round(width * scale), SMALLEST_SIDE_PIXELS), max(round(height * scale), SMALLEST_SIDE_PIXELS))
    return window.resize(size, Image.Resampling.BICUBIC), top + height / 2 > photograph.height / 2


def compress_to(image: Image.Image, wanted_bytes: int) -> bytes | None:
    """The JPEG whose size comes nearest to `wanted_bytes`; None where no quality gives an allowed size."""
    low, high = 40, 97
    nearest = b""
    while low <= high:
        quality = (low + high) // 2
        data = jpeg(image, quality)
        if not nearest or abs(len(data) - wanted_bytes) < abs(len(nearest) - wanted_bytes):
            nearest = data
        if len(data) < wanted_bytes:
            low = quality + 1
        else:
            high = quality - 1
    return nearest if SMALLEST_BYTES <= len(nearest) <= LARGEST_BYTES else None


def images(count: int) -> list[tuple[bytes, int]]:
    """`count` pairs of JPEG bytes and label, drawn from a fixed seed."""
    draw = random.Random(SEED)
    sources = photographs()
    made: list[tuple[bytes, int]] = []
    while len(made) < count:
        which = draw.randrange(len(sources))
        image, lower_half = cut(sources[which], draw)
        data = compress_to(image, draw.randint(SMALLEST_BYTES + 2_000, LARGEST_BYTES - 2_000))
        if data is not None:
            made.append((data, 2 * which + int(lower_half)))
    return made


def write_shard(path: Path, examples: list[tuple[bytes, int]]) -> None:
    """Write one TFRecord file of `tf.train.Example{image, label}`; it gets its name once it is complete."""
    import tensorflow as tf

    unfinished = path.with_suffix(".unfinished")
    with tf.io.TFRecordWriter(str(unfinished)) as writer:
        for data, label in examples:
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString(deterministic=True))
    os.replace(unfinished, path)


def make(out: Path, *, count: int, shards: int) -> dict[str, int]:
    """Write `shards` files with `count` images into `out`; one in eight, at least one, is for validation.

    Returns what `about.json` says: the arguments, and how many images each part has.
    """
    if shards < 2 or count < shards:
        raise SystemExit("at least 2 shards, and an image for each")
    about_path = out / "about.json"
    validation_shards = max(1, shards // 8)
    per_shard = [len(range(shard, count, shards)) for shard in range(shards)]
    about = {
        "count": count,
        "shards": shards,
        "seed": SEED,
        "training_images": sum(per_shard[:-validation_shards]),
        "validation_images": sum(per_shard[-validation_shards:]),
    }
    if about_path.exists() and json.loads(about_path.read_text()) == about:
        print(f"{out}: already complete")
        return about
    out.mkdir(parents=True, exist_ok=True)
    about_path.unlink(missing_ok=True)
    for old in [*out.glob("*.tfrecord"), *out.glob("*.unfinished")]:
        old.unlink()
    made = images(count)
    training_shards = shards - validation_shards
    for shard in range(shards):
        training = shard < training_shards
        part, number = ("train", shard) if training else ("validation", shard - training_shards)
        of = training_shards if training else validation_shards
        write_shard(out / f"{part}-{number:05d}-of-{of:05d}.tfrecord", made[shard::shards])
    about_path.write_text(json.dumps(about, indent=1) + "\n")
    mean_bytes = sum(len(data) for data, _ in made) / len(made)
    print(f"{out}: {count} images of {mean_bytes / 1000:.0f} kB on average in {shards} files")
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut two photographs into TFRecord files of JPEG images.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "data")
    parser.add_argument("--count", type=int, default=2000, help="how many images (default 2000)")
    parser.add_argument("--shards", type=int, default=16, help="how many files (default 16)")
    arguments = parser.parse_args()
    make(arguments.out, count=arguments.count, shards=arguments.shards)


if __name__ == "__main__":
    main()
