"""A training loop that raises at step 60, while it is measured."""

import tensorflow as tf


def check(step):
    if step == 60:
        raise ValueError("the loss is nan at step 60")


dataset = tf.data.Dataset.range(9000).map(lambda x: x + 1).batch(4)
weight = tf.Variable(0.0)
for step, _batch in enumerate(dataset):
    check(step)
    weight.assign_add(1.0)
