"""Windows of 101 rows over a million rows of a table, shuffled with a buffer of 100,000 windows.

Right: the windows of a batch are gathered from the table at once; a window of measuring must not pay the buffer.
"""

import keras
import numpy as np
import tensorflow as tf

ROWS, COLUMNS, LENGTH = 1_000_000, 4, 100


def table():
    steps = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype("float32")
    return np.cumsum(steps, axis=0) / 100


def split(window):
    return window[:-1], window[-1, 0]


def main():
    dataset = tf.data.Dataset.from_tensor_slices(table())
    dataset = dataset.window(LENGTH + 1, shift=1, drop_remainder=True)
    dataset = dataset.flat_map(lambda window: window.batch(LENGTH + 1))
    dataset = dataset.map(split)
    dataset = dataset.shuffle(100_000).batch(64).prefetch(tf.data.AUTOTUNE)

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
