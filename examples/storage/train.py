"""Read samples as fast as an emulated accelerator takes them: the ResNet-50 workload of the storage benchmark.

What it shows: storage and memory alone. Nothing is decoded; the step is a pause of 22.4 ms for 40 samples instead of
224 ms for 400, so that 1,786 samples a second have to come, as published.

    python examples/storage/make_data.py
    pipetune analyze examples/storage/train.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
READERS = 8
BATCH_SIZE = 40
STEP_MILLISECONDS = 22.4


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "size": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [example["size"]])


def training_dataset(data=DATA):
    files = sorted(str(path) for path in data.glob("train-*.tfrecord"))
    dataset = tf.data.TFRecordDataset(files, num_parallel_reads=READERS)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    return dataset.prefetch(tf.data.AUTOTUNE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all samples once)")
    parser.add_argument("--step-time", type=float, metavar="MS", default=STEP_MILLISECONDS, help="the pause per batch")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/storage/make_data.py first")

    dataset = training_dataset(arguments.data)
    weights = tf.Variable(0.0)  # stands for those of a model
    for epoch in range(arguments.epochs):
        started, steps = time.perf_counter(), 0
        for _ in dataset:
            time.sleep(arguments.step_time / 1000)
            weights.assign_add(1.0)
            steps += 1
            if steps == arguments.steps:
                break
        seconds = time.perf_counter() - started
        busy = steps * arguments.step_time / 1000 / seconds
        print(f"epoch {epoch + 1}: {steps * BATCH_SIZE / seconds:.0f} samples/s, accelerator busy {busy:.0%}")


if __name__ == "__main__":
    main()
