"""Train with Horovod: a process per device, gradients averaged over all of them after every step.

Each rank reads files of its own, and all take as many steps: one with a step more would wait for the others for ever.

    python examples/distributed/make_data.py
    horovodrun -np 2 python examples/distributed/horovod/train.py
    pipetune analyze --distribute horovod examples/distributed/horovod/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[1] / "data"
PIXELS = 28 * 28
BATCH_SIZE = 32


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [PIXELS])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def training_dataset(data):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"), shuffle=False)
    files = files.shard(hvd.size(), hvd.rank())
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(2048).repeat().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200, help="steps per epoch, of all ranks together")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/distributed/make_data.py first")

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    model = keras.Sequential([keras.Input([PIXELS]), keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.1 * hvd.size())
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = [variable.value for variable in model.trainable_variables]
    hvd.broadcast_variables(weights, root_rank=0)

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(images, training=True))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    steps = arguments.steps // hvd.size()
    dataset = training_dataset(arguments.data).take(steps)
    for epoch in range(arguments.epochs):
        total = 0.0
        for images, labels in dataset:
            total += float(train_step(images, labels))
        print(f"rank {hvd.rank()}, epoch {epoch + 1}: {steps} steps, mean loss {total / steps:.4f}", flush=True)


if __name__ == "__main__":
    main()
