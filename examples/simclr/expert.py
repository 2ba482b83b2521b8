"""The expert's input: one map does what nine did.

Equal: the functions are the same, in the same order, and every view has draws of its own.
"""

from __future__ import annotations

import tensorflow as tf
import train

FUNCTIONS = (
    train.crop_and_resize,
    tf.image.random_flip_left_right,
    train.jitter,
    train.blur,
    train.clip,
    train.maybe_grey,
)


def load(path):
    views = train.duplicate(train.decode(path))
    for function in FUNCTIONS:
        views = train.both(function)(*views)
    return train.side_by_side(*views)


def training_dataset(data=train.DATA):
    dataset = tf.data.Dataset.list_files(str(data / "*" / "*.jpg"))
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(train.BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
