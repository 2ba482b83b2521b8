"""Train a small network on a table in text files: read lines, shuffle, parse, batch.

What it shows: every line goes through the decoder alone, though it takes a batch of lines as well.

    python examples/csv/make_data.py
    pipetune analyze examples/csv/train.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
FEATURES = 28
BATCH_SIZE = 512


def parse(line):
    label, *features = tf.io.decode_csv(line, [0.0] * (1 + FEATURES))
    return tf.stack(features), label


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.csv"))
    dataset = files.interleave(tf.data.TextLineDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(10_000)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def make_model():
    layers = [keras.Input([FEATURES]), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
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
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all rows once)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/csv/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
