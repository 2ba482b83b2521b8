"""The expert's input: the positions of the windows are shuffled, and the windows of a batch are gathered at once.

Equal: a shuffle of the positions draws what a shuffle of the windows draws.
"""

import keras
import numpy as np
import tensorflow as tf

series = np.sin(np.arange(30_000) / 20).astype("float32")

values = tf.constant(series)


def windows(positions):
    rows = tf.gather(values, positions[:, tf.newaxis] + tf.range(31, dtype=tf.int64))
    return rows[:, :-1], rows[:, -1]


dataset = tf.data.Dataset.range(len(series) - 30).shuffle(1000).batch(32)
dataset = dataset.map(windows, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

model = keras.Sequential([keras.Input([30]), keras.layers.Dense(10, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(dataset, epochs=3, verbose=2)
