"""The expert's input: records are shuffled as bytes, decoded and augmented in parallel and ahead of training.

Equal: every image still gets draws of its own, from the same distribution (the script fixes no seed), and a parallel
`map` keeps the order. The files' order changes every epoch, so nothing behind them can be cached; to decode only the
crop would change the colours at its edge.
"""

from __future__ import annotations

import pipeline
import tensorflow as tf
import train


def load_and_augment(record):
    return pipeline.augment(*pipeline.parse(record))


def training_dataset(pattern):
    dataset = tf.data.Dataset.list_files(pattern).interleave(tf.data.TFRecordDataset)
    dataset = dataset.shuffle(256).map(load_and_augment, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(pipeline.BATCH_SIZE).repeat().prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
