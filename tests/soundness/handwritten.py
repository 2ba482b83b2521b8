"""Hostile but legal pipelines written by hand: every pattern that was once rewritten wrongly, and similar ones.

Data, no code: an expression in which `alike(shape)` gives 2,003 rows that are equal except for one, far beyond any
sample. `F1` and so on are the numbers of the patterns in the list of wrong rewrites; without one are pipelines that a guard must
not reject unnecessarily, and patterns found later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PRELUDE = (
    "def alike(*shape, dtype='float32', rows=2003, odd=700, usual=0, unusual=None):\n"
    "    data = np.full((rows, *shape), usual, dtype)\n"
    "    row = (np.arange(data[0].size) * 37 % 101).reshape(shape) if unusual is None else unusual\n"
    "    data[odd] = row\n"
    "    return data",
    "def slices(*arrays):\n    return tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0])",
)


@dataclass(frozen=True)
class Hand:
    name: str
    expression: str
    functions: tuple[str, ...] = ()


def _function(body: str, given: str, batch: str = "4") -> str:
    names = ", ".join("xyz"[: given.count("alike")])
    return f"slices({given}).map(lambda {names}: {body}).batch({batch})"


_IMAGE, _CUBE, _TWO = "alike(16, 16)", "alike(3, 3, 3)", "alike(16, 16), alike(16, dtype='float32', odd=701)"

_AXES = {  # F1: an axis, a slice or an attribute that means another axis on a batch, without a change of the spec
    "reduce_max of axis 1": ("tf.reduce_max(x, axis=1)", _IMAGE),
    "reduce_min of axis 1": ("tf.reduce_min(x, axis=1)", "alike(16, 16, usual=5)"),
    "reduce_any of axis 1": ("tf.reduce_any(x, axis=1)", "alike(16, 16, dtype=bool, unusual=np.tri(16, 16, -9, bool))"),
    "reduce_all of axis 1": ("tf.reduce_all(x, 1)", "alike(16, 16, dtype=bool, usual=True)"),
    "reduce_sum of whole numbers": ("tf.reduce_sum(x, axis=1)", "alike(16, 16, dtype='int32')"),
    "reduce_sum of floats": ("tf.reduce_sum(x, axis=1)", _IMAGE),
    "reduce_mean of axis 1 kept": ("tf.reduce_mean(x, axis=1, keepdims=True)", _CUBE),
    "reduce_max of a cube": ("tf.reduce_max(x, axis=2)", _CUBE),
    "reduce_max of two axes": ("tf.reduce_max(x, axis=[1, 2])", _CUBE),
    "argmax of axis 1": ("tf.argmax(x, 1)", _IMAGE),
    "argmin of axis 1": ("tf.argmin(x, axis=1)", _IMAGE),
    "argmax of a cube": ("tf.argmax(x, axis=2, output_type=tf.int32)", _CUBE),
    "reverse": ("tf.reverse(x, [1])", _IMAGE),
    "reverse of a cube": ("tf.reverse(x, axis=[2])", _CUBE),
    "stack on axis 1": ("tf.stack([x, x * 2], axis=1)", "alike(2)"),
    "stack of two components": ("tf.stack([x, y], axis=1)", "alike(2), alike(2, odd=30)"),
    "unstack of axis 1": ("tf.unstack(x, axis=1)[0]", _IMAGE),
    "one_hot on axis 1": ("tf.one_hot(x, 5, axis=1)", "alike(5, dtype='int32', unusual=[0, 1, 2, 3, 4])"),
    "column": ("x[:, 0]", _IMAGE),
    "last column": ("x[:, -1]", _IMAGE),
    "columns the other way round": ("x[:, ::-1]", _IMAGE),
    "part of the columns": ("x - x[:, :1]", _IMAGE),
    "column subtracted": ("x - x[:, 0][:, None]", _IMAGE),
    "component of columns": ("x + y[:, None]", _TWO),
    "component of columns, compared": ("x > y[:, tf.newaxis]", _TWO),
    "new axis in front of the last": ("x * y[:, None]", "alike(5, 5), alike(5)"),
    "mean subtracted": ("x - tf.reduce_mean(x, axis=1, keepdims=True)", _IMAGE),
    "maximum divided": ("x / (1.0 + tf.reduce_max(x, axis=1, keepdims=True))", _IMAGE),
    "concat of a cube": ("tf.concat([x[:, :1], x[:, 1:]], axis=1)", _CUBE),
    "every second column": ("tf.reduce_max(x[:, ::2], axis=1)", _IMAGE),
    "mask of rows": ("tf.cast(tf.reduce_any(x > 3, axis=1), tf.int64)", _IMAGE),
}

_CASTS = {  # F2: single numbers wrap, packets saturate
    "brightened to bytes": ("tf.cast(x * 1.2, tf.uint8)", "alike(8, 8, 3, usual=100, unusual=250)"),
    "negative to bytes": ("tf.cast(x, tf.uint8)", "alike(7, unusual=-3)"),
    "large to int8": ("tf.cast(x, tf.int8)", "alike(9, unusual=200)"),
    "large to int16": ("tf.cast(x, tf.int16)", "alike(9, unusual=40000)"),
    "large to uint16": ("tf.cast(x, tf.uint16)", "alike(9, unusual=-7)"),
    "doubles to bytes": ("tf.cast(x, tf.uint8)", "alike(5, dtype='float64', unusual=300)"),
    "not a number to bytes": ("tf.cast(x, tf.uint8)", "alike(9, unusual=np.nan)"),
    "infinity to int16": ("tf.cast(x / 2, tf.int16)", "alike(9, unusual=np.inf)"),
    "single number to a byte": ("tf.cast(x, tf.uint8)", "alike(unusual=300)"),
    "halves to bytes": ("tf.cast(x, tf.uint8)", "alike(9, dtype='float16', unusual=300)"),
    "texts to bytes": ("tf.cast(tf.strings.to_number(x), tf.uint8)", "alike(dtype=object, usual='7', unusual='300')"),
}

_CONVERTERS = {  # F2b: converters of tf.vectorized_map that mix rows
    "roll of the last axis": ("tf.roll(x, 3, axis=-1)", "alike(5)"),
    "roll of an image": ("tf.roll(x, shift=1, axis=-1)", _IMAGE),
    "roll of a positive axis": ("tf.roll(x, 1, axis=0)", "alike(5)"),
    "roll of two axes": ("tf.roll(x, [1, 1], axis=[0, -1])", _IMAGE),
    "cumsum and roll": ("tf.roll(tf.cumsum(x), 2, axis=-1)", "alike(6)"),
}

_LAST_ROWS = {  # F3: a last batch of one row
    "squeeze": ("tf.squeeze(x)", "alike(5, 1)", "2"),
    "squeeze of a number": ("tf.squeeze(x) + 1", "alike(1)", "7"),
    "squeeze of a part": ("tf.squeeze(x[..., :1])", "alike(4, 3)", "13"),
    "squeeze behind a sort": ("tf.squeeze(tf.sort(x))", "alike(5, 1)", "2"),
    "squeeze behind an exponential": ("tf.squeeze(tf.exp(x))", "alike(5, 1)", "2"),
}

_ZEROS = {  # F14: zeros of another sign, denormals
    "relu": ("tf.nn.relu(x)", "alike(9, unusual=-0.0)"),
    "maximum": ("tf.maximum(x, 0.0)", "alike(usual=1, unusual=-0.0)"),
    "minimum": ("tf.minimum(x, 0.0)", "alike(usual=1, unusual=-0.0)"),
    "clip": ("tf.clip_by_value(x, 0.0, 1.0)", "alike(7, usual=1, unusual=-0.0)"),
    "sign": ("tf.sign(x)", "alike(usual=1, unusual=-0.0)"),
    "denormal halves": ("x / 2", "alike(9, usual=1, unusual=3e-39)"),
    "denormal sums": ("x + x", "alike(usual=1, unusual=3e-39)"),
    "relu of denormals": ("tf.nn.relu(x)", "alike(usual=1, unusual=3e-39)"),
}

_RAISES = ("def checked(i):\n    return i + tf.gather(tf.constant([0, 0]), tf.cast(i == 7, tf.int32) * 5)",)
_DIVIDES = ("def divided(i):\n    return tf.constant(40, tf.int64) // (i - 7)",)

_CHECKS = ("def small(i):\n    tf.debugging.assert_less(i, tf.constant(20, tf.int64))\n    return i * 2",)

_ERRORS = {  # F13: a cache hides errors from the second epoch on that were raised in every one
    "map that raises": ("tf.data.Dataset.range(20).map(divided)", _DIVIDES),
    "map that raises, in batches": ("tf.data.Dataset.range(20).map(divided).batch(3)", _DIVIDES),
    "map that raises, ignored": ("tf.data.Dataset.range(20).map(divided).ignore_errors().map(lambda x: x * 2)", _DIVIDES),
    "gather out of bounds": ("slices(np.arange(20, dtype=np.int32)).map(checked).batch(4)", _RAISES),
    "batches of batches with a rest": ("tf.data.Dataset.range(22).map(lambda x: x * 2).batch(4).batch(3)", ()),
    "rows of other lengths": ("tf.data.Dataset.range(9).map(lambda n: tf.range(n)).batch(2)", ()),
    "text that is no number": ("slices(alike(dtype=object, rows=30, odd=7, usual='1', unusual='x')).map(tf.strings.to_number).batch(4)", ()),
    "numbers that are checked": ("slices(alike(3, rows=30, odd=7, unusual=np.nan)).map(lambda x: tf.debugging.check_numerics(x, '')).batch(4)", ()),
    "assertion": ("tf.data.Dataset.range(30).map(small).batch(4)", _CHECKS),
    "shape that is ensured": ("tf.data.Dataset.range(9).map(lambda n: tf.ensure_shape(tf.range(tf.minimum(n, 4)), [4])).batch(2)", ()),
}  # fmt: skip

_GENERATORS = {  # F4, F8: Python that a map would freeze, and Python's numbers: type, batch size, the generator
    "number of the module": ("int64", 4, "SIZES = list(range(400, 440))\nepoch = 0\ndef numbered():\n    global epoch\n    epoch += 1\n    for size in SIZES:\n        yield size + epoch"),
    "square that outgrows int32": ("int64", 4, "LENGTHS = [100, 70_000, 90_000, 7, 65_536]\ndef areas():\n    for size in LENGTHS:\n        yield size * size // 1000"),
    "float of double precision": ("float64", 2, "PARTS = [0.1, 0.2, 0.3, 1e-9]\ndef shares():\n    for part in PARTS:\n        yield part / 3 + 1"),
    "rest of a negative number": ("int32", 2, "OFFSETS = [-7, -1, 3, 8]\ndef rests():\n    for offset in OFFSETS:\n        yield offset % 5"),
    "division that rounds": ("float32", 2, "COUNTS = [1, 2, 3, 16_777_217]\ndef halves():\n    for count in COUNTS:\n        yield count / 2"),
}  # fmt: skip


def _generator(kind: str, batch: int, text: str) -> tuple[str, tuple[str, ...]]:
    name = text.partition("def ")[2].partition("(")[0]
    made = f"tf.data.Dataset.from_generator({name}, output_signature=tf.TensorSpec([], tf.{kind})).batch({batch})"
    return made, (text,)


_OTHERS = {  # found later, or similar to those
    "softmax and its place": ("tf.argmax(tf.nn.softmax(x))", "alike(4, unusual=[1.0, 1.0, 1.0 + 1e-7, 1.0])"),
    "whole number of an exponential": ("tf.cast(tf.exp(x), tf.int32)", "alike(3, unusual=9.2)"),
    "reshape of all": ("tf.reshape(x, [-1])", "alike(4, 4)"),
    "reshape that turns": ("tf.reshape(tf.transpose(x), [4, 4])", "alike(4, 4)"),
    "transpose": ("tf.transpose(x)", "alike(4, 4)"),
    "matmul with itself": ("tf.matmul(x, x)", "alike(4, 4)"),
    "row of a table": ("tf.gather(tf.eye(9), x)", "alike(dtype='int32', unusual=7)"),
    "size": ("x / tf.cast(tf.size(x), tf.float32)", "alike(4)"),
    "rows of the batch": ("x / tf.cast(tf.shape(x)[0], tf.float32)", "alike(4)"),
    "sum of all": ("x / (1.0 + tf.reduce_sum(x))", "alike(4)"),
    "standardised": ("tf.image.per_image_standardization(x)", "alike(6, 6, 3)"),
    "nearest neighbours": ("tf.image.resize(x, [3, 3], method='nearest')", "alike(7, 7, 3)"),
    "flip": ("tf.image.flip_left_right(x)", "alike(6, 6, 3)"),
    "condition": ("tf.cond(tf.reduce_sum(x) > 3, lambda: x * 2, lambda: x)", "alike(4)"),
    "where": ("tf.where(x > 3, x, tf.zeros_like(x))", "alike(4)"),
    "cumulated": ("tf.cumsum(x, axis=1)", "alike(4, 4)"),
    "sorted": ("tf.sort(x, axis=0)", "alike(4, 4)"),
    "rows taken apart": ("sum(x[i] * i for i in range(4))", "alike(4, 4)"),
    "as many as the first axis": ("x * x.shape[0]", "alike(4, 4)"),
    "rank": ("x if len(x.shape) == 2 else x + 1", "alike(4, 4)"),
}

_BATCHED_AS_ELEMENTS = {  # the batch has as many rows as the element
    "axis 1 in batches of sixteen": ("tf.reduce_max(x, axis=1)", _IMAGE, "16, drop_remainder=True"),
    "shape in batches of four": ("x * x.shape[0]", "alike(4, 4)", "4, drop_remainder=True"),
    "range in batches of four": ("x + tf.range(4.0)[:, None]", "alike(4, 4)", "4, drop_remainder=True"),
    "constant of four rows": ("x + tf.constant([[1.0], [2.0], [3.0], [4.0]])", "alike(4, 4)", "4, drop_remainder=True"),
    "component in batches of five": ("x + y", "alike(5, 5), alike(5)", "5, drop_remainder=True"),
    "single number for each row": ("x * y", "alike(4), alike()", "4, drop_remainder=True"),
}

_PIPELINES = {
    "window of rows": "slices(alike(2, rows=301, odd=200)).window(7, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(7)).map(lambda w: tf.reduce_max(w, axis=1)).batch(4)",
    "window of rows, first": "slices(alike(3, rows=301, odd=200)).window(3, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(3)).map(lambda w: w[:, 0]).batch(4)",
    "cached shuffle": "slices(np.arange(30)).shuffle(30, seed=2).cache().map(lambda x: x + 1).batch(4)",
    "shuffle of a random map": "slices(np.arange(30.0)).map(lambda x: x + tf.random.uniform([], dtype=tf.float64, seed=1)).shuffle(9, seed=2).batch(4)",
    "counter": "slices(np.arange(30)).enumerate().map(lambda n, x: x * n).take(20).batch(4)",
    "filter behind a map": "slices(alike(3)).map(lambda x: tf.reverse(x, [0])).filter(lambda x: x[0] < 5).batch(4)",
    "unbatched rows": "slices(alike(4, 3)).unbatch().map(lambda x: x * 2).batch(3)",
    "parsed rows": (
        "slices(np.array([tf.train.Example(features=tf.train.Features(feature={'v': tf.train.Feature(float_list=tf.train.FloatList("
        "value=[1.0, 2.0, 3.0 if n != 700 else 300.0]))})).SerializeToString() for n in range(2003)]))"
        ".map(lambda e: tf.cast(tf.io.parse_single_example(e, {'v': tf.io.FixedLenFeature([3], tf.float32)})['v'], tf.uint8)).batch(4)"
    ),
    "parsed matrix": (
        "slices(np.array([tf.train.Example(features=tf.train.Features(feature={'v': tf.train.Feature(float_list=tf.train.FloatList("
        "value=[0.0, 0.0, 0.0, 3.0 if n == 700 else 0.0]))})).SerializeToString() for n in range(2003)], dtype=object))"
        ".map(lambda e: tf.reduce_max(tf.io.parse_single_example(e, {'v': tf.io.FixedLenFeature([2, 2], tf.float32)})['v'], axis=1)).batch(4)"
    ),
    "raw bytes": (
        "slices(np.array([bytes([0] * 8) if n != 700 else bytes(range(8)) for n in range(2003)], dtype=object))"
        ".map(lambda t: tf.reshape(tf.io.decode_raw(t, tf.uint8), [2, 4])[:, ::-1]).batch(4)"
    ),
    "shuffled twice over, beside itself": "(lambda d: tf.data.Dataset.zip((d, d.skip(1))).map(lambda a, b: a + b))"
    "(tf.data.Dataset.from_generator(lambda: iter(range(40)), output_signature=tf.TensorSpec([], tf.int64))"
    ".shuffle(50, seed=4).repeat(2))",
    "branches that restart a shuffle": "(lambda d: tf.data.Dataset.zip((d.repeat(2).batch(4), d.repeat(2).skip(1).batch(4))))"
    "(tf.data.Dataset.range(40).shuffle(50, seed=4).take(99))",
}


def _hands(*tables: Mapping[str, tuple[str, ...]]) -> Iterator[Hand]:
    return (Hand(name, _function(*row)) for table in tables for name, row in table.items())


HANDS: tuple[Hand, ...] = (
    *_hands(_AXES, _CASTS, _CONVERTERS, _LAST_ROWS, _ZEROS),
    *(Hand(name, *row) for name, row in _ERRORS.items()),
    *(Hand(name, *_generator(*row)) for name, row in _GENERATORS.items()),
    *_hands(_OTHERS, _BATCHED_AS_ELEMENTS),
    *(Hand(name, expression) for name, expression in _PIPELINES.items()),
)
"""All of them; lists of right proposals name them by their places."""
