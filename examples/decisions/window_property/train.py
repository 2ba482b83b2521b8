"""The window generator of the time-series tutorial: properties build a dataset anew whenever they are read.

Right: windows are gathered a batch at a time, and every property yields what it yielded.
"""

import keras
import numpy as np
import tensorflow as tf


class WindowGenerator:
    def __init__(self, width, train, validation):
        self.width, self.train_rows, self.validation_rows = width, train, validation

    def split_window(self, window):
        return window[:-1, :], window[-1:, 0]

    def make_dataset(self, rows):
        dataset = tf.data.Dataset.from_tensor_slices(rows)
        dataset = dataset.window(self.width + 1, shift=1, drop_remainder=True)
        dataset = dataset.flat_map(lambda window: window.batch(self.width + 1))
        dataset = dataset.shuffle(1_000)
        dataset = dataset.map(self.split_window)
        return dataset.batch(32)

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
