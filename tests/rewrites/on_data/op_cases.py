"""Functions of single elements that use one op each, in the ways an op can be used, and inputs to try them on.

Properties of an op (a rule may move it downstream of `batch`, `tf.vectorized_map` supports it, its bits do not depend
on the number of rows) are proven by running every function here that uses it on generated elements, one by one and in
batches. Shapes are both square and non-square: in a square one, a wrong axis would not change the shape.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

COUNT = 41

_TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)
_ROW = np.linspace(-2, 2, 4).astype(np.float32)
_WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
_KERNEL = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 2, 3, 2)
_NAMES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2], tf.int64), tf.constant(["a", "b", "c"])), "?"
)


@dataclass(frozen=True)
class Case:
    """One function of single elements, and the specs of its arguments."""

    name: str
    function: Callable[..., Any]
    specs: tuple[Any, ...]
    texts: tuple[bytes, ...] = ()  # the only text that the function takes

    def elements(self) -> list[np.ndarray]:
        """Elements to try it on, stacked along a first axis."""
        if self.texts:
            return [np.array([self.texts[place % len(self.texts)] for place in range(COUNT)], object)]
        return elements(self.specs)


def spec(shape: Sequence[int | None], dtype: Any = tf.float32) -> Any:
    return tf.TensorSpec(shape, dtype)


def cases() -> Iterator[Case]:
    yield from _by_number()
    yield from _pairs()
    yield from _by_axis()
    yield from _images()
    yield from _text()
    yield from _of_texts(_OTHERS)


def _of_texts(table: dict[str, str], **names: Any) -> Iterator[Case]:
    """The cases of a table: by the arguments, of each its shape and dtype, what is computed of `x`, `y` and `z`.

    Arguments are separated by commas, alternatives of them by slashes, functions by semicolons.
    """
    known = {"tf": tf, "table": _TABLE, "names": _NAMES, "row": _ROW, "weights": _WEIGHTS, "kernel": _KERNEL, **names}
    for alternatives, texts in table.items():
        for arguments in alternatives.split(" / "):
            specs = tuple(_spec(words.split()) for words in arguments.split(", "))
            for text in " ".join(texts.split()).split("; "):
                called = re.match(r"tf\.([\w.]+)\(", text)
                function = eval(f"lambda {', '.join('xyz'[: len(specs)])}: {text}", known)
                yield Case(called[1] if called else text, function, specs)


def _spec(words: list[str]) -> Any:
    dtype = "float32" if words[-1].isdecimal() else words[-1]
    return spec([int(one) for one in words if one.isdecimal()], tf.as_dtype(dtype))


def _by_number() -> Iterator[Case]:
    both = ("abs", "negative", "square", "sign", "zeros_like", "ones_like", "identity", "stop_gradient")
    real = (
        "math.ceil", "floor", "round", "math.is_nan", "math.is_inf", "math.is_finite", "nn.relu", "nn.relu6", "sqrt",
        "math.rsqrt", "exp", "math.expm1", "math.log", "math.log1p", "sigmoid", "tanh", "sin", "cos", "tan", "math.erf",
        "nn.elu", "nn.selu", "nn.softplus", "nn.softsign", "math.reciprocal", "nn.leaky_relu", "math.rint", "nn.swish",
        "nn.gelu", "math.lgamma", "math.digamma", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
        "math.erfc",
    )  # fmt: skip
    for names, shapes, dtypes in (
        (both, ((), (5,), (1,), (4, 4), (7, 3), (1, 6), (3, 3, 3), (2, 1, 5)), (tf.float32, tf.float64, tf.int32)),
        (real, ((), (5,), (4, 4), (33,)), (tf.float32, tf.float64)),
    ):
        for shape, name, dtype in itertools.product(shapes, names, dtypes):
            yield Case(name, _named(name), (spec(shape, dtype),))
    yield from _of_texts({
        "7": "tf.clip_by_value(x, -1.0, 2.0); tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 2.5])",
        "7 int32": "tf.clip_by_value(x, 0, 100)",
        "5 int32": """tf.bitwise.invert(x); tf.bitwise.bitwise_and(x, 6); tf.bitwise.bitwise_or(x, 6);
            tf.bitwise.bitwise_xor(x, 6); tf.bitwise.left_shift(x, 2); tf.bitwise.right_shift(x, 2)""",
        "4 4 uint8, 4 4 uint8": """tf.bitwise.bitwise_and(x, y); tf.bitwise.bitwise_or(x, y);
            tf.bitwise.bitwise_xor(x, y)""",
        "4 4 bool, 4 4 bool": "tf.logical_and(x, y); tf.logical_or(x, y)",
        "4 4 bool": "tf.logical_not(x)",
    })  # fmt: skip
    for target in ("float32", "float64", "int32", "int64", "bool", "float16", "bfloat16"):
        for source in ("uint8", "int32", "int64", "float32", "float64", "bool"):
            yield from _of_texts({f"{source} / 5 {source} / 4 4 {source}": f"tf.cast(x, '{target}')"})
    for target in ("int8", "uint8", "int16"):
        yield from _of_texts({"5 int32 / 5 int64 / 5 uint8": f"tf.cast(x, '{target}')"})


def _pairs() -> Iterator[Case]:
    names = (
        "add", "subtract", "multiply", "maximum", "minimum", "math.squared_difference", "equal", "not_equal", "less",
        "less_equal", "greater", "greater_equal", "math.divide_no_nan", "divide", "math.floordiv", "math.floormod",
        "pow", "atan2", "math.xlogy", "math.xdivy", "truncatediv", "truncatemod",
    )  # fmt: skip
    both = "float32, float32 / 5, 5 / 4 4, 4 4"
    for name in names:
        doubles = "float64, float64 / 5 float64, 5 float64 / 4 4 float64, 4 4 float64"
        yield from _of_texts({
            f"{both} / {doubles} / 4 4, float32 / 4 4, 4": f"tf.{name}(x, y)",
            "4 4": f"tf.{name}(x, row); tf.{name}(row, x); tf.{name}(x, row[:, None])",
            "4 4, 4": f"tf.{name}(x, y[:, None])",
        })  # fmt: skip
    yield from _of_texts({
        "5 int32, 5 int32 / 5 int64, 5 int64 / 5 uint8, 5 uint8 / 5 int8, 5 int8": """tf.add(x, y); tf.subtract(x, y);
            tf.multiply(x, y); tf.maximum(x, y); tf.minimum(x, y); tf.equal(x, y); tf.less(x, y)""",
        "5 int32": "tf.math.floordiv(x, 3); tf.math.floormod(x, 3)",
        "4 4, 4 4": "tf.add_n([x, y, x])",
        "bool, float32, float32 / 5 bool, 5, 5 / 4 4 bool, 4 4, 4 4": "tf.where(x, y, z); tf.compat.v1.where(x, y, z)",
        "4 4": "tf.where(x > 0, x, 0.0); tf.compat.v1.where(x > 0, x, tf.ones([4, 4]))",
        "4 bool, 4 4": "tf.where(x, y, 0.0); tf.where(x[:, None], y, 0.0); tf.compat.v1.where(x, y, -y)",
        "bool, 4 4": "tf.where(x, y, -y); tf.compat.v1.where(x, y, -y)",
        f"{both} / 4 4, 4": "tf.abs(tf.complex(x, y)); tf.complex(x, y)",
        "5 / 4 4 / 7 3": """tf.reduce_logsumexp(x); tf.reduce_logsumexp(x, axis=0);
            tf.reduce_logsumexp(x, axis=-1, keepdims=True)""",
    })  # fmt: skip


def _by_axis() -> Iterator[Case]:
    for shape in ("5", "4 4", "7 3", "3 3 3", "2 1 5"):
        rank, last = len(shape.split()), int(shape.split()[-1])
        for axis in range(-rank, rank):
            size = int(shape.split()[axis])
            for name in ("max", "min", "sum", "mean", "prod"):
                text = f"tf.reduce_{name}(x, axis); tf.reduce_{name}(x, axis, keepdims=True)"
                yield from _of_texts({f"{shape} / {shape} int32": text}, axis=axis)
            yield from _of_texts(
                {
                    f"{shape} bool": "tf.reduce_any(x, axis); tf.reduce_all(x, axis)",
                    f"{shape} / {shape} int32": """tf.argmax(x, axis); tf.argmin(x, axis); tf.cumsum(x, axis);
                        tf.math.cumprod(x, axis)""",
                    f"{shape} int64": "tf.cumsum(x, axis, exclusive=True, reverse=True)",
                    shape: f"""tf.reverse(x, [axis]); tf.roll(x, 2, axis); tf.roll(x, [1, 2], [axis, 0]);
                        tf.roll(x, tf.size(tf.where(x > 0.0)), axis); tf.concat([x, -x, x], axis);
                        tf.concat([x, tf.ones(x.shape)], axis); tf.nn.softmax(x, axis); tf.nn.log_softmax(x, axis);
                        tf.math.l2_normalize(x, axis); tf.sort(x, axis); tf.unstack(x, axis=axis)[0];
                        {"tf.split(x, [1, -1], axis)[1]; " * (size > 1)}tf.split(x, {size}, axis)[-1];
                        tf.gather(x, [0], axis=axis); tf.gather(x, [[0, 0]], axis=axis)""",
                    f"{shape} int32": """tf.roll(x, [1], [axis]); tf.argsort(x, axis, stable=True);
                        tf.gather(x, 0, axis=axis)""",
                },
                axis=axis,
            )
        for axis in range(-rank - 1, rank + 1):
            text = "tf.stack([x, -x, x], axis); tf.stack([x, tf.zeros(x.shape)], axis); tf.expand_dims(x, axis)"
            yield from _of_texts({shape: text}, axis=axis)
            if axis >= -1:
                yield from _of_texts({f"{shape} int32": "tf.one_hot(x, 4, axis=axis)"}, axis=axis)
        yield from _of_texts({
            shape: """tf.reduce_max(x); tf.reduce_min(x); tf.reduce_sum(x); x - tf.reduce_max(x); x - tf.reduce_min(x);
                x - tf.reduce_sum(x); tf.math.top_k(x, 1).values""",
            f"{shape} int32": f"tf.math.top_k(x, {min(last, 2)}).indices",
            f"{shape} uint8": "tf.one_hot(x, 5, on_value=2, off_value=-1)",
        })  # fmt: skip
    yield from _of_texts({
        "3 3 3": "tf.reduce_max(x, axis=[0, 2])",
        "3 3 3 int64": "tf.reduce_sum(x, axis=[-1, 0])",
        "4 4 3": "tf.reduce_mean(x, axis=[0, 1])",
        "4 4": "tf.math.reduce_std(x); tf.reverse(x, [0, 1])",
        "4": "x / tf.norm(x)",
        "int64": "tf.one_hot(x, 10)",
    })  # fmt: skip


_OTHERS = {
    # Shapes.
    "4 4": """tf.reshape(x, [-1]); tf.reshape(x, [2, 8]); tf.reshape(x, [-1, 4, 4]);
        x * tf.cast(tf.shape(x)[0], x.dtype); x / tf.cast(tf.size(x), x.dtype); x + tf.eye(4); tf.linalg.diag_part(x);
        tf.linalg.band_part(x, 1, 0); tf.fill(tf.shape(x), 2.0) * x; tf.math.in_top_k([0, 1, 2, 3], x, 2);
        tf.matmul(x, weights); tf.matmul(x, x); tf.tensordot(x, weights, 1); tf.einsum('ij,jk->ik', x, weights);
        tf.linalg.trace(x); tf.function(lambda x: x[..., 0] * 2.0 - x[..., 1])(x)""",
    "4 4 int32": "tf.reshape(x, [16, 1])",
    "7 3": """tf.reshape(x, [1, -1]); tf.reshape(x, tf.reverse(tf.shape(x), [0])); tf.matmul(x, x, transpose_b=True);
        tf.nn.bias_add(x, [1.0, 2.0, 3.0])""",
    "float32": "tf.reshape(x, [1]); tf.tile([x], [3]); tf.fill([3], x)",
    "1 6 / 2 1 5 / 1": "tf.squeeze(x)",
    "1 6": "tf.squeeze(x, 0)",
    "2 1 5": "tf.squeeze(x, -2)",
    "4 4 / 7 3": """tf.transpose(x); tf.pad(x, [[1, 0], [0, 2]]); tf.pad(x, [[1, 0], [0, 2]], constant_values=3.0);
        tf.pad(x, [[1, 0], [0, 2]], 'REFLECT'); tf.pad(x, [[1, 0], [0, 2]], 'SYMMETRIC'); tf.tile(x, [2, 1]);
        tf.tile(x, [1, 3]); tf.repeat(x, 2, axis=0); tf.repeat(x, 2, axis=1); tf.slice(x, [1, 0], [2, -1]);
        tf.slice(x, [0, 1], [-1, 2]); x[0]; x[-1]; x[:, 0]; x[..., 0]; x[:2]; x[:, :1]; x[:, 1:]; x[1:, :-1]; x[::-1];
        x[:, ::-1]; x[..., ::-1]; x[::2]; x[:, ::2]; x[None]; x[:, None]; x[..., None]; x[None, ..., 0]; x[1, 2];
        x[-1:, None, 1]; x - x[:1]; x - x[:, :1]; x - x[0]""",
    "4 4 int32 / 7 3 int32": "tf.pad(x, [[0, 0], [1, 1]])",
    "3 3 3": "tf.transpose(x, [2, 0, 1])",
    "3 3 3 uint8": "tf.transpose(x, [0, 2, 1]); x[:, 0]; x[..., 0]; x[:, ::-1]; x[:, None]",
    "5": """tf.broadcast_to(x, [3, 5]); tf.broadcast_to(x[:, None], [5, 5]); x[0]; x[..., None]; x[:2]; x[::-1];
        x[None]; tf.searchsorted([0.0, 1.0, 2.0], x)""",
    "4": """tf.stack(tf.meshgrid(x, x), -1); tf.linalg.diag(x); tf.tensor_scatter_nd_update(x, [[0], [2]], [7.0, 8.0]);
        tf.matmul(x[None], weights)[0]; tf.linalg.matvec(weights, x, transpose_a=True)""",
    "4 4 3": "tf.nn.space_to_depth(x[None], 2)[0]",
    # Rows that numbers name.
    "int32 / 4 int64": "tf.gather(table, x % 10)",
    "int32 / 4 int32": "tf.gather(table, x % 4, axis=1)",
    "4, 4 int32": "tf.gather(x, y % 4)",
    "4 4, 4 int32": "tf.gather(x, y % 4, batch_dims=1)",
    "4 4, int32": "tf.gather(x, y % 4, axis=1)",
    "2 int32 / 4 2 int32": "tf.gather_nd(table, x % 4)",
    "4 4, 3 2 int32": "tf.gather_nd(x, y % 4)",
    "int64 / 3 int64": "names.lookup(x)",
    "4 int32": "tf.math.unsorted_segment_sum(x, [0, 1, 0, 1], 2)",
    "5 int32": "tf.math.bincount(tf.abs(x % 4), minlength=4, maxlength=4)",
    # Sums of products.
    "8": "tf.abs(tf.signal.rfft(x))",
    "33": "tf.abs(tf.signal.stft(x, 8, 4))",
    "2 3 3": "tf.matmul(x, x)",
    "5 4 3": "tf.nn.conv2d(x[None], kernel, 1, 'SAME')[0]",
}


def _images() -> Iterator[Case]:
    for one in ("", " uint8"):
        yield from _of_texts({
            f"6 6 3{one} / 5 4 3{one} / 8 6 1{one}": """tf.image.resize(x, [7, 3]);
                tf.image.resize(x, [7, 3], method='nearest'); tf.image.resize(x, [7, 3], method='bicubic');
                tf.image.resize(x, [7, 3], method='area'); tf.image.resize(x, [6, 6], antialias=True);
                tf.image.flip_left_right(x); tf.image.flip_up_down(x); tf.image.transpose(x); tf.image.rot90(x);
                tf.image.central_crop(x, 0.5); tf.image.crop_to_bounding_box(x, 1, 1, 3, 2);
                tf.image.resize_with_crop_or_pad(x, 7, 3); tf.image.pad_to_bounding_box(x, 1, 0, 9, 9);
                tf.image.per_image_standardization(x); tf.image.convert_image_dtype(x, tf.float32);
                tf.image.convert_image_dtype(x, tf.uint8, saturate=True); tf.image.adjust_brightness(x, 0.2);
                tf.image.adjust_contrast(x, 1.5)""",
            f"6 6 3{one} / 5 4 3{one}": """tf.image.rgb_to_grayscale(x); tf.image.adjust_saturation(x, 1.5);
                tf.image.adjust_hue(x, 0.1); tf.image.grayscale_to_rgb(x[..., :1])""",
        })  # fmt: skip
    yield from _of_texts({
        "6 6 3 / 5 4 3 / 8 6 1": "tf.image.total_variation(x)",
        "6 6 3 / 5 4 3": """tf.image.rgb_to_hsv(x); tf.image.hsv_to_rgb(x); tf.image.rgb_to_yuv(x);
            tf.image.sobel_edges(x[None])[0]; tf.nn.max_pool2d(x[None], 2, 1, 'SAME')[0];
            tf.nn.avg_pool2d(x[None], 2, 2, 'VALID')[0];
            tf.image.extract_patches(x[None], [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')[0]""",
    })  # fmt: skip


def _text() -> Iterator[Case]:
    yield from _of_texts({
        "string / 3 string": """tf.strings.lower(x); tf.strings.upper(x); tf.strings.strip(x); tf.strings.length(x);
            tf.strings.to_hash_bucket_fast(x, 50); tf.strings.to_hash_bucket_strong(x, 50, [1, 2]);
            tf.strings.substr(x, 0, 2); tf.strings.regex_replace(x, '[aeiou]', '_');
            tf.strings.regex_full_match(x, 'w.*'); tf.strings.join([x, 'x', x], '-'); x == 'word 1';
            tf.io.decode_base64(tf.io.encode_base64(x));
            tf.strings.to_number(tf.strings.regex_replace(x, '[^0-9]', '1'))""",
        "3 string": "tf.strings.reduce_join(x, -1)",
        "string": """tf.reshape(tf.io.decode_raw(x, tf.uint8, fixed_length=4), [4]);
            tf.io.decode_csv(tf.strings.join(['1,2,', x]), [[0.0], [0], ['']])""",
        "4 int32 / 4 / 4 bool": "tf.strings.as_string(x)",
        "float32": "tf.strings.as_string(x, precision=2)",
    })  # fmt: skip
    text = (spec((), tf.string),)
    lines = tuple(f"{number},{number / 8},name {number}".encode() for number in range(9))
    yield Case("csv", lambda s: tf.io.decode_csv(s, [[0], [0.0], [""]]), text, lines)
    yield Case("csv", lambda s: tf.stack(tf.io.decode_csv(s, [[0.0], [0.0], [""]])[:2]), text, lines)
    yield Case("parse", lambda s: tf.io.parse_single_example(s, _FEATURES), text, tuple(_examples()))
    yield Case("parse", lambda s: tf.io.parse_single_example(s, _FEATURES)["v"][::-1], text, tuple(_examples()))


_FEATURES = {
    "n": tf.io.FixedLenFeature([], tf.int64),
    "v": tf.io.FixedLenFeature([3], tf.float32, default_value=[1.0, 2.0, 3.0]),
}


def _examples() -> Iterator[bytes]:
    for number in range(9):
        example = tf.train.Example()
        example.features.feature["n"].int64_list.value.append(number)
        if number % 3:
            example.features.feature["v"].float_list.value.extend([number / 2, -number, 0.0])
        yield example.SerializeToString()


def _named(name: str) -> Callable[..., Any]:
    return operator.attrgetter(name)(tf)  # type: ignore[no-any-return]


# -- elements to try a function on


def elements(specs: Sequence[Any], *, count: int = COUNT, seed: int = 0) -> list[np.ndarray]:
    """Generated elements for each spec, stacked along a first axis.

    Most rows differ. They include zeros of both signs, infinities, NaN, denormals, the limits of the type, and a
    run of rows that are all equal but one.
    """
    draw = np.random.default_rng(seed)
    return [_stacked(one, count, draw) for one in specs]


_REALS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 255.0, 300.0, 1e-40, -1e-40, 70000.0, 3e38, -3e38)


def _stacked(one: Any, count: int, draw: np.random.Generator) -> np.ndarray:
    shape = (count, *one.shape)
    if one.dtype == tf.string:
        words = np.array([f" Word {number} é"[: 2 + number % 9].encode() for number in range(17)], object)
        return np.asarray(draw.choice(words, shape))
    if one.dtype == tf.bool:
        values = draw.random(shape) < 0.5
    elif one.dtype.is_integer:
        limits = np.iinfo(one.dtype.as_numpy_dtype)
        values = draw.integers(max(limits.min, -3), 10, shape)
        rare = draw.random(shape) < 0.1
        values = np.where(rare, draw.choice([limits.min, limits.max, 0], shape), values)
    else:
        values = draw.normal(size=shape) * 3
        rare = draw.random(shape) < 0.15
        values = np.where(rare, draw.choice(_REALS, shape), values)
        values[: count // 8] = np.round(values[: count // 8])
    with np.errstate(all="ignore"):
        values = values.astype(one.dtype.as_numpy_dtype)
    alike = slice(count // 2, count // 2 + count // 4)
    values[alike] = values[count // 2]
    values[count // 2 + count // 8] = values[0]
    values[-1] = np.zeros(one.shape, values.dtype)
    return values


# -- the results for a batch against those for its elements


def differences(single: Any, batched: Any, stacked: Sequence[np.ndarray], *, sizes: Sequence[int]) -> set[str]:
    """How rows of batches of these sizes differ from what the function returns for each element.

    "zero" is the sign of a zero, "denormal" a flushed denormal, "bits" a relative difference below 1e-5 (or where a
    number is not finite), "cast" a different integer, "value" anything else, "raises" an error in a batch of elements
    that do not raise one by one.
    """
    inputs = [tf.constant(part) for part in stacked]
    wanted, kept = [], []
    for place in range(len(stacked[0])):
        try:
            wanted.append([np.asarray(part.numpy()) for part in single(*[part[place] for part in inputs])])
            kept.append(place)
        except tf.errors.OpError:
            continue
    if not kept:
        return set()
    inputs = [tf.gather(part, kept) for part in inputs]
    found: set[str] = set()
    for size in sizes:
        for start in range(0, len(kept) - size + 1, size):
            try:
                given = [part.numpy() for part in batched(*[part[start : start + size] for part in inputs])]
            except tf.errors.OpError:
                found.add("raises")
                continue
            for row, element in enumerate(wanted[start : start + size]):
                for one, other in zip(element, given, strict=True):
                    if np.ndim(other) == 0 or len(other) != size:
                        found.add("value")
                    else:
                        found |= _difference(one, np.asarray(other[row]))
    return found


def _difference(one: np.ndarray, other: np.ndarray) -> set[str]:
    if one.shape != other.shape or one.dtype != other.dtype:
        return {"value"}
    if one.dtype.kind in "OSUb":
        return set() if bool((one == other).all()) else {"value"}
    if one.dtype.kind in "iu":
        return set() if bool((one == other).all()) else {"cast"}
    with np.errstate(all="ignore"):
        a, b = one.astype(np.complex128), other.astype(np.complex128)
        same = (a == b) | ((a != a) & (b != b))
        if same.all():
            signs = np.signbit(a.real) != np.signbit(b.real)
            return {"zero"} if signs[a == b].any() else set()
        least = 2.3e-308 if one.dtype == np.float64 else 6.2e-5 if one.dtype == np.float16 else 1.2e-38
        if (np.abs(a[~same]) < least).all() and (np.abs(b[~same]) < least).all():
            return {"denormal"}
        finite = np.isfinite(a) & np.isfinite(b) & ~same
        apart = np.abs(a - b)[finite] / np.maximum(np.abs(a[finite]), 1.0)
        close = bool((apart < (2e-2 if one.dtype.itemsize == 2 else 1e-5)).all())
        return {"bits"} if close else {"value"}
