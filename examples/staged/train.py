"""Train a small network on image files, with a chain of which any part may be computed once and stored.

What it shows: where to materialise. All above the shuffle is the same in every epoch: the bytes of a file, the decoded
image, the resized one, the one with centred pixels. Each stage saves more time and is larger than the one before.
`--stored STAGE` keeps that stage on disk from its first use on.

    python examples/staged/make_data.py
    pipetune analyze examples/staged/train.py
    python examples/staged/train.py --stored resized
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
STORED_PIXELS = 256
IMAGE_PIXELS = 224
CLASSES = 4
SHUFFLED_IMAGES = 64
BATCH_SIZE = 32


def read(path):
    label = tf.strings.to_number(tf.strings.regex_replace(path, r".*class-(\d+)\.jpg", r"\1"), tf.int32)
    return tf.io.read_file(path), label


def decode(data, label):
    return tf.io.decode_jpeg(data, channels=3), label


def resize(image, label):
    image = tf.image.resize(image, [STORED_PIXELS, STORED_PIXELS])
    return tf.cast(tf.round(image), tf.uint8), label


def centre(image, label):
    return tf.cast(image, tf.float32) / 127.5 - 1.0, label


def crop(image, label):
    return tf.image.random_crop(image, [IMAGE_PIXELS, IMAGE_PIXELS, 3]), label


STAGES = {"concatenated": read, "decoded": decode, "resized": resize, "centred": centre}


def training_dataset(data=DATA, stored=None):
    dataset = tf.data.Dataset.list_files(str(data / "*.jpg"), shuffle=False)
    for stage, function in STAGES.items():
        dataset = dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)
        if stage == stored:
            folder = data / stage
            if not folder.exists():
                dataset.save(str(folder))
            dataset = tf.data.Dataset.load(str(folder))
    dataset = dataset.shuffle(SHUFFLED_IMAGES)
    dataset = dataset.map(crop, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def make_model():
    layers = [
        keras.Input([IMAGE_PIXELS, IMAGE_PIXELS, 3]),
        keras.layers.Conv2D(8, 7, strides=4, activation="relu"),
        keras.layers.Conv2D(16, 3, strides=4, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
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
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    parser.add_argument("--stored", choices=STAGES, help="keep this stage on disk")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/staged/make_data.py first")

    dataset = training_dataset(arguments.data, arguments.stored)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
