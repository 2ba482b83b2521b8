"""Train a small attention model on packed pairs of sentences, with a hand-written loop.

What it shows: many operators that each do little, on elements of some kilobytes: parse, cast, filter, pad, shuffle.

    python examples/transformer/make_data.py
    pipetune analyze examples/transformer/train.py
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
FEATURES = (
    "inputs",
    "inputs_position",
    "inputs_segmentation",
    "targets",
    "targets_position",
    "targets_segmentation",
)
VOCABULARY = 33_708
MAX_LENGTH = 256
BATCH_SIZE = 16
STEPS_PER_EPOCH = 900
SHUFFLED_RECORDS = 2048
UNITS = 16


def parse(record):
    example = tf.io.parse_single_example(record, {name: tf.io.VarLenFeature(tf.int64) for name in FEATURES})
    return {name: tf.sparse.to_dense(example[name]) for name in FEATURES}


def to_int32(example):
    return {name: tf.cast(example[name], tf.int32) for name in FEATURES}


def short_enough(example):
    return tf.maximum(tf.size(example["inputs"]), tf.size(example["targets"])) <= MAX_LENGTH


def pad(example):
    padded = {name: tf.pad(example[name], [[0, MAX_LENGTH - tf.size(example[name])]]) for name in FEATURES}
    return {name: tf.ensure_shape(padded[name], [MAX_LENGTH]) for name in FEATURES}


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(to_int32, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.filter(short_enough)
    dataset = dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(SHUFFLED_RECORDS).repeat()
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.prefetch(64)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


class Translator(keras.Model):
    """One attention from targets to inputs, and a softmax over the right word and 64 sampled ones."""

    def __init__(self):
        super().__init__()
        self.words = keras.layers.Embedding(VOCABULARY, UNITS)
        self.positions = keras.layers.Embedding(MAX_LENGTH, UNITS)
        self.attention = keras.layers.MultiHeadAttention(1, UNITS)
        self.output_words = self.add_weight(shape=[VOCABULARY, UNITS], name="output_words")
        self.output_bias = self.add_weight(shape=[VOCABULARY], initializer="zeros", name="output_bias")

    def call(self, batch):
        source = self.words(batch["inputs"]) + self.positions(batch["inputs_position"])
        before = tf.pad(batch["targets"][:, :-1], [[0, 0], [1, 0]])
        target = self.words(before) + self.positions(batch["targets_position"])
        same_pair = batch["targets_segmentation"][:, :, None] == batch["inputs_segmentation"][:, None, :]
        return target + self.attention(target, source, attention_mask=same_pair)

    def loss_of(self, batch):
        real = batch["targets_segmentation"] > 0
        hidden = tf.boolean_mask(self(batch), real)
        labels = tf.boolean_mask(batch["targets"], real)[:, None]
        losses = tf.nn.sampled_softmax_loss(
            tf.convert_to_tensor(self.output_words),
            tf.convert_to_tensor(self.output_bias),
            labels,
            hidden,
            num_sampled=64,
            num_classes=VOCABULARY,
        )
        return tf.reduce_mean(losses)


def train(dataset, arguments):
    model = Translator()
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def train_step(batch):
        with tf.GradientTape() as tape:
            loss = model.loss_of(batch)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for batch in dataset:
            total += float(train_step(batch))
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
        raise SystemExit(f"no data in {arguments.data}: run examples/transformer/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        train(dataset, arguments)


if __name__ == "__main__":
    main()
