"""A file is loaded, then its 40 elements are handed out one by one; the prefetch of two bridges no load."""

import sys
import time

import tensorflow as tf


def elements():
    for file in range(1000):
        time.sleep(0.25)
        yield from range(40 * file, 40 * file + 40)


total = tf.Variable(0)
dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([], tf.int32)).prefetch(2)
for element in dataset:
    total.assign_add(element % 7)
    time.sleep(0.006)
tf.train.Checkpoint(total=total).save(sys.argv[1] + "/total")
