"""Calls os._exit(5), which runs no clean-up: after a hand-written loop (default), or with "within" at its
step 40.
"""

import os
import sys

import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.zeros([8]))


@tf.function
def train_step(x):
    weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))


features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices(features).map(lambda x: x * 2.0).batch(32)
for step, batch in enumerate(dataset):
    train_step(batch)
    if step == 40 and sys.argv[1:] == ["within"]:
        os._exit(5)
print("trained", flush=True)
os._exit(5)
