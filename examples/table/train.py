"""Train a small network on a table in memory with `fit`.

What it shows: one row is a few bytes in a dozen columns, so slicing, shuffling and batching row by row costs far more
than the rows hold. The numbers of the rows can be shuffled and batched instead, and the rows of a batch taken at once.

    pipetune analyze examples/table/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

COLUMNS = 12
ROWS = 100_000
BATCH_SIZE = 256


def load_table(rows):
    """Columns by name, and a label that depends on two of them."""
    draw = np.random.default_rng(0)
    columns = {f"column_{index}": draw.normal(size=rows).astype("float32") for index in range(COLUMNS)}
    return columns, (columns["column_0"] + columns["column_1"] > 0).astype("float32")


def make_dataset(columns, label):
    dataset = tf.data.Dataset.from_tensor_slices((columns, label))
    dataset = dataset.shuffle(10_000)
    dataset = dataset.batch(BATCH_SIZE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def training_dataset():
    return make_dataset(*load_table(ROWS))


def make_model():
    inputs = {f"column_{index}": keras.Input([], name=f"column_{index}") for index in range(COLUMNS)}
    hidden = keras.layers.Dense(16, activation="relu")(keras.ops.stack(list(inputs.values()), axis=-1))
    return keras.Model(inputs, keras.ops.squeeze(keras.layers.Dense(1)(hidden), -1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "table.keras")
    arguments = parser.parse_args()

    model = make_model()
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    dataset = make_dataset(*load_table(arguments.rows))
    model.fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)
    model.save(arguments.out)


if __name__ == "__main__":
    main()
