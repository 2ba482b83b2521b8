"""The expert's input: clips wait in a buffer in front of `batch`, so that Python reads the next one while it copies.

Equal: a buffer changes no element. To read the frames of several clips at once, by `numpy_function` in a parallel map
behind a generator of names, would run Python functions in parallel, which default consent does not allow; to read them
by ops of TensorFlow would resize them to other pixels.
"""

from __future__ import annotations

import tensorflow as tf
import train


def training_dataset(data=train.DATA):
    signature = (
        tf.TensorSpec([train.FRAMES, train.SIDE_PIXELS, train.SIDE_PIXELS, 3], tf.uint8),
        tf.TensorSpec([], tf.int32),
    )
    dataset = tf.data.Dataset.from_generator(train.Clips(data), output_signature=signature)
    return dataset.prefetch(train.BATCH_SIZE).batch(train.BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
