"""A course's windows of a series, all functions lambdas.

Right: windows are gathered a batch at a time, and the patch says it, lambdas or not.
"""

import keras
import numpy as np
import tensorflow as tf

series = np.sin(np.arange(30_000) / 20).astype("float32")

dataset = tf.data.Dataset.from_tensor_slices(series)
dataset = dataset.window(31, shift=1, drop_remainder=True)
dataset = dataset.flat_map(lambda w: w.batch(31))
dataset = dataset.map(lambda w: (w[:-1], w[-1]))
dataset = dataset.shuffle(1000).batch(32).prefetch(1)

model = keras.Sequential([keras.Input([30]), keras.layers.Dense(10, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(dataset, epochs=3, verbose=2)
