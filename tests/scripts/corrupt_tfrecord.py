"""Writes a TFRecord file into the folder argv[1] and damages record 400: reading fails at step 100 of 500
(DataLossError).
"""

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


for step, batch in enumerate(tf.data.TFRecordDataset(str(path)).map(parse).batch(4)):
    train_step(batch)
    if step % 50 == 0:
        print("step", step, flush=True)
print("not reached")
