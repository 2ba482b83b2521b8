"""fit asks for 3 x 100 steps of a dataset that holds 250 and does not repeat: Keras cuts the third
epoch short (runs-out-of-data).
"""

import keras
import numpy as np
import tensorflow as tf

features = np.random.default_rng().standard_normal((8000, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y)).batch(32)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=3, steps_per_epoch=100, verbose=2)
