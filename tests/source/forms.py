"""Ways in which people write a tf.data pipeline, each with a plan and the lines that the patch adds to the script.

The shapes are those of public training scripts: tutorials and guides of TensorFlow and Keras, model collections,
notebooks of competitions. The scripts are written for this table. `fit(train)` and `evaluate(check)` stand for what
consumes a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DATA = '''\
import numpy as np
import tensorflow as tf

X = np.arange(48, dtype=np.float32).reshape(12, 4)
Y = np.arange(12, dtype=np.int64)
FEATURES = {"x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.VarLenFeature(tf.int64)}


def example(number):
    x = tf.train.Feature(float_list=tf.train.FloatList(value=[number, 2.0]))
    y = tf.train.Feature(int64_list=tf.train.Int64List(value=[number] * (number % 3)))
    return tf.train.Example(features=tf.train.Features(feature={"x": x, "y": y})).SerializeToString()


EXAMPLES = [example(number) for number in range(12)]
SERIES = np.arange(40, dtype=np.float32)
trained, evaluated = [], []


def fit(train, check=None):
    trained.append(train)
    if check is not None:
        evaluated.append(check)


evaluate = evaluated.append
'''
"""The module `data`, which the scripts import."""


@dataclass(frozen=True)
class Form:
    """One way of writing a pipeline."""

    name: str
    plan: str  # see `test_forms.py`
    script: str
    adds: str = ""  # the lines that the patch adds, in order
    files: Mapping[str, str] = field(default_factory=dict)  # other modules of the script, by name


HOW_FUNCTIONS_ARE_GIVEN = (
    Form(
        "a named function",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(scale)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a lambda",
        "vectorized map",
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda x: x / 255.0)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a lambda of two components",
        "vectorized map",
        """
ds = tf.data.Dataset.from_tensor_slices((X, Y))
ds = ds.map(lambda x, y: (x / 255.0, y + 1))
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a lambda over several lines",
        "vectorized map",
        """
ds = (
    tf.data.Dataset.from_tensor_slices((X, Y))
    .map(
        lambda image, label: (
            image / 255.0,  # to [0, 1]
            tf.one_hot(label, 12),
        ),
        num_parallel_calls=2,
    )
    .batch(4)
)
fit(ds)
""",
    ),
    Form(
        "a lambda with a default argument",
        "vectorized map",
        """
for scale in (255.0, 128.0):
    ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x, scale=scale: x / scale).batch(4)
fit(ds)
""",
    ),
    Form(
        "a lambda that has a name",
        "vectorized map",
        """
scale = lambda x: x / 255.0
ds = tf.data.Dataset.from_tensor_slices(X).map(scale).batch(4)
fit(ds)
""",
    ),
    Form(
        "a lambda that takes a dictionary apart",
        "vectorized map",
        """
ds = tf.data.Dataset.from_tensor_slices({"image": X, "label": Y})
ds = ds.map(lambda row: (row["image"] / 255.0, row["label"]))
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a nested function",
        "vectorized map",
        """
def build(scale):
    def preprocess(x, y):
        return x / scale, y

    ds = tf.data.Dataset.from_tensor_slices((X, Y))
    return ds.map(preprocess).batch(4)

fit(build(255.0))
""",
    ),
    Form(
        "a method",
        "vectorized map",
        """
class Input:
    def __init__(self, scale):
        self.scale = scale

    def _decode(self, x, y):
        return x / self.scale, y

    def dataset(self):
        ds = tf.data.Dataset.from_tensor_slices((X, Y))
        ds = ds.map(self._decode, num_parallel_calls=tf.data.AUTOTUNE)
        ds = ds.batch(4)
        return ds

fit(Input(255.0).dataset())
""",
    ),
    Form(
        "a method of another object",
        "vectorized map",
        """
class Decoder:
    def decode(self, x):
        return x / 255.0

class Input:
    def __init__(self):
        self.decoder = Decoder()

    def dataset(self):
        return tf.data.Dataset.from_tensor_slices(X).map(self.decoder.decode).batch(4)

fit(Input().dataset())
""",
    ),
    Form(
        "a static method",
        "vectorized map",
        """
class Input:
    @staticmethod
    def decode(x):
        return x / 255.0

    @classmethod
    def dataset(cls):
        return tf.data.Dataset.from_tensor_slices(X).map(cls.decode).batch(4)

fit(Input.dataset())
""",
    ),
    Form(
        "functools.partial in the call",
        "vectorized map",
        """
import functools

def resize(x, y, factor, training):
    return x * factor, y

ds = tf.data.Dataset.from_tensor_slices((X, Y))
ds = ds.map(functools.partial(resize, factor=2.0, training=True), num_parallel_calls=2)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "functools.partial with a name",
        "vectorized map",
        """
from functools import partial

def resize(x, factor):
    return x * factor

doubled = partial(resize, factor=2.0)
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(doubled)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a tf.function",
        "vectorized map",
        """
@tf.function
def scale(x):
    return x / 255.0

ds = tf.data.Dataset.from_tensor_slices(X).map(scale).batch(4)
fit(ds)
""",
    ),
    Form(
        "a decorated function",
        "vectorized map",
        """
import functools

def labelled(function):
    @functools.wraps(function)
    def wrapped(x, y):
        return function(x), y

    return wrapped

@labelled
def scale(x):
    return x / 255.0

ds = tf.data.Dataset.from_tensor_slices((X, Y)).map(scale).batch(4)
fit(ds)
""",
    ),
    Form(
        "a conditional expression",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

def shift(x):
    return x - 1.0

training = True
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(scale if training else shift)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a function of another module",
        "vectorized map",
        """
from preprocessing import scale

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(scale).batch(4)
fit(ds)
""",
        files={"preprocessing": "def scale(x):\n    return x / 255.0\n"},
    ),
    Form(
        "a function reached through its module",
        "vectorized map",
        """
import preprocessing as prep

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(prep.scale).batch(4)
fit(ds)
""",
        files={"preprocessing": "def scale(x):\n    return x / 255.0\n"},
    ),
    Form(
        "a function that another one makes",
        "vectorized map",
        """
def make_scale(by):
    def scale(x):
        return x / by
    return scale

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(make_scale(255.0))
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a function that another one makes, in a return",
        "vectorized map",
        """
def make_scale(by):
    return lambda x, y: (x / by, y)

def dataset(by):
    return (
        tf.data.Dataset.from_tensor_slices((X, Y))
        .shuffle(12, seed=1)
        .map(make_scale(by))
        .batch(4)
    )

fit(dataset(255.0))
""",
    ),
    Form(
        "an object that can be called",
        "vectorized map",
        """
class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x / self.by

ds = tf.data.Dataset.from_tensor_slices(X).map(Scale(255.0)).batch(4)
fit(ds)
""",
    ),
    Form(
        "a layer of Keras, called on batches",
        "batched map",
        """
import keras

rescale = keras.layers.Rescaling(1.0 / 255.0)
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(rescale)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "layers of Keras in a lambda",
        "batched map",
        """
import keras

rescale, centre = keras.layers.Rescaling(1.0 / 255.0), keras.layers.Rescaling(2.0, offset=-1.0)
ds = tf.data.Dataset.from_tensor_slices((X, Y))
ds = ds.map(lambda x, y: (centre(rescale(x)), y), num_parallel_calls=tf.data.AUTOTUNE)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a function that is a parameter",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

def build(preprocess, size):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(preprocess)
    return ds.batch(size)

fit(build(scale, 4))
""",
    ),
    Form(
        "a function out of a dictionary",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

PREPROCESS = {"train": scale}
ds = tf.data.Dataset.from_tensor_slices(X).map(PREPROCESS["train"]).batch(4)
fit(ds)
""",
    ),
    Form(
        "map_func by keyword",
        "vectorized map",
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(num_parallel_calls=2, map_func=lambda x: x / 255.0)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a function of TensorFlow",
        "batched map",
        """
ds = tf.data.Dataset.from_tensor_slices(-X)
ds = ds.map(tf.abs)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "starred arguments: what they do not give",
        "map.deterministic=True",
        """
options = {"num_parallel_calls": 2}
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(tf.abs, **options)
fit(ds.batch(4))
""",
    ),
    Form(
        "starred arguments: what they give",
        "map.num_parallel_calls=4",
        """
def mapped(ds, *args, **kwargs):
    return ds.map(*args, **kwargs)

ds = mapped(tf.data.Dataset.from_tensor_slices(X), tf.abs, num_parallel_calls=2)
fit(ds.batch(4))
""",
    ),
    Form(
        "a number that has a name",
        "map.num_parallel_calls=-1",
        """
WORKERS = 2
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(tf.abs, num_parallel_calls=WORKERS)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "numbers from the command line",
        "map.num_parallel_calls=-1; prefetch",
        """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--buffer", type=int, default=6)
args = parser.parse_args([])

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.shuffle(args.buffer, seed=1).map(tf.abs, num_parallel_calls=args.workers).batch(4)
fit(ds)
""",
    ),
    Form(
        "two lambdas in one",
        "fused map#0 map#1",
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda x: x / 255.0)
ds = ds.map(lambda x: x - 0.5)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "two lambdas in one, of two components",
        "fused map#0 map#1",
        """
ds = (
    tf.data.Dataset.from_tensor_slices((X, Y))
    .map(lambda x, y: (x / 255.0, y))
    .map(lambda x, y: (x - 0.5, tf.one_hot(y, 12)))
    .batch(4)
)
fit(ds)
""",
    ),
    Form(
        "a function and a layer in one",
        "fused map#0 map#1",
        """
import functools

def scale(x, y, by):
    return x / by, y

ds = tf.data.Dataset.from_tensor_slices((X, Y))
ds = ds.map(functools.partial(scale, by=255.0))
ds = ds.map(lambda x, y: (tf.reverse(x, [0]), y))
ds = ds.batch(4)
fit(ds)
""",
    ),
)

HOW_PIPELINES_ARE_WRITTEN = (
    Form(
        "a chain in parentheses",
        "vectorized map; prefetch",
        """
ds = (
    tf.data.Dataset.from_tensor_slices(X)
    .shuffle(12, seed=1)
    .map(lambda x: x / 255.0, num_parallel_calls=2)  # scale
    .batch(4)
)
fit(ds)
""",
    ),
    Form(
        "a chain with backslashes",
        "vectorized map; prefetch",
        """
ds = tf.data.Dataset.from_tensor_slices(X) \\
    .map(lambda x: x / 255.0) \\
    .shuffle(12, seed=1) \\
    .batch(4)
fit(ds)
""",
    ),
    Form(
        "a chain as an argument",
        "vectorized map; prefetch",
        """
fit(tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4))
""",
    ),
    Form(
        "the last links as an argument",
        "vectorized map; prefetch",
        """
ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
steps = len(X) // 4
fit(ds.shuffle(12, seed=1).batch(4))
""",
    ),
    Form(
        "names for each step",
        "vectorized map",
        """
rows = tf.data.Dataset.from_tensor_slices(X)
scaled = rows.map(lambda x: x / 255.0)
shuffled = scaled.shuffle(12, seed=1)
batches = shuffled.batch(4)
fit(batches)
""",
    ),
    Form(
        "statements of no concern between",
        "vectorized map",
        """
import logging

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda x: x / 255.0)
buffer_size = len(X)
logging.info("%d rows", len(X))
print("shuffling", buffer_size)
ds = ds.shuffle(buffer_size, seed=1)
batch_size = 4
ds = ds.batch(batch_size)
fit(ds)
""",
    ),
    Form(
        "an annotation, a walrus, two targets",
        "cached map",
        """
ds: tf.data.Dataset = tf.data.Dataset.from_tensor_slices(X)
if (mapped := ds.map(lambda x: x / 255.0)) is not None:
    train = ds = mapped.batch(4)
fit(train)
""",
    ),
    Form(
        "a helper for the dataset",
        "vectorized map",
        """
def shuffled(ds, size):
    return ds.shuffle(size, seed=1)

ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda x: x / 255.0)
ds = shuffled(ds, 12)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a map in a helper, the batch outside",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

def load(rows):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    return ds.map(scale, num_parallel_calls=2)

ds = load(X)
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a map outside, the batch in a helper",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

def batched(ds, size=4):
    ds = ds.shuffle(12, seed=1)
    return ds.batch(size)

ds = tf.data.Dataset.from_tensor_slices(X).map(scale)
ds = batched(ds)
fit(ds)
""",
    ),
    Form(
        "apply with a function",
        "vectorized map",
        """
def prepare(ds):
    ds = ds.map(lambda x: x / 255.0)
    return ds.batch(4)

fit(tf.data.Dataset.from_tensor_slices(X).apply(prepare))
""",
    ),
    Form(
        "apply with a lambda",
        "batched map; prefetch",
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.apply(lambda rows: rows.map(lambda x: x / 255.0).batch(4))
fit(ds)
""",
    ),
    Form(
        "apply with a function that another one makes",
        "prefetch",
        """
def batched(size):
    def apply(ds):
        return ds.batch(size)
    return apply

ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).apply(batched(4))
fit(ds)
""",
    ),
    Form(
        "functions from a list",
        "map.num_parallel_calls=-1",
        """
def scale(x):
    return x / 255.0

def shift(x):
    return x - 0.5

ds = tf.data.Dataset.from_tensor_slices(X)
for op in [scale, shift]:
    ds = ds.map(op)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "functions from a list, put behind the batch",
        "vectorized map",
        """
def scale(x):
    return x / 255.0

def shift(x):
    return x - 0.5

ds = tf.data.Dataset.from_tensor_slices(X)
for op in [scale, shift]:
    ds = ds.map(op)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "functools.reduce over functions",
        "map.num_parallel_calls=2",
        """
import functools

steps = [tf.abs, tf.negative]
ds = functools.reduce(lambda ds, step: ds.map(step), steps, tf.data.Dataset.from_tensor_slices(X))
fit(ds.batch(4))
""",
    ),
    Form(
        "within a name scope and a device",
        "vectorized map; prefetch",
        """
with tf.name_scope("input"), tf.device("/cpu:0"):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "in and behind a strategy's scope",
        "prefetch; map.num_parallel_calls=2",
        """
strategy = tf.distribute.get_strategy()
with strategy.scope():
    ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a shuffle under a condition",
        "vectorized map",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    if training:
        ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

fit(dataset(True))
""",
    ),
    Form(
        "the map under a condition",
        "vectorized map",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    if training:
        ds = ds.map(lambda x: x / 255.0)
    ds = ds.batch(4)
    return ds

fit(dataset(True))
""",
    ),
    Form(
        "the map under a condition, beside others",
        "vectorized map",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    if training:
        ds = ds.shuffle(12, seed=1)
        # augment
        ds = ds.map(lambda x: x / 255.0)
    ds = ds.batch(4)
    return ds

fit(dataset(True))
""",
    ),
    Form(
        "a shuffle under a condition, moved up",
        "moved shuffle map.input",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    if training:
        ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

fit(dataset(True))
""",
    ),
    Form(
        "a conditional expression for a step",
        "vectorized map",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.shuffle(12, seed=1) if training else ds
    return ds.batch(4)

fit(dataset(True))
""",
    ),
    Form(
        "a conditional expression in an argument",
        "vectorized map; prefetch",
        """
training = True
ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
ds = ds.shuffle(12 if training else 1, seed=1).batch(4 if training else 8)
fit(ds)
""",
    ),
    Form(
        "an early return",
        "vectorized map; prefetch",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
    if not training:
        return ds.batch(8)
    return ds.shuffle(12, seed=1).batch(4)

fit(dataset(True))
""",
    ),
    Form(
        "methods that keep the dataset",
        "batched map",
        """
class Input:
    def __init__(self):
        self.dataset = tf.data.Dataset.from_tensor_slices(X)
        self.dataset = self.dataset.map(lambda x: x / 255.0)
        self.dataset = self.dataset.batch(4)

fit(Input().dataset)
""",
    ),
    Form(
        "a method for each step",
        "prefetch; map.num_parallel_calls=-1",
        """
class Input:
    def __init__(self, rows):
        self.dataset = tf.data.Dataset.from_tensor_slices(rows)

    def map(self, function):
        self.dataset = self.dataset.map(function)
        return self

    def batch(self, size):
        self.dataset = self.dataset.batch(size)
        return self

fit(Input(X).map(lambda x: x / 255.0).batch(4).dataset)
""",
    ),
    Form(
        "a property",
        "vectorized map; prefetch",
        """
class Input:
    @property
    def train(self):
        ds = tf.data.Dataset.from_tensor_slices(X)
        return ds.map(lambda x: x / 255.0).batch(4)

fit(Input().train)
""",
    ),
    Form(
        "a dataclass",
        "vectorized map",
        """
from dataclasses import dataclass

@dataclass
class Input:
    size: int = 4
    scale: float = 255.0

    def __call__(self):
        ds = tf.data.Dataset.from_tensor_slices((X, Y))
        ds = ds.map(lambda x, y: (x / self.scale, y))
        return ds.batch(self.size)

fit(Input()())
""",
    ),
    Form(
        "a class attribute",
        "vectorized map; prefetch",
        """
class Data:
    train = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4)

fit(Data.train)
""",
    ),
    Form(
        "a class that inherits",
        "batched map; prefetch",
        """
class Base:
    def dataset(self):
        return tf.data.Dataset.from_tensor_slices(X).map(self.decode).batch(4)

class Scaled(Base):
    def decode(self, x):
        return x / 255.0

    def dataset(self):
        return super().dataset().repeat(2)

fit(Scaled().dataset())
""",
    ),
    Form(
        "a function that makes the input function",
        "vectorized map",
        """
def make_input_fn(rows, labels, shuffle=True, size=4):
    def input_function():
        ds = tf.data.Dataset.from_tensor_slices((dict(x=rows), labels))
        ds = ds.map(lambda x, y: ({"x": x["x"] / 255.0}, y))
        if shuffle:
            ds = ds.shuffle(12, seed=1)
        ds = ds.batch(size).repeat(2)
        return ds
    return input_function

train_input_fn = make_input_fn(X, Y)
fit(train_input_fn())
""",
    ),
    Form(
        "a main function",
        "vectorized map; prefetch",
        """
def main(argv=None):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.batch(4)
    fit(ds)

main()
""",
    ),
    Form(
        "a function that yields datasets",
        "cached map",
        """
def folds(count):
    for fold in range(count):
        rows = tf.data.Dataset.from_tensor_slices(X)
        yield rows.map(lambda x: x / 255.0).batch(4)

fit(next(folds(3)))
""",
    ),
    Form(
        "zip of two",
        "map.num_parallel_calls=2; prefetch",
        """
images = tf.data.Dataset.from_tensor_slices(X)
labels = tf.data.Dataset.from_tensor_slices(Y)
ds = tf.data.Dataset.zip((images.map(lambda x: x / 255.0), labels)).batch(4)
fit(ds)
""",
    ),
    Form(
        "zip of two, the cache of one",
        "cached map",
        """
def scale(x):
    return x / 255.0

images = tf.data.Dataset.from_tensor_slices(X).map(scale)
ds = tf.data.Dataset.zip(images, tf.data.Dataset.from_tensor_slices(Y))
ds = ds.shuffle(12, seed=1).batch(4)
fit(ds)
""",
    ),
    Form(
        "an interleave of files",
        "interleave.num_parallel_calls=-1; interleave.cycle_length=2; interleave.block_length=1; prefetch",
        """
ds = tf.data.Dataset.range(3).interleave(
    lambda number: tf.data.Dataset.from_tensors(number).repeat(4), cycle_length=2, block_length=1
)
ds = ds.map(lambda x: x + 1).batch(4)
fit(ds)
""",
    ),
    Form(
        "from tensorflow import data",
        "map.num_parallel_calls=-1; prefetch",
        """
from tensorflow import data

ds = data.Dataset.from_tensor_slices(X).map(tf.abs).batch(4)
fit(ds)
""",
    ),
    Form(
        "AUTOTUNE has a name",
        "map.num_parallel_calls=-1; prefetch",
        """
import tensorflow.data as tfd
AUTO = tfd.AUTOTUNE

ds = tfd.Dataset.from_tensor_slices(X)
ds = ds.map(tf.abs)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "a name for the class",
        "vectorized map; prefetch",
        """
from tensorflow.data import Dataset

ds = Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4)
fit(ds)
""",
    ),
    Form(
        "unbound: a number of calls",
        "map.num_parallel_calls=2",
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = tf.data.Dataset.map(ds, tf.abs)
ds = tf.data.Dataset.batch(ds, 4)
fit(ds)
""",
    ),
    Form(
        "unbound, through a name: a number of calls",
        "map.num_parallel_calls=2",
        """
D = tf.data.Dataset
d = D.from_tensor_slices(X)
d = D.map(d, tf.abs)
fit(D.batch(d, 4))
""",
    ),
    Form(
        "unbound: behind the batch",
        "vectorized map; prefetch",
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = tf.data.Dataset.map(ds, lambda x: x / 255.0)
ds = tf.data.Dataset.batch(ds, 4)
fit(ds)
""",
    ),
    Form(
        "options behind a return",
        "options.deterministic=True",
        """
def dataset():
    ds = tf.data.Dataset.from_tensor_slices(X)
    return ds.map(lambda x: x / 255.0).batch(4)

fit(dataset())
""",
    ),
    Form(
        "options in an argument",
        "options.threading.private_threadpool_size=2",
        """
fit(tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4))
""",
    ),
    Form(
        "options beside those of the script",
        "options.threading.private_threadpool_size=2",
        """
options = tf.data.Options()
options.deterministic = False
ds = tf.data.Dataset.from_tensor_slices(X).with_options(options)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "within try",
        "vectorized map",
        """
try:
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.batch(4)
except ValueError:
    raise SystemExit("no data")
fit(ds)
""",
    ),
    Form(
        "a list of datasets",
        "map.num_parallel_calls=2",
        """
parts = [tf.data.Dataset.from_tensor_slices(X[start::2]).map(tf.abs) for start in range(2)]
ds = parts[0].concatenate(parts[1])
fit(ds.batch(4))
""",
    ),
)

ROWS_GATHERED = (
    Form(
        "arrays, line by line",
        "gathered",
        """
ds = tf.data.Dataset.from_tensor_slices((X, Y))
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "arrays, in a chain",
        "gathered",
        """
train = tf.data.Dataset.from_tensor_slices((X / 255.0, Y)).shuffle(12, seed=1).batch(4).prefetch(1)
fit(train)
""",
    ),
    Form(
        "arrays in a return",
        "gathered",
        """
def dataset(x, y, size):
    return (
        tf.data.Dataset.from_tensor_slices((x, y))
        .shuffle(12, seed=1)
        .batch(size)
    )

fit(dataset(X, Y, 4))
""",
    ),
    Form(
        "arrays in an argument",
        "gathered",
        """
fit(tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12, seed=1).batch(4))
""",
    ),
    Form(
        "arrays by name, with a map",
        "gathered; batched map",
        """
def scale(row):
    return {**row, "x": row["x"] / 255.0}

ds = tf.data.Dataset.from_tensor_slices({"x": X, "y": Y})
ds = ds.map(scale)
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "arrays of an object",
        "gathered",
        """
class Data:
    def __init__(self):
        self.x, self.y = X, Y

    def dataset(self, training):
        ds = tf.data.Dataset.from_tensor_slices((self.x, self.y))
        if training:
            ds = ds.shuffle(len(self.x), seed=1)
        return ds.batch(4)

fit(Data().dataset(True))
""",
    ),
    Form(
        "arrays made in one function and batched in another",
        "gathered",
        """
def load():
    return tf.data.Dataset.from_tensor_slices((X, Y))

ds = load()
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "arrays unbound, in one name",
        "gathered",
        """
D = tf.data.Dataset
ds = D.from_tensor_slices(tensors=(X, Y))
ds = D.shuffle(ds, 12, seed=1)
ds = D.batch(ds, 4)
fit(ds)
""",
    ),
    Form(
        "windows of a series",
        "series",
        """
class Windows:
    def __init__(self, width):
        self.width = width

    def split(self, window):
        return window[:, :-1], window[:, -1]

    def dataset(self, rows):
        ds = tf.keras.utils.timeseries_dataset_from_array(
            data=rows, targets=None, sequence_length=self.width, batch_size=8
        )
        return ds.map(self.split)

    @property
    def train(self):
        return self.dataset(SERIES)

fit(Windows(5).train)
""",
    ),
)

RECORDS_PARSED = (
    Form(
        "records: a lambda",
        "parsed map",
        """
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES)
ds = ds.map(lambda record: tf.io.parse_single_example(record, FEATURES))
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "records: a function",
        "parsed map",
        """
def parse(record):
    \"\"\"One example.\"\"\"
    return tf.io.parse_single_example(record, FEATURES)

ds = tf.data.Dataset.from_tensor_slices(EXAMPLES)
ds = ds.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "records: a function within the helper",
        "parsed map",
        """
def dataset(records):
    def _parse(record):
        parsed = tf.io.parse_single_example(record, features=FEATURES)
        return parsed["x"], parsed["y"]

    ds = tf.data.Dataset.from_tensor_slices(records)
    ds = ds.map(_parse)
    ds = ds.batch(4)
    return ds

fit(dataset(EXAMPLES))
""",
    ),
    Form(
        "records: a method",
        "parsed map",
        """
class Input:
    def parse(self, record):
        parsed = tf.io.parse_single_example(record, FEATURES)
        return parsed["x"], parsed["y"]

    def dataset(self):
        ds = tf.data.Dataset.from_tensor_slices(EXAMPLES)
        return ds.map(self.parse).batch(4)

fit(Input().dataset())
""",
    ),
    Form(
        "records: a function that calls another",
        "parsed map",
        """
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)

def select(record):
    parsed = parse(record)
    return parsed["x"], parsed["y"]

ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).map(select).batch(4)
fit(ds)
""",
    ),
    Form(
        "records: a function of another module",
        "parsed map",
        """
from reading import parse

ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).map(parse).batch(4)
fit(ds)
""",
        files={
            "reading": "import tensorflow as tf\nfrom data import FEATURES\n\n\ndef parse(record):\n"
            "    return tf.io.parse_single_example(record, FEATURES)\n"
        },
    ),
    Form(
        "records: functools.partial",
        "parsed map",
        """
import functools

def parse(record, features):
    return tf.io.parse_single_example(record, features)

ds = tf.data.Dataset.from_tensor_slices(EXAMPLES)
ds = ds.map(functools.partial(parse, features=FEATURES))
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "records: a function that others call too",
        "parsed map",
        """
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)

first = parse(EXAMPLES[0])
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES)
ds = ds.map(parse)
ds = ds.batch(4)
fit(ds)
""",
    ),
    Form(
        "records: one of two functions",
        "parsed map",
        """
def read_labeled(record):
    parsed = tf.io.parse_single_example(record, FEATURES)
    return parsed["x"], parsed["y"]

def read_unlabeled(record):
    return tf.io.parse_single_example(record, FEATURES)["x"]

def load(records, labeled=True):
    ds = tf.data.Dataset.from_tensor_slices(records)
    ds = ds.map(read_labeled if labeled else read_unlabeled)
    return ds.batch(4)

fit(load(EXAMPLES))
""",
    ),
)

SEVERAL_DATASETS = (
    Form(
        "a helper for both, equal for both",
        "vectorized map",
        """
def dataset(rows, training):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(lambda x: x / 255.0)
    if training:
        ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

train, check = dataset(X, True), dataset(X[:6], False)
fit(train, check)
""",
    ),
    Form(
        "a helper that is called again after training",
        "vectorized map",
        """
def dataset(rows):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(lambda x: x / 255.0)
    return ds.batch(4)

fit(dataset(X))
evaluate(dataset(X[:6]))
""",
    ),
    Form(
        "a helper for both, a cache for training",
        "cached map",
        """
def dataset(rows):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    return ds.map(lambda x: x / 255.0).batch(4)

fit(dataset(X), dataset(X[:6]))
""",
    ),
    Form(
        "a helper for both, a cache behind all it does",
        "cached batch",
        """
def dataset(rows):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    return ds.map(lambda x: x / 255.0).batch(4)

train = dataset(X)
check = dataset(X[:6])
fit(train, check)
""",
    ),
    Form(
        "the tutorial of Keras: prepare(ds, shuffle, augment)",
        "vectorized map#1",
        """
def prepare(ds, shuffle=False, augment=False):
    ds = ds.map(lambda x, y: (x / 255.0, y))
    if shuffle:
        ds = ds.shuffle(12, seed=1)
    if augment:
        ds = ds.map(lambda x, y: (x * 2.0, y), num_parallel_calls=tf.data.AUTOTUNE)
    ds = ds.batch(4)
    return ds.prefetch(tf.data.AUTOTUNE)

rows = tf.data.Dataset.from_tensor_slices((X, Y))
train = prepare(rows, shuffle=True, augment=True)
check = prepare(rows)
fit(train, check)
""",
    ),
    Form(
        "a loop over the splits",
        "vectorized map",
        """
datasets = {}
for split, rows in (("train", X), ("test", X[:6])):
    ds = tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0)
    datasets[split] = ds.batch(4)
fit(datasets["train"], datasets["test"])
""",
    ),
    Form(
        "a comprehension over the splits",
        "vectorized map; prefetch",
        """
def dataset(rows):
    return tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0).batch(4)

train, check = [dataset(rows) for rows in (X, X[:6])]
fit(train, check)
""",
    ),
    Form(
        "properties that call one method",
        "batched map",
        """
class Data:
    def make(self, rows):
        ds = tf.data.Dataset.from_tensor_slices(rows)
        ds = ds.map(self.scale)
        return ds.batch(4)

    def scale(self, x):
        return x / 255.0

    @property
    def train(self):
        return self.make(X)

    @property
    def check(self):
        return self.make(X[:6])

    @property
    def test(self):
        return self.make(X[6:])

data = Data()
fit(data.train, data.check)
evaluate(data.test)
""",
    ),
    Form(
        "a split by take and skip",
        "vectorized map; prefetch",
        """
rows = tf.data.Dataset.from_tensor_slices(X)
train = rows.skip(4).map(lambda x: x / 255.0).batch(4)
check = rows.take(4).map(lambda x: x / 255.0).batch(4)
fit(train, check)
""",
    ),
    Form(
        "helpers that call each other",
        "vectorized map",
        """
def load(rows):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(lambda x: x / 255.0)
    return ds.batch(4)

def training():
    return load(X).repeat(2)

def checking():
    return load(X[:6])

fit(training())
evaluate(checking())
""",
    ),
)

FORMS = (
    *HOW_FUNCTIONS_ARE_GIVEN,
    *HOW_PIPELINES_ARE_WRITTEN,
    *ROWS_GATHERED,
    *RECORDS_PARSED,
    *SEVERAL_DATASETS,
)
