"""Train a small network on handwritten digits held in memory, with a hand-written loop.

What it shows: each element is tiny (64 numbers), so the input spends its time on calling the map function
once per row and not on the arithmetic in it. The same arithmetic on whole batches costs a fraction. The map
is deterministic and stands before the shuffle.

    pipetune analyze examples/digits/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DIGITS = Path(__file__).resolve().with_name("digits.csv.gz")
SIDE_PIXELS = 28
CLASSES = 10
BATCH_SIZE = 128


def load_arrays(copies):
    """1,797 digits (8 x 8 pixels, values 0 to 16), repeated."""
    rows = np.loadtxt(DIGITS, delimiter=",")
    images = np.tile(rows[:, :-1].reshape(-1, 8, 8).astype("float32"), (copies, 1, 1))
    labels = np.tile(rows[:, -1].astype(int), copies)
    return images, labels


def prepare(image, label):
    image = tf.image.resize(image[..., tf.newaxis], [SIDE_PIXELS, SIDE_PIXELS])
    return image / 16.0, tf.one_hot(label, CLASSES)


def make_dataset(images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.map(prepare)
    dataset = dataset.shuffle(4096)
    return dataset.batch(BATCH_SIZE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--copies", type=int, default=20, help="how often the 1,797 digits are repeated (default 20)")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "digits.weights.h5")
    arguments = parser.parse_args()

    dataset = make_dataset(*load_arrays(arguments.copies))
    model = keras.Sequential(
        [
            keras.Input([SIDE_PIXELS, SIDE_PIXELS, 1]),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )
    loss_function = keras.losses.CategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for x, y in dataset:
            total += float(train_step(x, y))
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {steps} steps, mean loss {total / steps:.4f}")
    model.save_weights(arguments.out)


if __name__ == "__main__":
    main()
