"""Train on all accelerators of one machine: `MirroredStrategy` and Keras.

Keras takes batches for all replicas together and divides them. Without two GPUs the processor stands for two
devices, to try it out.

    python examples/distributed/make_data.py
    python examples/distributed/mirrored/train.py
    pipetune analyze examples/distributed/mirrored/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[1] / "data"
SIDE_PIXELS = 28
BATCH_PER_REPLICA = 32


def make_strategy():
    if len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [SIDE_PIXELS, SIDE_PIXELS, 1])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def training_dataset(data, batch_size):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(2048).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all examples once)")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/distributed/make_data.py first")

    strategy = make_strategy()
    print(f"{strategy.num_replicas_in_sync} replicas")
    dataset = training_dataset(arguments.data, BATCH_PER_REPLICA * strategy.num_replicas_in_sync)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([SIDE_PIXELS, SIDE_PIXELS, 1]),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    model.fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
