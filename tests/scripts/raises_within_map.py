"""The map function raises at element 120 (step 30): argument "assert" in the graph, "python" in a py_function."""

import sys

import numpy as np
import tensorflow as tf

KIND = sys.argv[1]
ELEMENT = 120
weights = tf.Variable(tf.zeros([8, 1]))


def check(index):
    if index >= ELEMENT:
        raise ValueError(f"element {int(index)} is broken")
    return index


def prepare(index, features):
    if KIND == "python":
        index = tf.py_function(check, [index], tf.int64)
    else:
        tf.debugging.assert_less(index, tf.constant(ELEMENT, tf.int64), message="a broken element")
    return tf.cast(index, tf.float32)[tf.newaxis], features * 2.0


@tf.function
def train_step(y, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - tf.reshape(y, [-1, 1])) ** 2)
    weights.assign_sub(1e-6 * tape.gradient(loss, weights))
    return loss


features = np.random.default_rng().standard_normal((2000, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices((np.arange(2000, dtype="int64"), features)).map(prepare).batch(4)
for labels, batch in dataset:
    train_step(labels, batch)
print("not reached")
