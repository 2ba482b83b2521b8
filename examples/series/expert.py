"""The expert's input: the positions of the windows are shuffled, and the windows of a batch are gathered at once.

Equal: a shuffle of the positions draws what a shuffle of the windows draws.
"""

from __future__ import annotations

import tensorflow as tf
import train


def windowed_dataset(series):
    values = tf.constant(series)

    def windows(positions):
        rows = tf.gather(values, positions[:, tf.newaxis] + tf.range(train.WINDOW_SIZE + 1, dtype=tf.int64))
        return rows[:, :-1], rows[:, -1]

    dataset = tf.data.Dataset.range(len(series) - train.WINDOW_SIZE).shuffle(1000).batch(train.BATCH_SIZE)
    return dataset.map(windows, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


train.windowed_dataset = windowed_dataset

if __name__ == "__main__":
    train.main()
