"""The expert's input: images stay bytes until a batch of crops is centred.

Equal: centring is elementwise, so it gives the same bits behind the crop and behind `batch`; each crop has draws of its
own. A cache of the resized images would take 250 GB for the published data.
"""

from __future__ import annotations

import tensorflow as tf
import train


def load(path):
    return train.resize(*train.decode(*train.read(path)))


def training_dataset(data=train.DATA, stored=None):
    dataset = tf.data.Dataset.list_files(str(data / "*.jpg"), shuffle=False)
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).shuffle(train.SHUFFLED_IMAGES)
    dataset = dataset.map(train.crop).batch(train.BATCH_SIZE)
    return dataset.map(train.centre).prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
