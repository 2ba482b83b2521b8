"""Shuffles, then splits: every epoch shuffles anew, so validation rows reach training (validation-leak)."""

import keras
import numpy as np
import tensorflow as tf

features = np.random.default_rng().standard_normal((8000, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).shuffle(8000)
validation = dataset.take(1600).batch(32)
train = dataset.skip(1600).map(lambda x, y: (x * 2.0, y)).batch(32)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(train, epochs=2, validation_data=validation, verbose=2)
