"""The dataset is built in methods, with lambdas, a loop that binds late, `apply` and a helper for two datasets."""

import keras
import numpy as np
import tensorflow as tf


class Data:
    def __init__(self, rows):
        self.features = np.random.default_rng().standard_normal((rows, 8), dtype="float32")
        self.scales = [2.0, 3.0]

    def prepare(self, features, label):
        return tf.math.tanh(features), label

    def base(self):
        dataset = tf.data.Dataset.from_tensor_slices((self.features, self.features[:, :1])).map(self.prepare)
        for scale in self.scales:
            dataset = dataset.map(lambda x, y: (x * scale, y))  # noqa: B023 - binds late, on purpose
        return dataset

    @property
    def train(self):
        return self.base().shuffle(500).apply(self.batched)

    @staticmethod
    def batched(dataset):
        return dataset.filter(lambda x, y: tf.reduce_sum(x) < 1e6).batch(32)

    @classmethod
    def validation(cls):
        return cls(640).base().apply(cls.batched)


model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Data(6400).train, epochs=2, validation_data=Data.validation(), verbose=2)
