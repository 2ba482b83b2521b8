"""Before fit the dataset is adapted to and looked at twice: none of these is the training."""

import keras
import numpy as np
import tensorflow as tf

random = np.random.default_rng()
arrays = (
    random.standard_normal((6400, 8), dtype="float32"),
    random.standard_normal((6400, 1), dtype="float32"),
)
dataset = tf.data.Dataset.from_tensor_slices(arrays).map(lambda x, y: (x * 2.0, y)).batch(32)
normalization = keras.layers.Normalization()
normalization.adapt(dataset.map(lambda x, y: x))
features, labels = next(iter(dataset))
print("preview", features.shape, labels.shape)
for features, _labels in dataset.take(1):
    print("preview", features.shape)
model = keras.Sequential([keras.Input([8]), normalization, keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=2, verbose=2)
