"""fit of the tf_keras package (Keras 2)."""

import numpy as np
import tensorflow as tf
import tf_keras

features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y)).batch(32)
model = tf_keras.Sequential([tf_keras.Input([8]), tf_keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=2, verbose=2)
