"""What the `make_data.py` scripts share: their command line, photographs to cut, digits, TFRecord files.

Nothing is downloaded. A script calls `command_line(__file__, __doc__, make)`; `make(folder, small)` writes its files
into an empty folder. The folder gets its name once it is complete, and one that the same script made is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

ABOUT = "about.json"
EXAMPLES = Path(__file__).resolve().parent


def command_line(script: str, description: str | None, make: Callable[[Path, bool], None]) -> None:
    """Write the data of an example into the folder `data` beside its script, or where `--out` says."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(script).resolve().parent / "data")
    parser.add_argument("--small", action="store_true", help="a few elements, for tests")
    arguments = parser.parse_args()
    once(Path(script), arguments.out.resolve(), make, small=arguments.small)


def once(script: Path, folder: Path, make: Callable[[Path, bool], None], *, small: bool) -> None:
    """Let `make` write the folder, unless it is there and complete."""
    made_by = hashlib.sha256(script.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    about = {"made_by": made_by, "small": small}
    if (folder / ABOUT).exists() and json.loads((folder / ABOUT).read_text()) == about:
        print(f"{folder}: already complete")
        return
    if folder.exists() and not (folder / ABOUT).exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder}: holds files, and none of them says that they were made by {script.name}")
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished, small)
    files = [path for path in unfinished.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    (unfinished / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    print(f"{folder}: {len(files)} files, {size / 1e6:.1f} MB")


def photographs() -> list[Image.Image]:
    """`photos/china.jpg` and `photos/flower.jpg` (640 x 427 pixels), decoded."""
    return [Image.open(EXAMPLES / "photos" / name).convert("RGB") for name in ("china.jpg", "flower.jpg")]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The handwritten digits of `digits/digits.csv.gz`: `[1797, 8, 8]` values from 0 to 16, and which they are."""
    rows = np.loadtxt(EXAMPLES / "digits" / "digits.csv.gz", delimiter=",")
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)


def cut(photograph: Image.Image, draw: random.Random, *, width: int, height: int) -> tuple[Image.Image, bool]:
    """A random window of the photograph, scaled to a size, and whether its centre lies in the lower half."""
    scale = draw.uniform(0.6, 1.0) * min(photograph.width / width, photograph.height / height)
    wide, high = round(width * scale), round(height * scale)
    left, top = draw.randint(0, photograph.width - wide), draw.randint(0, photograph.height - high)
    window = photograph.crop((left, top, left + wide, top + high))
    return window.resize((width, height), Image.Resampling.BICUBIC), top + high / 2 > photograph.height / 2


def jpeg(image: Image.Image, quality: int) -> bytes:
    """The image as a JPEG with 4:2:0 colour, as cameras and the web write it."""
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=quality, subsampling="4:2:0")
    return buffer.getvalue()


def serialised(features: Mapping[str, Sequence[bytes] | Sequence[int] | Sequence[float]]) -> bytes:
    """A `tf.train.Example` of lists of bytes, whole numbers or numbers with a fraction."""
    import tensorflow as tf

    def feature(values: Sequence[bytes] | Sequence[int] | Sequence[float]) -> tf.train.Feature:
        match values:
            case [bytes(), *_]:
                return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
            case []:
                return tf.train.Feature()
            case [int(), *_]:
                return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            case _:
                return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    example = tf.train.Example(features=tf.train.Features(feature={name: feature(features[name]) for name in features}))
    return bytes(example.SerializeToString(deterministic=True))


def write_shards(folder: Path, records: Sequence[bytes], shards: int) -> None:
    """The records in TFRecord files `train-00000-of-00008.tfrecord` and so on, dealt out in turn."""
    import tensorflow as tf

    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard:05d}-of-{shards:05d}.tfrecord")) as writer:
            for record in records[shard::shards]:
                writer.write(record)
