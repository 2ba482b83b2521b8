"""Trains on elements of the kind that its first argument names."""

import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

random = np.random.default_rng()
total = tf.Variable(0.0)


class Example(NamedTuple):
    features: dict
    label: tf.Tensor


def strings():
    words = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    lines = [" ".join(random.choice(words, random.integers(1, 12))) for _ in range(3200)]
    dataset = tf.data.Dataset.from_tensor_slices(lines)
    return dataset.map(lambda line: (tf.strings.upper(line), tf.size(tf.strings.split(line)))).batch(16)


def varying_shape():
    def sequences():
        random = np.random.default_rng()
        for _ in range(4000):
            yield random.standard_normal(random.integers(1, 40), dtype="float32")

    dataset = tf.data.Dataset.from_generator(sequences, output_signature=tf.TensorSpec([None], tf.float32))
    return dataset.map(lambda x: tf.cumsum(x)).padded_batch(16)


def ragged_sparse():
    def prepare(row):
        return {"ragged": row["ragged"] * 2.0, "sparse": tf.sparse.map_values(tf.abs, row["sparse"])}

    lengths = random.integers(1, 9, 6400)
    ragged = tf.RaggedTensor.from_row_lengths(random.standard_normal(lengths.sum(), dtype="float32"), lengths)
    ragged = tf.RaggedTensor.from_uniform_row_length(ragged, 2)
    sparse = tf.sparse.from_dense(np.eye(16, dtype="float32")[random.integers(0, 16, 3200)])
    return tf.data.Dataset.from_tensor_slices({"ragged": ragged, "sparse": sparse}).map(prepare).batch(16)


def nested_namedtuple():
    def prepare(example):
        deep, index = example.features["deep"]
        features = {"wide": example.features["wide"] * 2.0, "deep": (tf.abs(deep), index)}
        return Example(features, tf.one_hot(example.label, 2))

    wide, deep = (random.standard_normal((6400, size), dtype="float32") for size in (4, 8))
    examples = Example({"wide": wide, "deep": (deep, np.arange(6400))}, random.integers(0, 2, 6400))
    return tf.data.Dataset.from_tensor_slices(examples).map(prepare).batch(32)


def one_batch():
    features = random.standard_normal((32, 8), dtype="float32")
    return tf.data.Dataset.from_tensor_slices(features).map(lambda x: x * 2.0).batch(32)


@tf.function(reduce_retracing=True)
def train_step(element):
    for part in tf.nest.flatten(element, expand_composites=True):
        numbers = tf.strings.length(part) if part.dtype == tf.string else part
        total.assign_add(tf.reduce_mean(tf.cast(numbers, tf.float32)))


dataset = globals()[sys.argv[1]]()
if sys.argv[1] == "one_batch":  # no window holds more than one element
    for _epoch in range(250):
        for element in dataset:
            train_step(element)
else:
    for element in dataset:
        train_step(element)
