"""The expert's input: reading, preparing and training wait at the same time, each for itself.

Equal: `prefetch` changes nothing but when elements are made. To run the Python functions in parallel would gain more,
but needs a consent that nobody has given: they might not be made for it.
"""

from __future__ import annotations

import tensorflow as tf
import train


def make_dataset(files, samples):
    def open_file(file):
        return tf.data.Dataset.from_generator(
            train.read_file, args=(file, samples), output_signature=tf.TensorSpec([2], tf.int64)
        )

    samples_in_turn = tf.data.Dataset.range(files).interleave(open_file, cycle_length=4)
    return samples_in_turn.prefetch(tf.data.AUTOTUNE).map(train.prepare).prefetch(tf.data.AUTOTUNE)


train.make_dataset = make_dataset

if __name__ == "__main__":
    train.main()
