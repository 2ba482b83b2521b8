"""Before fit the dataset is adapted to and looked at twice: none of these is the training."""

import keras
import numpy as np
import tensorflow as tf

features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y)).batch(32)
normalization = keras.layers.Normalization()
normalization.adapt(dataset.map(lambda x, y: x))
x, y = next(iter(dataset))
print("preview", x.shape, y.shape)
for x, _y in dataset.take(1):
    print("preview", x.shape)
model = keras.Sequential([keras.Input([8]), normalization, keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=2, verbose=2)
