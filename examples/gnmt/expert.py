"""The expert's input: records are shuffled as bytes, and a batch of them is read and split by one call.

Equal: reading raw bytes draws nothing and gives each row what it gives the record alone; the options are the author's.
"""

from __future__ import annotations

import os

import tensorflow as tf
import train


def split(records):
    numbers = tf.reshape(tf.io.decode_raw(records, tf.int32), [train.BATCH_SIZE, train.NUMBERS])
    source, fed, target, lengths = tf.split(numbers, [train.MAX_LENGTH] * 3 + [3], axis=1)
    features = {"source": source, "fed": fed, "source_length": lengths[:, 0], "target_length": lengths[:, 1]}
    return features, target


def training_dataset(data=train.DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.bin"))
    dataset = files.interleave(train.read, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(10_000).repeat().batch(train.BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(split, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
