"""The expert's input: the positions of the images are shuffled, and a batch is gathered and normalised at once.

Equal: a shuffle of the positions draws what a shuffle of the images draws, and the normalisation is elementwise.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import train


def training_dataset(data=train.DATA):
    with np.load(data / "images.npz") as arrays:
        images, labels = tf.constant(arrays["images"]), tf.constant(arrays["labels"])

    def gather(positions):
        return train.normalise(tf.gather(images, positions), tf.gather(labels, positions))

    dataset = tf.data.Dataset.range(len(labels)).shuffle(len(labels)).batch(train.BATCH_SIZE)
    return dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
