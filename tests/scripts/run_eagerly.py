"""Functions run eagerly, those of tf.data excepted."""

import keras
import numpy as np
import tensorflow as tf

tf.config.run_functions_eagerly(True)


def prepare(features, label):
    return tf.math.sqrt(tf.abs(features)), label


features = np.random.default_rng().standard_normal((1600, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(prepare).batch(8)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=1, verbose=2)
