"""Train with an input that other processes compute: tf.data service.

Every epoch the dispatcher hands the files out among the workers as they ask for them. Without `--service` the input
runs in this process.

    python examples/distributed/make_data.py
    python examples/distributed/service/serve.py dispatcher --port 5050 &
    python examples/distributed/service/serve.py worker --dispatcher localhost:5050 &
    python examples/distributed/service/train.py --service grpc://localhost:5050
    pipetune analyze --distribute service examples/distributed/service/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[1] / "data"
SIDE_PIXELS = 28
BATCH_SIZE = 64


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [SIDE_PIXELS, SIDE_PIXELS, 1])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def training_dataset(data, service):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(2048).map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH_SIZE)
    if service:
        policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
        dataset = dataset.apply(tf.data.experimental.service.distribute(policy, service))
    return dataset.prefetch(tf.data.AUTOTUNE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--service", metavar="ADDRESS", help="grpc://HOST:PORT of the dispatcher")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/distributed/make_data.py first")

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
    model.fit(training_dataset(arguments.data, arguments.service), epochs=arguments.epochs, verbose=2)


if __name__ == "__main__":
    main()
