"""Counts in variables, in an optimizer and in a table. Every step prints the counts, writes them to a log in argv[1]
that was opened before the loop, and overwrites model.keras there.
"""

import sys
from pathlib import Path

import keras
import tensorflow as tf

SEEN = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, default_value=0)
KEY = tf.constant("seen")
weights = tf.Variable(tf.zeros([]))
steps = tf.Variable(0)
optimizer = keras.optimizers.SGD(1.0)
optimizer.build([weights])


def count(number):
    SEEN.insert(KEY, SEEN.lookup(KEY) + 1)
    return number


@tf.function
def train_step(_number):
    optimizer.apply_gradients([(tf.constant(-1.0), weights)])
    steps.assign_add(1)


dataset = tf.data.Dataset.range(2000).map(count)
log = open(f"{sys.argv[1]}/log", "w")  # noqa: SIM115
log.write("counts\n")
for number in dataset:
    train_step(number)
    counts = int(steps), int(weights), int(optimizer.iterations), int(SEEN.lookup(KEY))
    print("counts", *counts, flush=True)
    log.write(f"{counts}\n" * 100)
    Path(sys.argv[1], "model.keras").write_text(f"{counts}")
