"""A map that counts in a mutable table and one that reads a fixed table. The last line prints the counts.

Run without a profiler every key is seen the same number of times: trials must leave the table as it was.
"""

import numpy as np
import tensorflow as tf

KEYS = tf.constant(["red", "green", "blue", "black"])
numbers = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(KEYS, tf.range(4, dtype=tf.int64)), -1)
counts = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, default_value=0)
total = tf.Variable(0, dtype=tf.int64)


def count(key):
    seen = counts.lookup(key) + 1
    counts.insert(key, seen)
    return key, seen


@tf.function
def train_step(number, seen):
    total.assign_add(tf.reduce_sum(number + seen))


dataset = tf.data.Dataset.from_tensor_slices(np.tile(KEYS.numpy(), 800))
dataset = dataset.map(count).map(lambda key, seen: (numbers.lookup(key), seen)).batch(16)
for number, seen in dataset:
    train_step(number, seen)
print({key.decode(): int(counts.lookup(tf.constant(key))) for key in KEYS.numpy()})
