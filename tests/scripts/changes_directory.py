"""Changes into argv[1] before it reads and writes by relative names: results and source must still be found."""

import os
import sys

import numpy as np
import tensorflow as tf

os.chdir(sys.argv[1])
total = tf.Variable(0.0)
np.save("features.npy", np.random.default_rng().standard_normal((6400, 8), dtype="float32"))


@tf.function
def train_step(x):
    total.assign_add(tf.reduce_mean(x))


dataset = tf.data.Dataset.from_tensor_slices(np.load("features.npy")).map(lambda x: tf.math.exp(-x)).batch(32)
for batch in dataset:
    train_step(batch)
print("trained in", os.getcwd())
