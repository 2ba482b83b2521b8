"""Train on several machines: `MultiWorkerMirroredStrategy`, with a training loop of its own.

Every worker runs this script and is told who the others are by TF_CONFIG. The strategy gives each worker its own
files, and divides each batch over the replicas. Without TF_CONFIG the script trains alone.

    python examples/distributed/make_data.py
    python examples/distributed/start.py --workers 2 examples/distributed/multiworker/train.py
    pipetune analyze examples/distributed/multiworker/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[1] / "data"
SIDE_PIXELS = 28
BATCH_PER_REPLICA = 32


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [SIDE_PIXELS * SIDE_PIXELS])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def training_dataset(data, batch_size):
    """Batches for all workers together, without end: a worker with fewer records must not stop before the others."""
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"), shuffle=False)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(2048).repeat().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    return dataset.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE).with_options(options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="steps per epoch")
    arguments = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits until all workers are there
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/distributed/make_data.py first")
    worker = strategy.cluster_resolver.task_id or 0
    batch_size = BATCH_PER_REPLICA * strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential([keras.Input([SIDE_PIXELS * SIDE_PIXELS]), keras.layers.Dense(10)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(images, training=True)) / batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(images, labels):
        return strategy.reduce("SUM", strategy.run(replica_step, args=(images, labels)), axis=None)

    iterator = iter(strategy.experimental_distribute_dataset(training_dataset(arguments.data, batch_size)))
    for epoch in range(arguments.epochs):
        total = 0.0
        for _ in range(arguments.steps):
            total += float(train_step(*next(iterator)))
        print(f"worker {worker}, epoch {epoch + 1}: mean loss {total / arguments.steps:.4f}", flush=True)


if __name__ == "__main__":
    main()
