"""Saves and summarizes every 25 steps below argv[1]: not in the 20 before pipetune measures, early in a window."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

folder = Path(sys.argv[1])
weights = tf.Variable(tf.zeros([8]))
steps = tf.Variable(0, dtype=tf.int64)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(weights=weights, steps=steps), str(folder / "checkpoints"), 3)
writer = tf.summary.create_file_writer(str(folder / "summaries"))


@tf.function
def train_step(x):
    weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))
    steps.assign_add(1)
    return tf.reduce_sum(weights)


features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices(features).map(lambda x: x * 2.0).batch(32)
for _epoch in range(2):
    for batch in dataset:
        total = train_step(batch)
        if int(steps) % 25 == 0:
            manager.save(checkpoint_number=int(steps))
            with writer.as_default():
                tf.summary.write("total", total, step=steps)
print("steps", int(steps), "latest", manager.latest_checkpoint)
