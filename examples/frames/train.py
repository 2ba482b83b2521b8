"""Train a small network on clips of ten frames that a Python generator reads and decodes.

What it shows: everything before the first operator of tf.data is Python, one clip after another.

    python examples/frames/make_data.py
    pipetune analyze examples/frames/train.py
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

DATA = Path(__file__).resolve().parent / "data"
FRAMES = 10
FRAME_STEP = 2
SIDE_PIXELS = 224
CLASSES = 4
BATCH_SIZE = 4


class Clips:
    """Yields from every clip, in a new order each time, ten frames from a random start on, and its class."""

    def __init__(self, data):
        self.names = sorted(path.name for path in data.iterdir() if path.is_dir())
        self.clips = sorted(path for path in data.glob("*/clip-*"))

    def __call__(self):
        for clip in random.sample(self.clips, len(self.clips)):
            frames = sorted(clip.glob("*.jpg"))
            start = random.randint(0, len(frames) - FRAME_STEP * FRAMES)
            yield (
                np.stack([read(frame) for frame in frames[start : start + FRAME_STEP * FRAMES : FRAME_STEP]]),
                self.names.index(clip.parent.name),
            )


def read(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((SIDE_PIXELS, SIDE_PIXELS), Image.Resampling.BILINEAR))


def training_dataset(data=DATA):
    signature = (
        tf.TensorSpec([FRAMES, SIDE_PIXELS, SIDE_PIXELS, 3], tf.uint8),
        tf.TensorSpec([], tf.int32),
    )
    dataset = tf.data.Dataset.from_generator(Clips(data), output_signature=signature)
    dataset = dataset.batch(BATCH_SIZE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def make_model():
    layers = [
        keras.Input([FRAMES, SIDE_PIXELS, SIDE_PIXELS, 3], dtype="uint8"),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv3D(8, (1, 7, 7), strides=(1, 8, 8), activation="relu"),
        keras.layers.Conv3D(16, (3, 3, 3), strides=(2, 2, 2), activation="relu"),
        keras.layers.GlobalAveragePooling3D(),
        keras.layers.Dense(CLASSES),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def pretend_to_train(dataset, arguments):
    """Stands for an accelerator that works on each batch for `--step-time` milliseconds."""
    for epoch in range(arguments.epochs):
        started, steps = time.perf_counter(), 0
        for _ in dataset:
            time.sleep(arguments.step_time / 1000)
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {1000 * (time.perf_counter() - started) / steps:.1f} ms per step")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/frames/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
