"""A pipeline that waits and does not compute: slow storage, a slow decoder, a short training step.

What it shows: the idea of the tf.data performance guide (https://www.tensorflow.org/guide/data_performance).
Opening a file takes 30 ms, reading a sample 15 ms, preparing it 10 ms, the training step 10 ms, and all of
them only sleep. Written one after another they add up; overlapped they need not. No processor is busy, so how
many there are does not matter.

    pipetune analyze examples/artificial/train.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import tensorflow as tf

OPEN_SECONDS = 0.030
READ_SECONDS = 0.015
PREPARE_SECONDS = 0.010
STEP_SECONDS = 0.010


def read_file(file, samples):
    """A file on slow storage: a wait to open it, then a wait for each sample."""
    time.sleep(OPEN_SECONDS)
    for sample in range(samples):
        time.sleep(READ_SECONDS)
        yield np.array([file, sample], dtype=np.int64)


def slow_decoder(sample):
    time.sleep(PREPARE_SECONDS)
    return sample * 2


def prepare(sample):
    decoded = tf.py_function(slow_decoder, [sample], tf.int64)
    decoded.set_shape([2])
    return decoded


def make_dataset(files, samples):
    def open_file(file):
        return tf.data.Dataset.from_generator(
            read_file, args=(file, samples), output_signature=tf.TensorSpec([2], tf.int64)
        )

    dataset = tf.data.Dataset.range(files)
    dataset = dataset.interleave(open_file, cycle_length=4)
    return dataset.map(prepare)


def train_step(sample, weights):
    time.sleep(STEP_SECONDS)
    weights.assign_add(1.0)  # stands for the weights of a model
    return int(sample[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all samples)")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--samples", type=int, default=25, help="samples in each file")
    arguments = parser.parse_args()

    dataset, weights = make_dataset(arguments.files, arguments.samples), tf.Variable(0.0)
    for epoch in range(arguments.epochs):
        started = time.perf_counter()
        steps = 0
        for sample in dataset:
            train_step(sample, weights)
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {1000 * (time.perf_counter() - started) / steps:.1f} ms per step")


if __name__ == "__main__":
    main()
