"""Train a small classifier of lines of text that a tokenizer written in Python splits into word pieces.

What it shows: the costly operator is a Python function. One runs at a time, whatever the parallelism of the map.

    python examples/tokens/make_data.py
    pipetune analyze examples/tokens/train.py
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
MAX_LENGTH = 254
AUTHORS = 3
BATCH_SIZE = 32


class Tokenizer:
    """Splits each word into the longest pieces that the vocabulary has, from the left."""

    def __init__(self, vocabulary):
        self.numbers = {piece: number for number, piece in enumerate(vocabulary.read_text().splitlines())}
        self.longest = max(map(len, self.numbers))

    def __call__(self, text):
        tokens = []
        for word in re.findall(r"\w+|[^\w\s]", text.lower()):
            start = 0
            while start < len(word):
                end = min(len(word), start + self.longest)
                while end > start + 1 and word[start:end] not in self.numbers:
                    end -= 1
                tokens.append(self.numbers.get(word[start:end], 0))
                start = end
        return tokens


def has_text(line):
    return tf.strings.length(line) > 0


def truncate(tokens, label):
    return tokens[:MAX_LENGTH], label


def training_dataset(data=DATA):
    tokenizer = Tokenizer(data / "vocabulary.txt")

    def encode(line):
        label, _, text = line.numpy().decode().partition("\t")
        return tokenizer(text), int(label)

    def encoded(line):
        tokens, label = tf.py_function(encode, [line], (tf.int32, tf.int32))
        tokens.set_shape([None])
        label.set_shape([])
        return tokens, label

    files = tf.data.Dataset.list_files(str(data / "train-*.txt"))
    dataset = files.interleave(tf.data.TextLineDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.filter(has_text)
    dataset = dataset.shuffle(10_000)
    dataset = dataset.map(encoded, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(truncate, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.padded_batch(BATCH_SIZE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def make_model():
    layers = [
        keras.Input([None], dtype="int32"),
        keras.layers.Embedding(8192, 16, mask_zero=True),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(AUTHORS),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


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
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/tokens/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
