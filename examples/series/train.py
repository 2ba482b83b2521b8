"""Train a small network to forecast a series from windows of it, the way courses teach it.

What it shows: `window` makes a dataset of every window, and `flat_map` opens and batches each, some twenty values at a
time. All windows of a batch can be taken out of the series at once.

    pipetune analyze examples/series/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

LENGTH = 20_000
WINDOW_SIZE = 20
BATCH_SIZE = 32


def load_series(length):
    """A wave with a trend and noise."""
    time = np.arange(length)
    noise = np.random.default_rng(0).normal(size=length)
    return (np.sin(time / 20) + time / length + 0.1 * noise).astype("float32")


def split(window):
    return window[:-1], window[-1]


def windowed_dataset(series):
    dataset = tf.data.Dataset.from_tensor_slices(series)
    dataset = dataset.window(WINDOW_SIZE + 1, shift=1, drop_remainder=True)
    dataset = dataset.flat_map(lambda window: window.batch(WINDOW_SIZE + 1))
    dataset = dataset.shuffle(1000)
    dataset = dataset.map(split)
    return dataset.batch(BATCH_SIZE).prefetch(1)


def training_dataset():
    return windowed_dataset(load_series(LENGTH))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--length", type=int, default=LENGTH, help="values in the series")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "series.keras")
    arguments = parser.parse_args()

    layers = [keras.Input([WINDOW_SIZE]), keras.layers.Dense(10, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    dataset = windowed_dataset(load_series(arguments.length))
    model.fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)
    model.save(arguments.out)


if __name__ == "__main__":
    main()
