"""Removes the file argv[1] in its loop, at step 30 of many."""

import os
import sys

import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.zeros([8]))
features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices(features).map(lambda x: x * 2.0).batch(32)
try:
    for step, batch in enumerate(dataset):
        weights.assign_add(0.01 * tf.reduce_mean(batch, axis=0))
        if step == 30:
            os.remove(sys.argv[1])
finally:
    print("it went on")
