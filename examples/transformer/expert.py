"""The expert's input: one map parses, elements are shuffled before they are padded, and `padded_batch` pads a batch.

Equal: padding and casting draw nothing, so they may follow the shuffle; `padded_batch` pads by zeros, as `tf.pad` does.
A feature that is a list of numbers parses into the same numbers by either kind of feature.
"""

from __future__ import annotations

import os

import tensorflow as tf
import train

LISTS = {name: tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True) for name in train.FEATURES}


def parse(record):
    return tf.io.parse_single_example(record, LISTS)


def training_dataset(data=train.DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).filter(train.short_enough)
    dataset = dataset.shuffle(train.SHUFFLED_RECORDS).repeat()
    dataset = dataset.padded_batch(train.BATCH_SIZE, {name: [train.MAX_LENGTH] for name in LISTS}, drop_remainder=True)
    dataset = dataset.map(train.to_int32, num_parallel_calls=tf.data.AUTOTUNE).prefetch(64)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
