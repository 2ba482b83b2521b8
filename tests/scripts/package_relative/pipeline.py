"""Builds the dataset; the call sites are in another file than the one that is run."""

import numpy as np
import tensorflow as tf


def prepare(features, label):
    return tf.math.exp(-features), label


def make_dataset():
    features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
    return tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(prepare).batch(32)
