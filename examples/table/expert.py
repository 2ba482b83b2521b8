"""The expert's input: the positions of the rows are shuffled, and the rows of a batch are gathered from one matrix.

Equal: a shuffle of the positions draws what a shuffle of the rows draws.
"""

from __future__ import annotations

import tensorflow as tf
import train


def make_dataset(columns, label):
    matrix, labels = tf.stack(list(columns.values()), axis=1), tf.constant(label)

    def gather(positions):
        rows = tf.unstack(tf.gather(matrix, positions), axis=1)
        return dict(zip(columns, rows, strict=True)), tf.gather(labels, positions)

    dataset = tf.data.Dataset.range(len(label)).shuffle(10_000).batch(train.BATCH_SIZE)
    return dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


train.make_dataset = make_dataset

if __name__ == "__main__":
    train.main()
