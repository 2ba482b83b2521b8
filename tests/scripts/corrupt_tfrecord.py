"""Damages record 400 of a TFRecord file that it writes into argv[1]: reading fails at step 100 of 500."""

import sys
from pathlib import Path

import tensorflow as tf

path = Path(sys.argv[1]) / "damaged.tfrecord"
total = tf.Variable(0.0)
with tf.io.TFRecordWriter(str(path)) as writer:
    for number in range(2000):
        writer.write(tf.io.serialize_tensor(tf.fill([8], float(number))).numpy())
content = bytearray(path.read_bytes())
content[len(content) // 2000 * 400 + 14] ^= 0xFF
path.write_bytes(content)


def parse(record):
    return tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [8])


@tf.function
def train_step(x):
    total.assign_add(tf.reduce_mean(x))


for batch in tf.data.TFRecordDataset(str(path)).map(parse).batch(4):
    train_step(batch)
