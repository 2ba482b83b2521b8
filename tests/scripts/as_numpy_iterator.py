"""A NumPy trainer that takes batches from as_numpy_iterator, as JAX and PyTorch programs do."""

import numpy as np
import tensorflow as tf

weights = np.zeros(8, "float32")
random = np.random.default_rng()
features = random.standard_normal((6400, 8), dtype="float32")
targets = features @ np.arange(8, dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((features, targets)).map(lambda x, y: (tf.math.tanh(x), y)).batch(32)
for _epoch in range(1000):  # nothing shows that it trains: it is taken for training after 15 s
    for x, y in dataset.as_numpy_iterator():
        weights -= 0.01 * x.T @ (x @ weights - y) / len(y)
print("trained", weights.round(2))
