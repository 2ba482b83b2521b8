# ruff: noqa: E501 (lines that a patch adds, as they appear in the file)
"""Ways in which people write a tf.data pipeline, each with a plan and the lines that the patch adds to the script.

The forms are those of public training scripts: tutorials and guides of TensorFlow and Keras, model collections,
notebooks of competitions. The scripts are written for this table. `fit(train)` and `evaluate(check)` stand for what
consumes a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DATA = """\
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
"""
"""The module `data`, which the scripts import."""


@dataclass(frozen=True)
class Form:
    """One way of writing a pipeline."""

    name: str
    plan: str  # see `test_forms.py`
    script: str
    adds: str = ""  # the lines that the patch adds, in order
    files: Mapping[str, str] = field(default_factory=dict)  # other modules of the script, by name
    why: str = ""  # part of the reason, where no patch is written


TIMESERIES_BATCHES = """
def timeseries_batches(
    data,
    targets,
    sequence_length,
    sequence_stride=1,
    sampling_rate=1,
    batch_size=128,
    shuffle=False,
    seed=None,
    start_index=None,
    end_index=None,
):
    \"\"\"Like keras.utils.timeseries_dataset_from_array, but gathers the windows of a batch at once.\"\"\"
    import numpy as np

    series = data[start_index:end_index]
    windows = len(series) - (sequence_length - 1) * sampling_rate
    if targets is not None:
        windows = min(windows, len(targets))
    starts = np.arange(0, windows, sequence_stride, dtype="int32")
    if shuffle:
        seed = np.random.randint(1_000_000) if seed is None else seed
        np.random.RandomState(seed).shuffle(starts)
    arrays = (series, starts) if targets is None else (series, starts, targets[start_index:end_index])
    series, starts, *beside = tf.data.Dataset.from_tensors(arrays).get_single_element()

    def windows_at(index):
        first = tf.gather(starts, index)
        rows = first[:, tf.newaxis] + tf.range(0, sequence_length * sampling_rate, sampling_rate)
        taken = tf.gather(series, rows)
        # As before, the window length is not part of the static shape.
        taken = tf.compat.v1.placeholder_with_default(taken, [*index.shape, None, *series.shape[1:]])
        return (taken, tf.gather(beside[0], first)) if beside else taken

    dataset = tf.data.Dataset.range(len(starts))
    if shuffle:
        dataset = dataset.shuffle(8 * batch_size, seed=seed)
    return dataset.batch(batch_size).map(windows_at)

"""
"""The function that a patch adds in place of `timeseries_dataset_from_array`, used by several scripts."""


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
        """
ds = ds.map(lambda batch: tf.vectorized_map(scale, batch))
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
        """
ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: (lambda x, y: (x / 255.0, y + 1))(*row), batch))
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
        """
def preprocess(image, label):
    return (
        image / 255.0,  # to [0, 1]
        tf.one_hot(label, 12),
    )

    .batch(4)
        lambda *batch: tf.vectorized_map(lambda row: preprocess(*row), batch),
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
        """
    ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
    ds = ds.map(lambda batch: tf.vectorized_map(lambda x, scale=scale: x / scale, batch))
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
        """
ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
ds = ds.map(lambda batch: tf.vectorized_map(scale, batch))
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
        """
ds = ds.map(lambda batch: tf.vectorized_map(lambda row: (row["image"] / 255.0, row["label"]), batch))
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
        """
    ds = ds.batch(4)
    return ds.map(lambda *batch: tf.vectorized_map(lambda row: preprocess(*row), batch))
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
        """
        ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: self._decode(*row), batch), num_parallel_calls=tf.data.AUTOTUNE)
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
        """
        return tf.data.Dataset.from_tensor_slices(X).batch(4).map(lambda batch: tf.vectorized_map(self.decoder.decode, batch))
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
        """
        return tf.data.Dataset.from_tensor_slices(X).batch(4).map(lambda batch: tf.vectorized_map(cls.decode, batch))
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
        """
ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: resize(*row, factor=2.0, training=True), batch), num_parallel_calls=2)
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
        """
ds = ds.map(lambda batch: tf.vectorized_map(doubled, batch))
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
        """
ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
ds = ds.map(lambda batch: tf.vectorized_map(scale, batch))
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
        """
ds = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: scale(*row), batch))
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
        """
ds = ds.map(lambda batch: tf.vectorized_map(scale if training else shift, batch))
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
        """
ds = ds.batch(4).map(lambda batch: tf.vectorized_map(scale, batch))
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
        """
ds = ds.batch(4).map(lambda batch: tf.vectorized_map(prep.scale, batch))
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
        """
scale = make_scale(255.0)
ds = ds.map(lambda batch: tf.vectorized_map(scale, batch))
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
        """
    preprocess = make_scale(by)
        .map(lambda *batch: tf.vectorized_map(lambda row: preprocess(*row), batch))
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
        """
preprocess = Scale(255.0)
ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
ds = ds.map(lambda batch: tf.vectorized_map(preprocess, batch))
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
        """
ds = ds.batch(4)
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
        """
ds = ds.batch(4)
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
        """
    return ds.batch(size).map(lambda batch: tf.vectorized_map(preprocess, batch))
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
        """
ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
ds = ds.map(lambda batch: tf.vectorized_map(PREPROCESS["train"], batch))
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
        """
ds = ds.map(num_parallel_calls=2, map_func=lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
ds = ds.batch(4)
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
        """
ds = ds.map(tf.abs, **options, deterministic=True)
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
        """
ds = ds.map(tf.abs, num_parallel_calls=tf.data.AUTOTUNE)
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
        """
ds = ds.shuffle(args.buffer, seed=1).map(tf.abs, num_parallel_calls=tf.data.AUTOTUNE).batch(4)
ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
ds = ds.map(lambda x: (x / 255.0) - 0.5)
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
        """
    .map(lambda x, y: ((x / 255.0) - 0.5, tf.one_hot(y, 12)))
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
        """
ds = ds.map(lambda *element: (lambda x, y: (tf.reverse(x, [0]), y))(*scale(*element, by=255.0)))
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
        """
    .map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch), num_parallel_calls=2)  # scale
    .prefetch(tf.data.AUTOTUNE)
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
        """
    .batch(4) \\
    .map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)) \\
    .prefetch(tf.data.AUTOTUNE)
""",
    ),
    Form(
        "a chain as an argument",
        "vectorized map; prefetch",
        """
fit(tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4))
""",
        """
fit(tf.data.Dataset.from_tensor_slices(X).batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)).prefetch(tf.data.AUTOTUNE))
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
        """
ds = tf.data.Dataset.from_tensor_slices(X)
fit(ds.shuffle(12, seed=1).batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)).prefetch(tf.data.AUTOTUNE))
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
        """
scaled = rows
batches = batches.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
if (mapped := ds.map(lambda x: x / 255.0).cache()) is not None:
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
        """
ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
    return ds
ds = ds.map(lambda batch: tf.vectorized_map(scale, batch), num_parallel_calls=2)
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
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = batched(ds).map(lambda batch: tf.vectorized_map(scale, batch))
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
        """
    return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
ds = ds.apply(lambda rows: rows.batch(4).map(lambda x: x / 255.0).prefetch(tf.data.AUTOTUNE))
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
        """
        return ds.batch(size).prefetch(tf.data.AUTOTUNE)
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
        """
    ds = ds.map(op, num_parallel_calls=tf.data.AUTOTUNE)
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
        """
ds = functools.reduce(lambda ds, step: ds.map(step, num_parallel_calls=2), steps, tf.data.Dataset.from_tensor_slices(X))
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
        """
    ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
    ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
    ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0, num_parallel_calls=2)
ds = ds.batch(4).prefetch(tf.data.AUTOTUNE)
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
        """
    return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
    ds = ds.batch(4)
        ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
    ds = ds.batch(4)
    if training:
        ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
""",
    ),
    Form(
        "a shuffle under a condition, moved up",
        "moved shuffle map",
        """
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    if training:
        ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

fit(dataset(True))
""",
        """
    ds = ds.map(lambda x: x / 255.0)
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
        """
    return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
    if training:
        ds = tf.data.Dataset.from_tensor_slices(X)
    else:
        ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
    if training:
        ds = ds.shuffle(12, seed=1).batch(4)
        return ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)).prefetch(tf.data.AUTOTUNE)
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
        """
        self.dataset = self.dataset.batch(4)
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
        """
        self.dataset = self.dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)
        self.dataset = self.dataset.batch(size).prefetch(tf.data.AUTOTUNE)
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
        """
        ds = ds.batch(4)
        return ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)).prefetch(tf.data.AUTOTUNE)
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
        """
        ds = ds.batch(self.size)
        return ds.map(lambda *batch: tf.vectorized_map(lambda row: (lambda x, y: (x / self.scale, y))(*row), batch))
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
        """
    train = tf.data.Dataset.from_tensor_slices(X).batch(4)
    train = train.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
    train = train.prefetch(tf.data.AUTOTUNE)
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
        """
        return tf.data.Dataset.from_tensor_slices(X).batch(4).map(self.decode)
        return super().dataset().repeat(2).prefetch(tf.data.AUTOTUNE)
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
        """
        ds = ds.batch(size)
        ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: (lambda x, y: ({"x": x["x"] / 255.0}, y))(*row), batch))
        ds = ds.repeat(2)
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
        """
    ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
    ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
        yield rows.map(lambda x: x / 255.0).cache().batch(4)
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
        """
ds = tf.data.Dataset.zip((images.map(lambda x: x / 255.0, num_parallel_calls=2), labels)).batch(4)
ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
images = tf.data.Dataset.from_tensor_slices(X).map(scale).cache()
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
        """
    lambda number: tf.data.Dataset.from_tensors(number).repeat(4), cycle_length=2, block_length=1, num_parallel_calls=tf.data.AUTOTUNE
ds = ds.map(lambda x: x + 1).batch(4).prefetch(tf.data.AUTOTUNE)
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
        """
ds = data.Dataset.from_tensor_slices(X).map(tf.abs, num_parallel_calls=data.AUTOTUNE).batch(4)
ds = ds.prefetch(data.AUTOTUNE)
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
        """
ds = ds.map(tf.abs, num_parallel_calls=AUTO)
ds = ds.batch(4).prefetch(AUTO)
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
        """
ds = Dataset.from_tensor_slices(X).batch(4)
ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
ds = tf.data.Dataset.map(ds, tf.abs, num_parallel_calls=2)
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
        """
d = D.map(d, tf.abs, num_parallel_calls=2)
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
        """
ds = tf.data.Dataset.map(ds, lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
ds = ds.prefetch(tf.data.AUTOTUNE)
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
        """
    options = tf.data.Options()
    options.deterministic = True
    return ds.map(lambda x: x / 255.0).batch(4).with_options(options)
""",
    ),
    Form(
        "options in an argument",
        "options.threading.private_threadpool_size=2",
        """
fit(tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4))
""",
        """
options = tf.data.Options()
options.threading.private_threadpool_size = 2
fit(tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4).with_options(options))
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
        """
dataset_options = tf.data.Options()
dataset_options.threading.private_threadpool_size = 2
ds = ds.with_options(dataset_options)
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
        """
    ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
parts = [tf.data.Dataset.from_tensor_slices(X[start::2]).map(tf.abs, num_parallel_calls=2) for start in range(2)]
""",
    ),
    Form(
        "a shuffle and a batch of a parser's record function",
        "map.num_parallel_calls=-1; prefetch",
        """
def parse_record(value, is_training, dtype):
    x = tf.cast(value, dtype)
    return x * 2.0 if is_training else x

def process_record_dataset(dataset, is_training, batch_size, shuffle_buffer, parse_record_fn, dtype=tf.float32):
    dataset = dataset.prefetch(buffer_size=batch_size)
    if is_training:
        dataset = dataset.shuffle(buffer_size=shuffle_buffer, seed=1)
    dataset = dataset.map(lambda value: parse_record_fn(value, is_training, dtype))
    dataset = dataset.batch(batch_size, drop_remainder=False)
    return dataset

fit(process_record_dataset(tf.data.Dataset.from_tensor_slices(X), True, 4, 12, parse_record))
""",
        """
    dataset = dataset.map(lambda value: parse_record_fn(value, is_training, dtype), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(batch_size, drop_remainder=False).prefetch(tf.data.AUTOTUNE)
""",
    ),
    Form(
        "a record function in a lambda, put behind the batch",
        "vectorized map",
        """
def parse_record(value, is_training, dtype):
    x = tf.cast(value, dtype)
    return x * 2.0 if is_training else x

def process_record_dataset(dataset, is_training, batch_size, parse_record_fn, dtype=tf.float32):
    if is_training:
        dataset = dataset.shuffle(buffer_size=12, seed=1)
    # Parses the raw records into images.
    dataset = dataset.map(
        lambda value: parse_record_fn(value, is_training, dtype), num_parallel_calls=tf.data.AUTOTUNE
    )
    dataset = dataset.batch(batch_size, drop_remainder=False)
    return dataset

fit(process_record_dataset(tf.data.Dataset.from_tensor_slices(X), True, 4, parse_record))
""",
        """
    dataset = dataset.batch(batch_size, drop_remainder=False)
        lambda batch: tf.vectorized_map(lambda value: parse_record_fn(value, is_training, dtype), batch), num_parallel_calls=tf.data.AUTOTUNE
""",
    ),
    Form(
        "a reader of many arguments",
        "vectorized map; prefetch",
        """
MEAN, SCALE = 4.0, 255.0

def preprocess(row):
    return (row[:-1] - MEAN) / SCALE, row[-1:]

def reader_dataset(rows, repeat=1, shuffle_buffer_size=12, batch_size=4, n_parse_threads=2):
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    dataset = dataset.map(preprocess, num_parallel_calls=n_parse_threads)
    dataset = dataset.shuffle(shuffle_buffer_size, seed=1).repeat(repeat)
    return dataset.batch(batch_size)

fit(reader_dataset(X, repeat=2))
""",
        """
    dataset = dataset.batch(batch_size)
    return dataset.map(lambda batch: tf.vectorized_map(preprocess, batch), num_parallel_calls=n_parse_threads).prefetch(tf.data.AUTOTUNE)
""",
    ),
    Form(
        "a function that returns several datasets",
        "vectorized map#0; prefetch",
        """
def datasets(rows):
    train = tf.data.Dataset.from_tensor_slices(rows)
    train = train.map(lambda x: x / 255.0)
    train = train.batch(4)
    test = tf.data.Dataset.from_tensor_slices(rows[:4]).batch(4)
    return train, test

train, test = datasets(X)
fit(train, test)
""",
        """
    train = train.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
    train = train.prefetch(tf.data.AUTOTUNE)
""",
    ),
    Form(
        "a function that returns a dictionary of datasets",
        "cached map",
        """
def datasets(rows):
    found = {}
    found["train"] = tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0).batch(4)
    found["test"] = tf.data.Dataset.from_tensor_slices(rows[:4]).batch(4)
    return found

fit(datasets(X)["train"])
""",
        """
    found["train"] = tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0).cache().batch(4)
""",
    ),
    Form(
        "one of two calls in a conditional expression",
        "map.num_parallel_calls=-1",
        """
training = True
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(tf.abs) if training else ds.map(tf.negative)
fit(ds.batch(4))
""",
        """
ds = ds.map(tf.abs, num_parallel_calls=tf.data.AUTOTUNE) if training else ds.map(tf.negative)
""",
    ),
    Form(
        "several statements on a line",
        "map.num_parallel_calls=2; prefetch",
        """
ds = tf.data.Dataset.from_tensor_slices(X); ds = ds.map(tf.abs); ds = ds.batch(4)
fit(ds)
""",
        """
ds = tf.data.Dataset.from_tensor_slices(X); ds = ds.map(tf.abs, num_parallel_calls=2); ds = ds.batch(4).prefetch(tf.data.AUTOTUNE)
""",
    ),
    Form(
        "settings of an object",
        "vectorized map; prefetch",
        """
import types

cfg = types.SimpleNamespace(data=types.SimpleNamespace(batch_size=4, buffer=12), seed=1)

def build(cfg):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    if cfg.data.buffer:
        ds = ds.shuffle(cfg.data.buffer, seed=cfg.seed)
    ds = ds.batch(cfg.data.batch_size)
    return ds

fit(build(cfg))
""",
        """
    ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
    ds = ds.prefetch(tf.data.AUTOTUNE)
""",
    ),
    Form(
        "a cached property of a subclass",
        "batched map",
        """
import functools

class Base:
    def __init__(self, rows):
        self.rows = rows

    @functools.cached_property
    def train(self):
        ds = tf.data.Dataset.from_tensor_slices(self.rows)
        ds = ds.map(self.scale)
        ds = ds.batch(4)
        return ds

class Images(Base):
    def scale(self, x):
        return x / 255.0

fit(Images(X).train)
""",
        """
        ds = ds.batch(4)
""",
    ),
    Form(
        "a method that is handed the dataset",
        "vectorized map",
        """
class Pipeline:
    def __init__(self, size):
        self.size = size

    def preprocess(self, x):
        return x / 255.0

    def shuffled(self, ds):
        return ds.shuffle(12, seed=1)

    def build(self, rows):
        ds = tf.data.Dataset.from_tensor_slices(rows)
        ds = ds.map(self.preprocess)
        ds = self.shuffled(ds)
        return ds.batch(self.size)

fit(Pipeline(4).build(X))
""",
        """
        ds = ds.batch(self.size)
        return ds.map(lambda batch: tf.vectorized_map(self.preprocess, batch))
""",
    ),
    Form(
        "a map in one method, the batch in another",
        "vectorized map",
        """
class Pipeline:
    def preprocess(self, x):
        return x / 255.0

    def load(self, rows):
        return tf.data.Dataset.from_tensor_slices(rows).map(self.preprocess)

    def build(self, rows):
        ds = self.load(rows)
        ds = ds.shuffle(12, seed=1)
        return ds.batch(4)

fit(Pipeline().build(X))
""",
        """
        return tf.data.Dataset.from_tensor_slices(rows)
        return ds.batch(4).map(lambda batch: tf.vectorized_map(self.preprocess, batch))
""",
    ),
    Form(
        "a helper of another module",
        "map.num_parallel_calls=-1; prefetch",
        """
from input_pipeline import build

fit(build(X, 4))
""",
        """
    ds = ds.map(lambda x: x / 255.0, num_parallel_calls=AUTO)
    return ds.batch(size).prefetch(AUTO)
""",
        files={
            "input_pipeline": "import tensorflow as tf\n\nAUTO = tf.data.AUTOTUNE\n\n\ndef build(rows, size):\n"
            "    ds = tf.data.Dataset.from_tensor_slices(rows)\n    ds = ds.map(lambda x: x / 255.0)\n"
            "    return ds.batch(size)\n"
        },
    ),
    Form(
        "windows of a series, by window and flat_map",
        "gathered",
        """
def windowed_dataset(series, window_size, batch_size, shuffle_buffer):
    dataset = tf.data.Dataset.from_tensor_slices(series)
    dataset = dataset.window(window_size + 1, shift=1, drop_remainder=True)
    dataset = dataset.flat_map(lambda window: window.batch(window_size + 1))
    dataset = dataset.shuffle(shuffle_buffer, seed=1)
    dataset = dataset.batch(batch_size)
    return dataset

fit(windowed_dataset(SERIES, 5, 8, 10))
""",
        """
    arrays = tf.data.Dataset.from_tensors(series).get_single_element()

    def windows_at(starts):
        rows = starts[:, tf.newaxis] + tf.range(window_size + 1, dtype=tf.int64)
        taken = tf.gather(arrays, rows)
        # As before, the window length is not part of the static shape.
        return tf.compat.v1.placeholder_with_default(taken, [*starts.shape, None, *arrays.shape[1:]])

    dataset = tf.data.Dataset.range(len(arrays) - (window_size + 1) + 1)
    dataset = dataset.batch(batch_size).map(windows_at)
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
        """
arrays = tf.data.Dataset.from_tensors((X, Y)).get_single_element()
ds = tf.data.Dataset.range(len(arrays[0]))
ds = ds.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
""",
    ),
    Form(
        "arrays, in a chain",
        "gathered",
        """
train = tf.data.Dataset.from_tensor_slices((X / 255.0, Y)).shuffle(12, seed=1).batch(4).prefetch(1)
fit(train)
""",
        """
arrays = tf.data.Dataset.from_tensors((X / 255.0, Y)).get_single_element()
train = tf.data.Dataset.range(len(arrays[0])).shuffle(12, seed=1).batch(4)
train = train.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
train = train.prefetch(1)
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
        """
    arrays = tf.data.Dataset.from_tensors((x, y)).get_single_element()
        tf.data.Dataset.range(len(arrays[0]))
        .map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
""",
    ),
    Form(
        "arrays in an argument",
        "gathered",
        """
fit(tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12, seed=1).batch(4))
""",
        """
arrays = tf.data.Dataset.from_tensors((X, Y)).get_single_element()
fit(tf.data.Dataset.range(len(arrays[0])).shuffle(12, seed=1).batch(4).map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays)))
""",
    ),
    Form(
        "arrays by name, with a map",
        "gathered",
        """
def scale(row):
    return {**row, "x": row["x"] / 255.0}

ds = tf.data.Dataset.from_tensor_slices({"x": X, "y": Y})
ds = ds.map(scale)
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
fit(ds)
""",
        """
arrays = tf.data.Dataset.from_tensors({"x": X, "y": Y}).get_single_element()
ds = tf.data.Dataset.range(len(arrays['x']))
ds = ds.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
ds = ds.map(scale)
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
        """
        arrays = tf.data.Dataset.from_tensors((self.x, self.y)).get_single_element()
        ds = tf.data.Dataset.range(len(arrays[0]))
        ds = ds.batch(4)
        return ds.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
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
        """
arrays = D.from_tensors((X, Y)).get_single_element()
ds = D.range(len(arrays[0]))
ds = ds.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
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
        TIMESERIES_BATCHES
        + """\
        ds = timeseries_batches(
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
        """
ds = ds.map(lambda record: tf.io.parse_example(record, FEATURES))
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
        """
    return tf.io.parse_example(record, FEATURES)
ds = ds.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
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
        """
        parsed = tf.io.parse_example(record, features=FEATURES)
    ds = ds.batch(4)
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
        """
        parsed = tf.io.parse_example(record, FEATURES)
        return ds.batch(4).map(self.parse)
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
        """
    return tf.io.parse_example(record, FEATURES)
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).batch(4).map(select)
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
        """
    return tf.io.parse_example(record, FEATURES)
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).batch(4).map(parse)
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
        """
    return tf.io.parse_example(record, features)
ds = ds.batch(4)
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
        """
def parse(record, parse_example=tf.io.parse_single_example):
    return parse_example(record, FEATURES)
ds = ds.map(lambda batch: parse(batch, parse_example=tf.io.parse_example))
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
        """
    parsed = tf.io.parse_example(record, FEATURES)
    if labeled:
        return ds.batch(4).map(read_labeled)
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
        """
    return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
def dataset(rows, vectorize_map=False):
    if vectorize_map:
        return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
fit(dataset(X, vectorize_map=True))
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
        """
def dataset(rows, cache=False):
    if cache:
        return ds.map(lambda x: x / 255.0).cache().batch(4)
fit(dataset(X, cache=True), dataset(X[:6]))
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
        """
train = dataset(X).cache()
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
        """
    ds = ds.batch(4)
        ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: (lambda x, y: (x * 2.0, y))(*row), batch), num_parallel_calls=tf.data.AUTOTUNE)
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
        """
    ds = tf.data.Dataset.from_tensor_slices(rows)
    datasets[split] = ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
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
        """
    return tf.data.Dataset.from_tensor_slices(rows).batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)).prefetch(tf.data.AUTOTUNE)
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
        """
    def make(self, rows, vectorize_map=False):
        if vectorize_map:
            return ds.batch(4).map(self.scale)
        return self.make(X, vectorize_map=True)
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
        """
train = rows.skip(4).batch(4)
train = train.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
train = train.prefetch(tf.data.AUTOTUNE)
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
        """
def load(rows, vectorize_map=False):
    if vectorize_map:
        return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
    return load(X, vectorize_map=True).repeat(2)
""",
    ),
    Form(
        "a helper for both, another function for validation",
        "batched map",
        """
def scale(x):
    return x / 255.0

def centre(x):
    return x - tf.reduce_mean(x)

def dataset(rows, preprocess):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(preprocess)
    return ds.batch(4)

train = dataset(X, scale)
check = dataset(X[:6], centre)
fit(train, check)
""",
        """
def dataset(rows, preprocess, vectorize_map=False):
    if vectorize_map:
        return ds.batch(4).map(preprocess)
train = dataset(X, scale, vectorize_map=True)
""",
    ),
    Form(
        "a helper for both, a condition that training does not meet",
        "batched map",
        """
def dataset(rows, noisy=False):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.cache() if noisy else ds
    return ds.batch(4)

fit(dataset(X), dataset(X[:6], noisy=True))
""",
        """
    if noisy:
        ds = ds.map(lambda x: x / 255.0)
    if not noisy:
        return ds.batch(4).map(lambda x: x / 255.0)
""",
    ),
    Form(
        "a map in a helper for both, the batch outside",
        "vectorized map",
        """
def scale(x, y):
    return x / 255.0, y

def load(rows, labels):
    ds = tf.data.Dataset.from_tensor_slices((rows, labels))
    return ds.map(scale)

def training():
    ds = load(X, Y)
    ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

def checking():
    return load(X[:6], Y[:6]).batch(2).cache()

fit(training(), checking())
""",
        """
def load(rows, labels, vectorize_map=False):
    if vectorize_map:
        return ds
    ds = load(X, Y, vectorize_map=True)
    ds = ds.batch(4)
    return ds.map(lambda *batch: tf.vectorized_map(lambda row: scale(*row), batch))
""",
    ),
    Form(
        "a helper for both that ends with more",
        "vectorized map",
        """
def load(rows):
    return tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0)

def finish(ds, training=False):
    if training:
        ds = ds.shuffle(12, seed=1)
    ds = ds.batch(4)
    return ds.prefetch(1)

fit(finish(load(X), training=True))
evaluate(finish(load(X[:6])))
""",
        """
def load(rows, vectorize_map=False):
    if vectorize_map:
        return tf.data.Dataset.from_tensor_slices(rows)
def finish(ds, training=False, vectorize_map=False):
    if vectorize_map:
        ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
fit(finish(load(X, vectorize_map=True), training=True, vectorize_map=True))
""",
    ),
    Form(
        "a helper for both, by its flag",
        "moved shuffle map",
        """
def dataset(rows, training):
    \"\"\"Rows in batches.\"\"\"
    ds = tf.data.Dataset.from_tensor_slices(rows)

    # to [0, 1]
    ds = ds.map(lambda x: x / 255.0)
    # mix
    ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

fit(dataset(X, True), dataset(X[:6], False))
""",
        """
    # mix
    ds = ds.shuffle(12, seed=1)
""",
    ),
    Form(
        "arrays in a helper that is called again",
        "gathered",
        """
def dataset(x, y, shuffle=False):
    ds = tf.data.Dataset.from_tensor_slices((x, y))
    if shuffle:
        ds = ds.shuffle(12, seed=1)
    return ds.batch(4)

fit(dataset(X, Y, shuffle=True))
evaluate(dataset(X[:6], Y[:6]))
""",
        """
def dataset(x, y, shuffle=False, gather_batches=False):
    if gather_batches:
        arrays = tf.data.Dataset.from_tensors((x, y)).get_single_element()
        ds = tf.data.Dataset.range(len(arrays[0]))
    else:
        ds = tf.data.Dataset.from_tensor_slices((x, y))
    if gather_batches:
        ds = ds.batch(4)
        return ds.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
fit(dataset(X, Y, shuffle=True, gather_batches=True))
""",
    ),
    Form(
        "records in a helper that is called again",
        "parsed map",
        """
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)

def dataset(records):
    ds = tf.data.Dataset.from_tensor_slices(records)
    ds = ds.map(parse)
    return ds.batch(4)

fit(dataset(EXAMPLES))
evaluate(dataset(EXAMPLES[:6]))
""",
        """
def parse(record, parse_example=tf.io.parse_single_example):
    return parse_example(record, FEATURES)
def dataset(records, parse_batches=False):
    if parse_batches:
        ds = ds.batch(4)
        return ds.map(lambda batch: parse(batch, parse_example=tf.io.parse_example))
fit(dataset(EXAMPLES, parse_batches=True))
""",
    ),
    Form(
        "options for all that one call makes",
        "options.threading.private_threadpool_size=2",
        """
def dataset(rows):
    return tf.data.Dataset.from_tensor_slices(rows).map(tf.abs).batch(4)

train = dataset(X)
check = dataset(X[:6])
fit(train, check)
""",
        """
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    return tf.data.Dataset.from_tensor_slices(rows).map(tf.abs).batch(4).with_options(options)
""",
    ),
    Form(
        "windows of a series for all",
        "series",
        """
class Windows:
    def __init__(self, width):
        self.width = width

    def split(self, window):
        return window[:, :-1], window[:, -1]

    def make_dataset(self, rows):
        ds = tf.keras.utils.timeseries_dataset_from_array(
            data=rows, targets=None, sequence_length=self.width, sequence_stride=1, batch_size=8
        )
        ds = ds.map(self.split)
        return ds

    @property
    def train(self):
        return self.make_dataset(SERIES)

    @property
    def check(self):
        return self.make_dataset(SERIES[:12])

windows = Windows(5)
fit(windows.train, windows.check)
""",
        TIMESERIES_BATCHES
        + """\
        ds = timeseries_batches(
""",
    ),
    Form(
        "windows of a series, and a test that comes later",
        "series",
        """
class Windows:
    def make_dataset(self, rows):
        return tf.keras.utils.timeseries_dataset_from_array(rows, None, sequence_length=5, batch_size=8)

    @property
    def train(self):
        return self.make_dataset(SERIES)

    @property
    def test(self):
        return self.make_dataset(SERIES[:12])

windows = Windows()
print(windows.train.element_spec)
fit(windows.train)
evaluate(windows.test)
""",
        TIMESERIES_BATCHES
        + """\

    def make_dataset(self, rows, gather_windows=False):
        if gather_windows:
            return timeseries_batches(rows, None, sequence_length=5, batch_size=8)
        return self.make_dataset(SERIES, gather_windows=True)
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

NOT_WRITTEN = (
    Form(
        "starred arguments: what they give",
        "map.num_parallel_calls=4",
        """
def mapped(ds, *args, **kwargs):
    return ds.map(*args, **kwargs)

ds = mapped(tf.data.Dataset.from_tensor_slices(X), tf.abs, num_parallel_calls=2)
fit(ds.batch(4))
""",
        why="starred arguments",
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
        why="makes 2 operators of this pipeline",
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
        why="in different blocks",
    ),
    Form(
        "a comprehension over the splits: a cache for one",
        "cached map",
        """
def dataset(rows):
    return tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0).batch(4)

datasets = {name: dataset(rows) for name, rows in {"train": X, "check": X[:6]}.items()}
fit(datasets["train"], datasets["check"])
""",
        why="shared by 2 datasets",
    ),
)
"""Forms that the patch does not support, as documented in the README."""
