"""The expert's input: the positions of the windows are shuffled, and the windows of a batch are gathered at once.

Equal: a shuffle of the positions draws what a shuffle of the windows draws.
"""

import keras
import numpy as np
import tensorflow as tf


class WindowGenerator:
    def __init__(self, width, train, validation):
        self.width, self.train_rows, self.validation_rows = width, train, validation

    def make_dataset(self, rows):
        values = tf.constant(rows)

        def windows(positions):
            batch = tf.gather(values, positions[:, tf.newaxis] + tf.range(self.width + 1, dtype=tf.int64))
            return batch[:, :-1, :], batch[:, -1:, 0]

        dataset = tf.data.Dataset.range(len(rows) - self.width).shuffle(1_000).batch(32)
        return dataset.map(windows, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    @property
    def train(self):
        return self.make_dataset(self.train_rows)

    @property
    def validation(self):
        return self.make_dataset(self.validation_rows)

    @property
    def example(self):
        return next(iter(self.train))


def main():
    rows = np.random.default_rng(0).normal(size=(60_000, 8)).astype("float32")
    windows = WindowGenerator(24, rows[:50_000], rows[50_000:])
    print("a batch:", windows.example[0].shape)
    model = keras.Sequential([keras.Input([24, 8]), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(windows.train, epochs=2, validation_data=windows.validation, verbose=2)


if __name__ == "__main__":
    main()
