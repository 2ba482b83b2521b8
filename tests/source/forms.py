# ruff: noqa: E501 (lines that a patch adds, as they appear in the file)
"""Ways in which people write a tf.data pipeline, each with a plan and the lines that the patch adds to the script.

The forms are those of public training scripts: tutorials and guides of TensorFlow and Keras, model collections,
notebooks of competitions. The scripts are written for this table. `fit(train)` and `evaluate(check)` stand for what
consumes a dataset. Each form goes a way of its own through `pipetune.source`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipetune.source.gathering import _BODY, _HEAD

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

TIMESERIES_BATCHES = f"{_HEAD}    import numpy as np\n\n{_BODY}".rstrip()
"""What a patch adds, in place of `<timeseries_batches>`, to a script that has no name for NumPy."""


@dataclass(frozen=True)
class Form:
    """One way of writing a pipeline."""

    name: str
    plan: str  # see `test_forms.py`
    script: str
    adds: str  # the lines that the patch adds, in order
    files: Mapping[str, str]  # other modules of the script, by name
    why: str  # part of the reason, where no patch is written


def forms(text: str) -> tuple[Form, ...]:
    """Reads forms: `#: name | plan`, the script, `#= module` and its text, `+` before added lines, or `#! reason`.

    A script that calls no `fit` ends with `fit(ds)`.
    """
    found = []
    for part in re.split(r"^#: ", text, flags=re.MULTILINE)[1:]:
        heading, *lines = part.rstrip().split("\n")
        adds = "\n".join(line[1:] for line in lines if line.startswith("+"))
        why = "".join(line[3:] for line in lines if line.startswith("#! "))
        scripts = "".join(f"{line}\n" for line in lines if not line.startswith(("+", "#! ")))
        script, *modules = re.split(r"^#= (\w+)\n", scripts, flags=re.MULTILINE)
        script += "" if "fit(" in script else "fit(ds)\n"
        adds = adds.replace("<timeseries_batches>", TIMESERIES_BATCHES)
        found.append(
            Form(*heading.split(" | "), script, adds, dict(zip(modules[::2], modules[1::2], strict=True)), why)
        )
    return tuple(found)


FORMS = forms(
    r'''
#: a lambda over several lines | vectorized map
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
+def preprocess(image, label):
+    return (
+        image / 255.0,  # to [0, 1]
+        tf.one_hot(label, 12),
+    )
+
+    .batch(4)
+        lambda *batch: tf.vectorized_map(lambda row: preprocess(*row), batch),

#: a lambda over several lines that the parentheses of the call hold together | vectorized map
ds = tf.data.Dataset.from_tensor_slices((X, Y)).map(
    lambda image, label: tf.cast(label, tf.float32) * 2.0
    - image[0]
).batch(4)
+def preprocess(image, label):
+    return (tf.cast(label, tf.float32) * 2.0
+    - image[0])
+
+ds = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).map(
+    lambda *batch: tf.vectorized_map(lambda row: preprocess(*row), batch)
+)

#: a lambda over several lines with a text over several lines | vectorized map
ds = (
    tf.data.Dataset.from_tensor_slices((X, Y))
    .map(
        lambda image, label: (
            image + len("""a
            b"""),
            label,
        ),
    )
    .batch(4)
)
+def preprocess(image, label):
+    return (
+        )
+
+ds = (
+    tf.data.Dataset.from_tensor_slices((X, Y))
+    .batch(4)
+    .map(
+        lambda *batch: tf.vectorized_map(lambda row: preprocess(*row), batch),

#: a lambda with a default argument | vectorized map
for scale in (255.0, 128.0):
    ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x, scale=scale: x / scale).batch(4)
+    ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
+    ds = ds.map(lambda batch: tf.vectorized_map(lambda x, scale=scale: x / scale, batch))

#: a conditional expression | vectorized map
def scale(x):
    return x / 255.0
def shift(x):
    return x - 1.0
training = True
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(scale if training else shift)
ds = ds.batch(4)
+ds = ds.map(lambda batch: tf.vectorized_map(scale if training else shift, batch))

#: a function that another one makes, in a return | vectorized map
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
+    make_scale_by = make_scale(by)
+        .map(lambda *batch: tf.vectorized_map(lambda row: make_scale_by(*row), batch))

#: a function out of a dictionary | vectorized map
def scale(x):
    return x / 255.0
PREPROCESS = {"train": scale}
ds = tf.data.Dataset.from_tensor_slices(X).map(PREPROCESS["train"]).batch(4)
+ds = tf.data.Dataset.from_tensor_slices(X).batch(4)
+ds = ds.map(lambda batch: tf.vectorized_map(PREPROCESS["train"], batch))

#: two lambdas in one | fused map#0 map#1
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda x: x / 255.0)
ds = ds.map(lambda x: x - 0.5)
ds = ds.batch(4)
+ds = ds.map(lambda x: (x / 255.0) - 0.5)

#: starred arguments: what they do not give | map.deterministic=True
options = {"num_parallel_calls": 2}
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(tf.abs, **options)
fit(ds.batch(4))
+ds = ds.map(tf.abs, **options, deterministic=True)

#: two lambdas in one, of two components | fused map#0 map#1
ds = (
    tf.data.Dataset.from_tensor_slices((X, Y))
    .map(lambda x, y: (x / 255.0, y))
    .map(lambda x, y: (x - 0.5, tf.one_hot(y, 12)))
    .batch(4)
)
+    .map(lambda x, y: ((x / 255.0) - 0.5, tf.one_hot(y, 12)))

#: a function and a layer in one | fused map#0 map#1
import functools
def scale(x, y, by):
    return x / by, y
ds = tf.data.Dataset.from_tensor_slices((X, Y))
ds = ds.map(functools.partial(scale, by=255.0))
ds = ds.map(lambda x, y: (tf.reverse(x, [0]), y))
ds = ds.batch(4)
+ds = ds.map(lambda *element: (lambda x, y: (tf.reverse(x, [0]), y))(*scale(*element, by=255.0)))

#: a helper for the dataset | vectorized map
def shuffled(ds, size):
    return ds.shuffle(size, seed=1)
ds = tf.data.Dataset.from_tensor_slices(X)
ds = ds.map(lambda x: x / 255.0)
ds = shuffled(ds, 12)
ds = ds.batch(4)
+ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))

#: a conditional expression for a step | vectorized map
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.shuffle(12, seed=1) if training else ds
    return ds.batch(4)
fit(dataset(True))
+    return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))

#: an early return | vectorized map; prefetch
def dataset(training):
    ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
    if not training:
        return ds.batch(8)
    return ds.shuffle(12, seed=1).batch(4)
fit(dataset(True))
+    if training:
+        ds = tf.data.Dataset.from_tensor_slices(X)
+    else:
+        ds = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0)
+    if training:
+        ds = ds.shuffle(12, seed=1).batch(4)
+        return ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch)).prefetch(tf.data.AUTOTUNE)

#: a class attribute | vectorized map; prefetch
class Data:
    train = tf.data.Dataset.from_tensor_slices(X).map(lambda x: x / 255.0).batch(4)
fit(Data.train)
+    train = tf.data.Dataset.from_tensor_slices(X).batch(4)
+    train = train.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
+    train = train.prefetch(tf.data.AUTOTUNE)

#: unbound: behind the batch | vectorized map; prefetch
ds = tf.data.Dataset.from_tensor_slices(X)
ds = tf.data.Dataset.map(ds, lambda x: x / 255.0)
ds = tf.data.Dataset.batch(ds, 4)
+ds = tf.data.Dataset.map(ds, lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
+ds = ds.prefetch(tf.data.AUTOTUNE)

#: options behind a return | options.deterministic=True
def dataset():
    ds = tf.data.Dataset.from_tensor_slices(X)
    return ds.map(lambda x: x / 255.0).batch(4)
fit(dataset())
+    options = tf.data.Options()
+    options.deterministic = True
+    return ds.map(lambda x: x / 255.0).batch(4).with_options(options)

#: a map in one method, the batch in another | vectorized map
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
+        return tf.data.Dataset.from_tensor_slices(rows)
+        return ds.batch(4).map(lambda batch: tf.vectorized_map(self.preprocess, batch))

#: windows of a series, by window and flat_map | gathered
def windowed_dataset(series, window_size, batch_size, shuffle_buffer):
    dataset = tf.data.Dataset.from_tensor_slices(series)
    dataset = dataset.window(window_size + 1, shift=1, drop_remainder=True)
    dataset = dataset.flat_map(lambda window: window.batch(window_size + 1))
    dataset = dataset.shuffle(shuffle_buffer, seed=1)
    dataset = dataset.batch(batch_size)
    return dataset
fit(windowed_dataset(SERIES, 5, 8, 10))
+    arrays = tf.data.Dataset.from_tensors(series).get_single_element()
+
+    def windows_at(starts):
+        rows = starts[:, tf.newaxis] + tf.range(window_size + 1, dtype=tf.int64)
+        taken = tf.gather(arrays, rows)
+        # As before, the window length is not part of the static shape.
+        return tf.compat.v1.placeholder_with_default(taken, [*starts.shape, None, *arrays.shape[1:]])
+
+    dataset = tf.data.Dataset.range(len(arrays) - (window_size + 1) + 1)
+    dataset = dataset.batch(batch_size).map(windows_at)

#: arrays, in a chain | gathered
D = tf.data.Dataset
train = D.from_tensor_slices(tensors=(X / 255.0, Y)).shuffle(12, seed=1).batch(4).prefetch(1)
fit(train)
+arrays = D.from_tensors((X / 255.0, Y)).get_single_element()
+train = D.range(len(arrays[0])).shuffle(12, seed=1).batch(4)
+train = train.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
+train = train.prefetch(1)

#: arrays by name, with a map | gathered
def scale(row):
    return {**row, "x": row["x"] / 255.0}
ds = tf.data.Dataset.from_tensor_slices({"x": X, "y": Y})
ds = ds.map(scale)
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
+arrays = tf.data.Dataset.from_tensors({"x": X, "y": Y}).get_single_element()
+ds = tf.data.Dataset.range(len(arrays['x']))
+ds = ds.map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays))
+ds = ds.map(scale)

#: records: a function that calls another | parsed map
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)
def select(record):
    parsed = parse(record)
    return parsed["x"], parsed["y"]
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).map(select).batch(4)
+    return tf.io.parse_example(record, FEATURES)
+ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).batch(4).map(select)

#: records: a function of another module | parsed map
from reading import parse
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).map(parse).batch(4)
#= reading
import tensorflow as tf
from data import FEATURES
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)
+    return tf.io.parse_example(record, FEATURES)
+ds = tf.data.Dataset.from_tensor_slices(EXAMPLES).batch(4).map(parse)

#: records: a function that others call too | parsed map
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)
first = parse(EXAMPLES[0])
ds = tf.data.Dataset.from_tensor_slices(EXAMPLES)
ds = ds.map(parse)
ds = ds.batch(4)
+def parse(record, parse_example=tf.io.parse_single_example):
+    return parse_example(record, FEATURES)
+ds = ds.map(lambda batch: parse(batch, parse_example=tf.io.parse_example))

#: records: one of two functions | parsed map
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
+    parsed = tf.io.parse_example(record, FEATURES)
+    if labeled:
+        return ds.batch(4).map(read_labeled)

#: the tutorial of Keras: prepare(ds, shuffle, augment) | vectorized map#1
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
+    ds = ds.batch(4)
+        ds = ds.map(lambda *batch: tf.vectorized_map(lambda row: (lambda x, y: (x * 2.0, y))(*row), batch), num_parallel_calls=tf.data.AUTOTUNE)

#: a helper for both, a condition that training does not meet | batched map
def dataset(rows, noisy=False):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(lambda x: x / 255.0)
    ds = ds.cache() if noisy else ds
    return ds.batch(4)
fit(dataset(X), dataset(X[:6], noisy=True))
+    if noisy:
+        ds = ds.map(lambda x: x / 255.0)
+    if not noisy:
+        return ds.batch(4).map(lambda x: x / 255.0)

#: a helper for both that ends with more | vectorized map
def load(rows):
    return tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x / 255.0)
def finish(ds, training=False):
    if training:
        ds = ds.shuffle(12, seed=1)
    ds = ds.batch(4)
    return ds.prefetch(1)
fit(finish(load(X), training=True))
evaluate(finish(load(X[:6])))
+def load(rows, vectorize_map=False):
+    if vectorize_map:
+        return tf.data.Dataset.from_tensor_slices(rows)
+def finish(ds, training=False, vectorize_map=False):
+    if vectorize_map:
+        ds = ds.map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
+fit(finish(load(X, vectorize_map=True), training=True, vectorize_map=True))

#: records in a helper that is called again | parsed map
def parse(record):
    return tf.io.parse_single_example(record, FEATURES)
def dataset(records):
    ds = tf.data.Dataset.from_tensor_slices(records)
    ds = ds.map(parse)
    return ds.batch(4)
fit(dataset(EXAMPLES))
evaluate(dataset(EXAMPLES[:6]))
+def parse(record, parse_example=tf.io.parse_single_example):
+    return parse_example(record, FEATURES)
+def dataset(records, parse_batches=False):
+    if parse_batches:
+        ds = ds.batch(4)
+        return ds.map(lambda batch: parse(batch, parse_example=tf.io.parse_example))
+fit(dataset(EXAMPLES, parse_batches=True))

#: a function of another module, called by the module's name | vectorized map
import loading
fit(loading.dataset(X))
evaluate(loading.dataset(X[:6]))
#= loading
import tensorflow as tf
def dataset(rows):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(lambda x: x / 255.0)
    return ds.batch(4)
+def dataset(rows, vectorize_map=False):
+    if vectorize_map:
+        return ds.batch(4).map(lambda batch: tf.vectorized_map(lambda x: x / 255.0, batch))
+fit(loading.dataset(X, vectorize_map=True))

#: windows of a series, and a test that comes later | series
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
+<timeseries_batches>
+
+
+    def make_dataset(self, rows, gather_windows=False):
+        if gather_windows:
+            return timeseries_batches(rows, None, sequence_length=5, batch_size=8)
+        return self.make_dataset(SERIES, gather_windows=True)
'''
)

NOT_WRITTEN = forms(
    r"""
#: arrays made in one function and batched in another | gathered
def load():
    return tf.data.Dataset.from_tensor_slices((X, Y))
ds = load()
ds = ds.shuffle(12, seed=1)
ds = ds.batch(4)
#! in different blocks

#: one of three functions | batched map
def half(x):
    return x / 2.0
def twice(x):
    return x * 2.0
def largest(x):
    return tf.reduce_max(x) + x * 0.0
def load(rows, kind):
    ds = tf.data.Dataset.from_tensor_slices(rows)
    ds = ds.map(half if kind == 1 else (twice if kind == 2 else largest))
    return ds.batch(4)
fit(load(X, 2))
#! one of several functions
"""
)
"""Forms that the patch does not support; others that the README names are in `test_emit.py` and `test_users_scripts.py`."""
