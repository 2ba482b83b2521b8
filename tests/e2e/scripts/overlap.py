"""One stage waits, the next computes, one after the other: a prefetch between them nearly halves the step.

Trains argv[2] epochs (default 3), writes its progress beside argv[1], and a checkpoint there at the end.
"""

import random
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

WAIT_SECONDS = 0.003
SAMPLES = 30
NUMBERS = [int(name) for name in {str(number) for number in range(SAMPLES)}]  # shuffled in Python, without a seed
random.shuffle(NUMBERS)
np.random.shuffle(NUMBERS)
tf.random.set_seed(1)


def wait(number):
    time.sleep(WAIT_SECONDS)
    return number


def read(number):  # like slow storage
    return tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])


def decode(number):  # draws, in the order of a seed
    values = tf.random.uniform([20_000])
    for _ in tf.range(120):
        values = tf.sin(values)
    return tf.cast(number, tf.float32) + tf.floor(tf.reduce_mean(values) / 2)  # the number itself


total = tf.Variable(0.0)
steps = tf.Variable(0)


@tf.function
def train_step(x):
    total.assign_add(tf.reduce_sum(x))
    steps.assign_add(1)


dataset = tf.data.Dataset.from_tensor_slices(tf.constant(NUMBERS, tf.int64)).map(read).map(decode)
for _epoch in range(int(sys.argv[2]) if len(sys.argv) > 2 else 3):
    for batch in dataset:
        train_step(batch)
        if int(steps) % 10 == 0:
            Path(f"{sys.argv[1]}.progress").write_text(str(int(steps)))
tf.train.Checkpoint(total=total, steps=steps).write(sys.argv[1])
print("trained", int(steps), "steps to", float(total))
