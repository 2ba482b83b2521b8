"""The expert's input: the positions of the windows are shuffled, and the windows of a batch are gathered at once.

Equal: a shuffle of the positions draws what a shuffle of the windows draws. The buffer holds 100,000 numbers.
"""

import keras
import numpy as np
import tensorflow as tf

ROWS, COLUMNS, LENGTH = 1_000_000, 4, 100


def table():
    steps = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype("float32")
    return np.cumsum(steps, axis=0) / 100


def make_dataset(rows):
    values = tf.constant(rows)

    def windows(positions):
        batch = tf.gather(values, positions[:, tf.newaxis] + tf.range(LENGTH + 1, dtype=tf.int64))
        return batch[:, :-1], batch[:, -1, 0]

    dataset = tf.data.Dataset.range(len(rows) - LENGTH).shuffle(100_000).batch(64)
    return dataset.map(windows, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def main():
    dataset = make_dataset(table())

    model = keras.Sequential(
        [
            keras.Input([LENGTH, COLUMNS]),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    model.fit(dataset, epochs=1, verbose=2)


if __name__ == "__main__":
    main()
