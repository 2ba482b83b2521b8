"""Raises before any dataset exists: the user's own traceback must be shown as theirs (exit 3)."""

import keras
import numpy as np
import tensorflow as tf


def read_settings():
    return {"learning_rate": 0.1}["learning-rate"]


rate = read_settings()
dataset = tf.data.Dataset.from_tensor_slices((np.zeros([6400, 8], "float32"), np.zeros([6400, 1], "float32"))).batch(32)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(rate), "mse")
model.fit(dataset, epochs=1, verbose=2)
