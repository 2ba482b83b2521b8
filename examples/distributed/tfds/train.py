"""Train on a dataset of TensorFlow Datasets, on several machines.

`ReadConfig(input_context=...)` gives each worker its own files. Without TF_CONFIG the script trains alone.

    python examples/distributed/tfds/make_data.py
    python examples/distributed/start.py --workers 2 examples/distributed/tfds/train.py
    pipetune analyze examples/distributed/tfds/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import tensorflow as tf
import tensorflow_datasets as tfds

DATA = Path(__file__).resolve().parent / "data"
BATCH_PER_REPLICA = 32


def scale(image, label):
    return tf.cast(image, tf.float32) / 255.0, label


def training_dataset(data, context, batch_size):
    """What one worker reads, in batches for one replica, without end."""
    dataset = tfds.load(
        "turned_digits",
        split="train",
        data_dir=data,
        shuffle_files=True,
        as_supervised=True,
        read_config=tfds.ReadConfig(input_context=context),
    )
    dataset = dataset.shuffle(2048).repeat().map(scale, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(context.get_per_replica_batch_size(batch_size)).prefetch(tf.data.AUTOTUNE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="steps per epoch")
    arguments = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits until all workers are there
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/distributed/tfds/make_data.py first")
    worker = strategy.cluster_resolver.task_id or 0
    batch_size = BATCH_PER_REPLICA * strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential([keras.Input([28, 28, 1]), keras.layers.Flatten(), keras.layers.Dense(10)])
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

    distributed = strategy.distribute_datasets_from_function(
        lambda context: training_dataset(arguments.data, context, batch_size)
    )
    iterator = iter(distributed)
    for epoch in range(arguments.epochs):
        total = 0.0
        for _ in range(arguments.steps):
            total += float(train_step(*next(iterator)))
        print(f"worker {worker}, epoch {epoch + 1}: mean loss {total / arguments.steps:.4f}", flush=True)


if __name__ == "__main__":
    main()
