"""A minute passes before the first training step, a download, for which a pause stands; then the model takes the time.

Right: the input does not hold training back, and this is said soon after the first step.
"""

import time

import keras
import numpy as np
import tensorflow as tf

DOWNLOAD_SECONDS = 60


def main():
    time.sleep(DOWNLOAD_SECONDS)
    rows = np.random.default_rng(0).normal(size=(20_000, 64)).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows[:, 0])).batch(128).prefetch(1)
    layers = [
        keras.Input([64]),
        *(keras.layers.Dense(1_500, activation="relu") for _ in range(3)),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    model.fit(dataset, epochs=5, verbose=2)


if __name__ == "__main__":
    main()
