"""Train a small translation model on records of fixed length, with a hand-written loop.

What it shows: records of 612 bytes whose parsing is one read of raw bytes; each goes through every operator alone.

    python examples/gnmt/make_data.py
    pipetune analyze examples/gnmt/train.py
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
VOCABULARY = 36_548
MAX_LENGTH = 50
NUMBERS = 3 * MAX_LENGTH + 3
RECORD_BYTES = 4 * NUMBERS
BATCH_SIZE = 128
STEPS_PER_EPOCH = 600
UNITS = 16


def read(file):
    return tf.data.FixedLengthRecordDataset(file, RECORD_BYTES)


def split(record):
    numbers = tf.io.decode_raw(record, tf.int32)
    source, fed, target, lengths = tf.split(numbers, [MAX_LENGTH, MAX_LENGTH, MAX_LENGTH, 3])
    features = {"source": source, "fed": fed, "source_length": lengths[0], "target_length": lengths[1]}
    return features, target


def reshape(features, target):
    shapes = {"source": [MAX_LENGTH], "fed": [MAX_LENGTH], "source_length": [], "target_length": []}
    fixed = {name: tf.reshape(features[name], [BATCH_SIZE, *shape]) for name, shape in shapes.items()}
    return fixed, tf.reshape(target, [BATCH_SIZE, MAX_LENGTH])


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.bin"))
    dataset = files.interleave(read, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(split, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(10_000).repeat()
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(reshape, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


class Translator(keras.Model):
    """The mean of the source beside each word fed, and a softmax over the right next word and 64 sampled ones."""

    def __init__(self):
        super().__init__()
        self.words = keras.layers.Embedding(VOCABULARY, UNITS)
        self.hidden = keras.layers.Dense(UNITS, activation="relu")
        self.output_words = self.add_weight(shape=[VOCABULARY, UNITS], name="output_words")
        self.output_bias = self.add_weight(shape=[VOCABULARY], initializer="zeros", name="output_bias")

    def call(self, features):
        source = self.words(features["source"]) * tf.cast(features["source"] > 0, tf.float32)[..., None]
        mean = tf.reduce_sum(source, 1) / tf.cast(features["source_length"], tf.float32)[:, None]
        fed = self.words(features["fed"])
        return self.hidden(fed + mean[:, None, :])

    def loss_of(self, features, target):
        real = tf.sequence_mask(features["target_length"], MAX_LENGTH)
        losses = tf.nn.sampled_softmax_loss(
            tf.convert_to_tensor(self.output_words),
            tf.convert_to_tensor(self.output_bias),
            tf.boolean_mask(target, real)[:, None],
            tf.boolean_mask(self(features), real),
            num_sampled=64,
            num_classes=VOCABULARY,
        )
        return tf.reduce_mean(losses)


def train(dataset, arguments):
    model = Translator()
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def train_step(features, target):
        with tf.GradientTape() as tape:
            loss = model.loss_of(features, target)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for features, target in dataset:
            total += float(train_step(features, target))
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {steps} steps, mean loss {total / steps:.4f}")


def pretend_to_train(dataset, arguments):
    """Stands for an accelerator that works on each batch for `--step-time` milliseconds."""
    for epoch in range(arguments.epochs):
        started, steps = time.perf_counter(), 0
        for _ in dataset:
            time.sleep(arguments.step_time / 1000)
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {1000 * (time.perf_counter() - started) / steps:.1f} ms per step")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS_PER_EPOCH, help="steps per epoch")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/gnmt/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        train(dataset, arguments)


if __name__ == "__main__":
    main()
