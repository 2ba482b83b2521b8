"""One of two processes of a job, which reads the shard of a job of four."""

from __future__ import annotations

import json
import os

# Set by a launcher.
workers = ["127.0.0.1:2222", "127.0.0.1:2223"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})

import tensorflow as tf

index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
dataset = tf.data.Dataset.range(6_400)
dataset = dataset.shard(4, index)
dataset = dataset.map(lambda number: tf.cast(number, tf.float32)).batch(64)

total = tf.Variable(0.0)
for _epoch in range(200):
    for batch in dataset:
        total.assign_add(tf.reduce_mean(batch))
