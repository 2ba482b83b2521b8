"""The expert's input: resized images are computed once and kept as bytes, and a batch of crops is centred at a time.

Equal: what stands before the cache draws nothing and reads files in a fixed order. Centring is elementwise, so it gives
the same bits behind the crop and behind `batch`; each crop has draws of its own. The images take 60 MB.
"""

from __future__ import annotations

import tensorflow as tf
import train


def load(path):
    return train.resize(*train.decode(*train.read(path)))


def training_dataset(data=train.DATA, stored=None):
    dataset = tf.data.Dataset.list_files(str(data / "*.jpg"), shuffle=False)
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).cache()
    dataset = dataset.shuffle(train.SHUFFLED_IMAGES)
    dataset = dataset.map(train.crop).batch(train.BATCH_SIZE)
    return dataset.map(train.centre).prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
