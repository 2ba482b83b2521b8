"""Functions of single elements that use one op each, in the ways an op can be used, and inputs to try them on.

Properties of an op (a rule may move it downstream of `batch`, `tf.vectorized_map` supports it, its bits do not depend
on the number of rows) are proven by running every function here that uses it on generated elements, one by one and in
batches. Shapes are both square and non-square: in a square one, a wrong axis would not change the shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

SHAPES = ((), (5,), (1,), (4, 4), (7, 3), (1, 6), (3, 3, 3), (2, 1, 5))
FLOATS = (tf.float32, tf.float64, tf.float16)
COUNT = 41
INTEGERS = (tf.int32, tf.int64, tf.uint8, tf.int8)

_TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)
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
    yield from _by_axis()
    yield from _shapes()
    yield from _choosing()
    yield from _images()
    yield from _text()
    yield from _linear()


def _by_number() -> Iterator[Case]:
    both = ("abs", "negative", "square", "sign", "zeros_like", "ones_like", "identity", "stop_gradient")
    real = (
        "math.ceil", "floor", "round", "math.is_nan", "math.is_inf", "math.is_finite", "nn.relu", "nn.relu6", "sqrt",
        "math.rsqrt", "exp", "math.expm1", "math.log", "math.log1p", "sigmoid", "tanh", "sin", "cos", "tan", "math.erf",
        "nn.elu", "nn.selu", "nn.softplus", "nn.softsign", "math.reciprocal", "nn.leaky_relu", "math.rint", "nn.swish",
        "nn.gelu", "math.lgamma", "math.digamma", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
        "math.erfc",
    )  # fmt: skip
    for shape in SHAPES:
        for name in both:
            for dtype in (*FLOATS[:2], tf.int32):
                yield Case(name, _named(name), (spec(shape, dtype),))
    for shape in ((), (5,), (4, 4), (33,)):
        for name in real:
            for dtype in FLOATS[:2]:
                yield Case(name, _named(name), (spec(shape, dtype),))
    yield Case("clip", lambda x: tf.clip_by_value(x, -1.0, 2.0), (spec((7,)),))
    yield Case("clip", lambda x: tf.clip_by_value(x, 0, 100), (spec((7,), tf.int32),))
    yield Case("bucketize", lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 2.5]), (spec((7,)),))
    yield Case("invert", tf.bitwise.invert, (spec((5,), tf.int32),))
    for name in ("bitwise.bitwise_and", "bitwise.bitwise_or", "bitwise.bitwise_xor"):
        yield Case(name, lambda x, name=name: _named(name)(x, tf.constant(6, x.dtype)), (spec((5,), tf.int32),))
        yield Case(name, _named(name), (spec((4, 4), tf.uint8), spec((4, 4), tf.uint8)))
    for name in ("bitwise.left_shift", "bitwise.right_shift"):
        yield Case(name, lambda x, name=name: _named(name)(x, tf.constant(2, x.dtype)), (spec((5,), tf.int32),))
    for name in ("logical_and", "logical_or"):
        yield Case(name, _named(name), (spec((4, 4), tf.bool), spec((4, 4), tf.bool)))
    yield Case("logical_not", tf.logical_not, (spec((4, 4), tf.bool),))
    yield from _pairs()
    for source in (tf.uint8, tf.int32, tf.int64, tf.float32, tf.float64, tf.bool):
        for target in (tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.float16, tf.bfloat16):
            for shape in ((), (5,), (4, 4)):
                yield Case("cast", lambda x, target=target: tf.cast(x, target), (spec(shape, source),))
    for source in (tf.int32, tf.int64, tf.uint8):
        for target in (tf.int8, tf.uint8, tf.int16):
            yield Case("cast", lambda x, target=target: tf.cast(x, target), (spec((5,), source),))


def _pairs() -> Iterator[Case]:
    names = (
        "add", "subtract", "multiply", "maximum", "minimum", "math.squared_difference", "equal", "not_equal", "less",
        "less_equal", "greater", "greater_equal", "math.divide_no_nan", "divide", "math.floordiv", "math.floormod",
        "pow", "atan2", "math.xlogy", "math.xdivy", "truncatediv", "truncatemod",
    )  # fmt: skip
    row = np.linspace(-2, 2, 4).astype(np.float32)
    for name in names:
        call = _named(name)
        for dtype in (tf.float32, tf.float64):
            for shape in ((), (5,), (4, 4)):
                yield Case(name, call, (spec(shape, dtype), spec(shape, dtype)))
        yield Case(name, lambda x, call=call: call(x, row), (spec((4, 4)),))
        yield Case(name, lambda x, call=call: call(row, x), (spec((4, 4)),))
        yield Case(name, lambda x, call=call: call(x, row[:, None]), (spec((4, 4)),))
        yield Case(name, call, (spec((4, 4)), spec(())))
        yield Case(name, call, (spec((4, 4)), spec((4,))))
        yield Case(name, lambda x, y, call=call: call(x, y[:, None]), (spec((4, 4)), spec((4,))))
    for name in ("add", "subtract", "multiply", "maximum", "minimum", "equal", "less"):
        for dtype in INTEGERS:
            yield Case(name, _named(name), (spec((5,), dtype), spec((5,), dtype)))
    for name in ("math.floordiv", "math.floormod"):
        yield Case(name, lambda x, name=name: _named(name)(x, 3), (spec((5,), tf.int32),))
    yield Case("add_n", lambda x, y: tf.add_n([x, y, x]), (spec((4, 4)), spec((4, 4))))
    for shape in ((), (5,), (4, 4)):
        yield Case("where", lambda c, x, y: tf.where(c, x, y), (spec(shape, tf.bool), spec(shape), spec(shape)))
    yield Case("where", lambda x: tf.where(x > 0, x, 0.0), (spec((4, 4)),))
    yield Case("where", lambda c, x: tf.where(c, x, 0.0), (spec((4,), tf.bool), spec((4, 4))))
    yield Case("where", lambda c, x: tf.where(c[:, None], x, 0.0), (spec((4,), tf.bool), spec((4, 4))))
    yield Case("where", lambda c, x: tf.where(c, x, -x), (spec((), tf.bool), spec((4, 4))))
    first = tf.compat.v1.where
    for shape in ((), (5,), (4, 4)):
        yield Case("where v1", lambda c, x, y: first(c, x, y), (spec(shape, tf.bool), spec(shape), spec(shape)))
    yield Case("where v1", lambda c, x: first(c, x, -x), (spec((4,), tf.bool), spec((4, 4))))
    yield Case("where v1", lambda c, x: first(c, x, -x), (spec((), tf.bool), spec((4, 4))))
    yield Case("where v1", lambda x: first(x > 0, x, tf.ones([4, 4])), (spec((4, 4)),))
    for one, other in (((), ()), ((5,), (5,)), ((4, 4), (4, 4)), ((4, 4), (4,))):
        yield Case("complex", lambda x, y: tf.abs(tf.complex(x, y)), (spec(one), spec(other)))
    for shape in ((5,), (4, 4), (7, 3)):
        yield Case("logsumexp", tf.reduce_logsumexp, (spec(shape),))
        yield Case("logsumexp", lambda x: tf.reduce_logsumexp(x, axis=0), (spec(shape),))
        yield Case("logsumexp", lambda x: tf.reduce_logsumexp(x, axis=-1, keepdims=True), (spec(shape),))


def _by_axis() -> Iterator[Case]:
    reductions = ("max", "min", "sum", "mean", "prod")
    for shape in ((5,), (4, 4), (7, 3), (3, 3, 3), (2, 1, 5)):
        rank = len(shape)
        for axis in range(-rank, rank):
            for name in reductions:
                reduce = getattr(tf, f"reduce_{name}")
                for dtype in (tf.float32, tf.int32):
                    for keep in (False, True):
                        given = {"axis": axis, "keepdims": keep}
                        yield Case(f"reduce_{name}", functools.partial(reduce, **given), (spec(shape, dtype),))
            for name in ("any", "all"):
                yield Case(name, functools.partial(_named(f"reduce_{name}"), axis=axis), (spec(shape, tf.bool),))
            for name in ("argmax", "argmin", "cumsum", "math.cumprod"):
                for dtype in (tf.float32, tf.int32):
                    yield Case(name, functools.partial(_named(name), axis=axis), (spec(shape, dtype),))
            backwards = functools.partial(tf.cumsum, axis=axis, exclusive=True, reverse=True)
            yield Case("cumsum", backwards, (spec(shape, tf.int64),))
            yield Case("reverse", lambda x, axis=axis: tf.reverse(x, [axis]), (spec(shape),))
            yield Case("roll", lambda x, axis=axis: tf.roll(x, 2, axis), (spec(shape),))
            yield Case("roll", lambda x, axis=axis: tf.roll(x, [1], [axis]), (spec(shape, tf.int32),))
            yield Case("roll", lambda x, axis=axis: tf.roll(x, [1, 2], [axis, 0]), (spec(shape),))
            yield Case("roll", lambda x, axis=axis: tf.roll(x, tf.size(tf.where(x > 0.0)), axis), (spec(shape),))
            yield Case("concat", lambda x, axis=axis: tf.concat([x, -x, x], axis), (spec(shape),))
            yield Case("concat", lambda x, axis=axis: tf.concat([x, tf.ones(x.shape)], axis), (spec(shape),))
            yield Case("softmax", lambda x, axis=axis: tf.nn.softmax(x, axis), (spec(shape),))
            yield Case("log_softmax", lambda x, axis=axis: tf.nn.log_softmax(x, axis), (spec(shape),))
            yield Case("l2_normalize", lambda x, axis=axis: tf.math.l2_normalize(x, axis), (spec(shape),))
            yield Case("sort", lambda x, axis=axis: tf.sort(x, axis), (spec(shape),))
            yield Case("argsort", lambda x, axis=axis: tf.argsort(x, axis, stable=True), (spec(shape, tf.int32),))
            yield Case("unstack", lambda x, axis=axis: tf.unstack(x, axis=axis)[0], (spec(shape),))
            yield Case(
                "split", lambda x, axis=axis: tf.split(x, [1, -1], axis)[1] if x.shape[axis] > 1 else x, (spec(shape),)
            )
            yield Case("split", lambda x, axis=axis: tf.split(x, x.shape[axis], axis)[-1], (spec(shape),))
            yield Case("gather", lambda x, axis=axis: tf.gather(x, [0], axis=axis), (spec(shape),))
            yield Case("gather", lambda x, axis=axis: tf.gather(x, [[0, 0]], axis=axis), (spec(shape),))
            yield Case("gather", lambda x, axis=axis: tf.gather(x, 0, axis=axis), (spec(shape, tf.int32),))
        for axis in range(-rank - 1, rank + 1):
            yield Case("stack", lambda x, axis=axis: tf.stack([x, -x, x], axis), (spec(shape),))
            yield Case("stack", lambda x, axis=axis: tf.stack([x, tf.zeros(x.shape)], axis), (spec(shape),))
            yield Case("expand_dims", lambda x, axis=axis: tf.expand_dims(x, axis), (spec(shape),))
            if axis >= -1:
                yield Case("one_hot", lambda x, axis=axis: tf.one_hot(x, 4, axis=axis), (spec(shape, tf.int32),))
        for name in reductions[:3]:
            reduce = getattr(tf, f"reduce_{name}")
            yield Case(f"reduce_{name}", reduce, (spec(shape),))
            yield Case(f"reduce_{name}", lambda x, reduce=reduce: x - reduce(x), (spec(shape),))
        yield Case("top_k", lambda x: tf.math.top_k(x, 1).values, (spec(shape),))
        yield Case("top_k", lambda x: tf.math.top_k(x, 2).indices if x.shape[-1] > 1 else x, (spec(shape, tf.int32),))
        yield Case("one_hot", lambda x: tf.one_hot(x, 5, on_value=2, off_value=-1), (spec(shape, tf.uint8),))
    yield Case("reduce_max", lambda x: tf.reduce_max(x, axis=[0, 2]), (spec((3, 3, 3)),))
    yield Case("reduce_sum", lambda x: tf.reduce_sum(x, axis=[-1, 0]), (spec((3, 3, 3), tf.int64),))
    yield Case("reduce_mean", lambda x: tf.reduce_mean(x, axis=[0, 1]), (spec((4, 4, 3)),))
    yield Case("reduce_std", lambda x: tf.math.reduce_std(x), (spec((4, 4)),))
    yield Case("norm", lambda x: x / tf.norm(x), (spec((4,)),))
    yield Case("one_hot", lambda i: tf.one_hot(i, 10), (spec((), tf.int64),))
    yield Case("reverse", lambda x: tf.reverse(x, [0, 1]), (spec((4, 4)),))


def _shapes() -> Iterator[Case]:
    yield Case("reshape", lambda x: tf.reshape(x, [-1]), (spec((4, 4)),))
    yield Case("reshape", lambda x: tf.reshape(x, [2, 8]), (spec((4, 4)),))
    yield Case("reshape", lambda x: tf.reshape(x, [16, 1]), (spec((4, 4), tf.int32),))
    yield Case("reshape", lambda x: tf.reshape(x, [1, -1]), (spec((7, 3)),))
    yield Case("reshape", lambda x: tf.reshape(x, [-1, 4, 4]), (spec((4, 4)),))
    yield Case("reshape", lambda x: tf.reshape(x, tf.reverse(tf.shape(x), [0])), (spec((7, 3)),))
    yield Case("reshape", lambda x: tf.reshape(x, [1]), (spec(()),))
    yield Case("squeeze", tf.squeeze, (spec((1, 6)),))
    yield Case("squeeze", tf.squeeze, (spec((2, 1, 5)),))
    yield Case("squeeze", tf.squeeze, (spec((1,)),))
    yield Case("squeeze", lambda x: tf.squeeze(x, 0), (spec((1, 6)),))
    yield Case("squeeze", lambda x: tf.squeeze(x, -2), (spec((2, 1, 5)),))
    yield Case("transpose", tf.transpose, (spec((4, 4)),))
    yield Case("transpose", tf.transpose, (spec((7, 3)),))
    yield Case("transpose", lambda x: tf.transpose(x, [2, 0, 1]), (spec((3, 3, 3)),))
    yield Case("transpose", lambda x: tf.transpose(x, [0, 2, 1]), (spec((3, 3, 3), tf.uint8),))
    for shape in ((4, 4), (7, 3)):
        pads = tf.constant([[1, 0], [0, 2]])
        yield Case("pad", lambda x, pads=pads: tf.pad(x, pads), (spec(shape),))
        yield Case("pad", lambda x, pads=pads: tf.pad(x, pads, constant_values=3.0), (spec(shape),))
        yield Case("pad", lambda x: tf.pad(x, [[0, 0], [1, 1]]), (spec(shape, tf.int32),))
        for mode in ("REFLECT", "SYMMETRIC"):
            yield Case("pad", lambda x, pads=pads, mode=mode: tf.pad(x, pads, mode), (spec(shape),))
        yield Case("tile", lambda x: tf.tile(x, [2, 1]), (spec(shape),))
        yield Case("tile", lambda x: tf.tile(x, [1, 3]), (spec(shape),))
        yield Case("repeat", lambda x: tf.repeat(x, 2, axis=0), (spec(shape),))
        yield Case("repeat", lambda x: tf.repeat(x, 2, axis=1), (spec(shape),))
    yield Case("tile", lambda x: tf.tile([x], [3]), (spec(()),))
    yield Case("broadcast_to", lambda x: tf.broadcast_to(x, [3, 5]), (spec((5,)),))
    yield Case("broadcast_to", lambda x: tf.broadcast_to(x[:, None], [5, 5]), (spec((5,)),))
    yield Case("fill", lambda x: tf.fill([3], x), (spec(()),))
    yield Case("fill", lambda x: tf.fill(tf.shape(x), 2.0) * x, (spec((4, 4)),))
    texts = (
        "x[0]", "x[-1]", "x[:, 0]", "x[..., 0]", "x[:2]", "x[:, :1]", "x[:, 1:]", "x[1:, :-1]", "x[::-1]",
        "x[:, ::-1]", "x[..., ::-1]", "x[::2]", "x[:, ::2]", "x[None]", "x[:, None]", "x[..., None]",
        "x[None, ..., 0]", "x[1, 2]", "x[-1:, None, 1]", "x - x[:1]", "x - x[:, :1]", "x - x[0]",
    )  # fmt: skip
    indices: dict[str, Callable[[Any], Any]] = {text: eval(f"lambda x: {text}") for text in texts}
    indices["slice"] = lambda x: tf.slice(x, [1, 0], [2, -1])
    indices["slice all rows"] = lambda x: tf.slice(x, [0, 1], [-1, 2])
    for shape in ((4, 4), (7, 3)):
        for name, index in indices.items():
            yield Case(name, index, (spec(shape),))
    for name in ("x[0]", "x[..., None]", "x[:2]", "x[::-1]", "x[None]"):
        yield Case(name, indices[name], (spec((5,)),))
    for name in ("x[:, 0]", "x[..., 0]", "x[:, ::-1]", "x[:, None]"):
        yield Case(name, indices[name], (spec((3, 3, 3), tf.uint8),))
    yield Case("shape", lambda x: x * tf.cast(tf.shape(x)[0], x.dtype), (spec((4, 4)),))
    yield Case("size", lambda x: x / tf.cast(tf.size(x), x.dtype), (spec((4, 4)),))
    yield Case("meshgrid", lambda x: tf.stack(tf.meshgrid(x, x), -1), (spec((4,)),))
    yield Case("eye", lambda x: x + tf.eye(4), (spec((4, 4)),))
    yield Case("diag", tf.linalg.diag, (spec((4,)),))
    yield Case("diag_part", tf.linalg.diag_part, (spec((4, 4)),))
    yield Case("band_part", lambda x: tf.linalg.band_part(x, 1, 0), (spec((4, 4)),))
    yield Case("space_to_depth", lambda x: tf.nn.space_to_depth(x[None], 2)[0], (spec((4, 4, 3)),))


def _choosing() -> Iterator[Case]:
    yield Case("gather", lambda i: tf.gather(_TABLE, i % 10), (spec((), tf.int32),))
    yield Case("gather", lambda i: tf.gather(_TABLE, i % 10), (spec((4,), tf.int64),))
    yield Case("gather", lambda i: tf.gather(_TABLE, i % 4, axis=1), (spec((), tf.int32),))
    yield Case("gather", lambda i: tf.gather(_TABLE, i % 4, axis=1), (spec((4,), tf.int32),))
    yield Case("gather", lambda x, i: tf.gather(x, i % 4), (spec((4,)), spec((4,), tf.int32)))
    yield Case("gather", lambda x, i: tf.gather(x, i % 4, batch_dims=1), (spec((4, 4)), spec((4,), tf.int32)))
    yield Case("gather", lambda x, i: tf.gather(x, i % 4, axis=1), (spec((4, 4)), spec((), tf.int32)))
    yield Case("gather_nd", lambda i: tf.gather_nd(_TABLE, i % 4), (spec((2,), tf.int32),))
    yield Case("gather_nd", lambda i: tf.gather_nd(_TABLE, i % 4), (spec((4, 2), tf.int32),))
    yield Case("gather_nd", lambda x, i: tf.gather_nd(x, i % 4), (spec((4, 4)), spec((3, 2), tf.int32)))
    yield Case("lookup", lambda i: _NAMES.lookup(i), (spec((), tf.int64),))
    yield Case("lookup", lambda i: _NAMES.lookup(i), (spec((3,), tf.int64),))
    yield Case("scatter", lambda x: tf.tensor_scatter_nd_update(x, [[0], [2]], [7.0, 8.0]), (spec((4,)),))
    yield Case("segment", lambda x: tf.math.unsorted_segment_sum(x, [0, 1, 0, 1], 2), (spec((4,), tf.int32),))
    yield Case("searchsorted", lambda x: tf.searchsorted([0.0, 1.0, 2.0], x), (spec((5,)),))
    yield Case("bincount", lambda i: tf.math.bincount(tf.abs(i % 4), minlength=4, maxlength=4), (spec((5,), tf.int32),))
    yield Case("in_top_k", lambda x: tf.math.in_top_k([0, 1, 2, 3], x, 2), (spec((4, 4)),))


def _images() -> Iterator[Case]:
    for dtype in (tf.uint8, tf.float32):
        for shape in ((6, 6, 3), (5, 4, 3), (8, 6, 1)):
            image = (spec(shape, dtype),)
            for method in ("bilinear", "nearest", "bicubic", "area"):
                yield Case("resize", lambda x, method=method: tf.image.resize(x, [7, 3], method=method), image)
            yield Case("resize", lambda x: tf.image.resize(x, [6, 6], antialias=True), image)
            yield Case("flip", tf.image.flip_left_right, image)
            yield Case("flip", tf.image.flip_up_down, image)
            yield Case("transpose", tf.image.transpose, image)
            yield Case("rot90", lambda x: tf.image.rot90(x), image)
            yield Case("central_crop", lambda x: tf.image.central_crop(x, 0.5), image)
            yield Case("crop", lambda x: tf.image.crop_to_bounding_box(x, 1, 1, 3, 2), image)
            yield Case("crop or pad", lambda x: tf.image.resize_with_crop_or_pad(x, 7, 3), image)
            yield Case("pad", lambda x: tf.image.pad_to_bounding_box(x, 1, 0, 9, 9), image)
            yield Case("standardization", tf.image.per_image_standardization, image)
            yield Case("convert", lambda x: tf.image.convert_image_dtype(x, tf.float32), image)
            yield Case("convert", lambda x: tf.image.convert_image_dtype(x, tf.uint8, saturate=True), image)
            yield Case("brightness", lambda x: tf.image.adjust_brightness(x, 0.2), image)
            yield Case("contrast", lambda x: tf.image.adjust_contrast(x, 1.5), image)
            yield Case("total_variation", tf.image.total_variation, (spec(shape, tf.float32),))
        for shape in ((6, 6, 3), (5, 4, 3)):
            image = (spec(shape, dtype),)
            yield Case("grayscale", tf.image.rgb_to_grayscale, image)
            yield Case("saturation", lambda x: tf.image.adjust_saturation(x, 1.5), image)
            yield Case("hue", lambda x: tf.image.adjust_hue(x, 0.1), image)
            yield Case("grayscale", lambda x: tf.image.grayscale_to_rgb(x[..., :1]), image)
    for shape in ((6, 6, 3), (5, 4, 3)):
        image = (spec(shape),)
        yield Case("hsv", tf.image.rgb_to_hsv, image)
        yield Case("hsv", tf.image.hsv_to_rgb, image)
        yield Case("yuv", tf.image.rgb_to_yuv, image)
        yield Case("sobel", lambda x: tf.image.sobel_edges(x[None])[0], image)
        yield Case("max_pool", lambda x: tf.nn.max_pool2d(x[None], 2, 1, "SAME")[0], image)
        yield Case("avg_pool", lambda x: tf.nn.avg_pool2d(x[None], 2, 2, "VALID")[0], image)
        yield Case("patches", lambda x: tf.image.extract_patches(
            x[None], [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")[0], image)  # fmt: skip


def _text() -> Iterator[Case]:
    text, texts = spec((), tf.string), spec((3,), tf.string)
    for one in (text, texts):
        for name in ("lower", "upper", "strip", "length"):
            yield Case(name, getattr(tf.strings, name), (one,))
        yield Case("hash", lambda s: tf.strings.to_hash_bucket_fast(s, 50), (one,))
        yield Case("hash", lambda s: tf.strings.to_hash_bucket_strong(s, 50, [1, 2]), (one,))
        yield Case("substr", lambda s: tf.strings.substr(s, 0, 2), (one,))
        yield Case("regex", lambda s: tf.strings.regex_replace(s, "[aeiou]", "_"), (one,))
        yield Case("regex", lambda s: tf.strings.regex_full_match(s, "w.*"), (one,))
        yield Case("join", lambda s: tf.strings.join([s, "x", s], "-"), (one,))
        yield Case("equal", lambda s: s == "word 1", (one,))
        yield Case("base64", lambda s: tf.io.decode_base64(tf.io.encode_base64(s)), (one,))
        yield Case("to_number", lambda s: tf.strings.to_number(tf.strings.regex_replace(s, "[^0-9]", "1")), (one,))
    lines = tuple(f"{number},{number / 8},name {number}".encode() for number in range(9))
    yield Case("csv", lambda s: tf.io.decode_csv(s, [[0], [0.0], [""]]), (text,), lines)
    yield Case("csv", lambda s: tf.stack(tf.io.decode_csv(s, [[0.0], [0.0], [""]])[:2]), (text,), lines)
    yield Case("parse", lambda s: tf.io.parse_single_example(s, _FEATURES), (text,), tuple(_examples()))
    yield Case("parse", lambda s: tf.io.parse_single_example(s, _FEATURES)["v"][::-1], (text,), tuple(_examples()))
    yield Case("reduce_join", lambda s: tf.strings.reduce_join(s, -1), (texts,))
    for dtype in (tf.int32, tf.float32, tf.bool):
        yield Case("as_string", tf.strings.as_string, (spec((4,), dtype),))
    yield Case("as_string", lambda x: tf.strings.as_string(x, precision=2), (spec(()),))
    yield Case("decode_raw", lambda s: tf.reshape(tf.io.decode_raw(s, tf.uint8, fixed_length=4), [4]), (text,))
    yield Case("decode_csv", lambda s: tf.io.decode_csv(tf.strings.join(["1,2,", s]), [[0.0], [0], [""]]), (text,))


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


def _linear() -> Iterator[Case]:
    weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    yield Case("matmul", lambda x: tf.matmul(x, weights), (spec((4, 4)),))
    yield Case("matmul", lambda x: tf.matmul(x, x), (spec((4, 4)),))
    yield Case("matmul", lambda x: tf.matmul(x, x, transpose_b=True), (spec((7, 3)),))
    yield Case("matmul", lambda x: tf.matmul(x[None], weights)[0], (spec((4,)),))
    yield Case("matvec", lambda x: tf.linalg.matvec(weights, x, transpose_a=True), (spec((4,)),))
    yield Case("tensordot", lambda x: tf.tensordot(x, weights, 1), (spec((4, 4)),))
    yield Case("einsum", lambda x: tf.einsum("ij,jk->ik", x, weights), (spec((4, 4)),))
    yield Case("bias", lambda x: tf.nn.bias_add(x, [1.0, 2.0, 3.0]), (spec((7, 3)),))
    yield Case("fft", lambda x: tf.abs(tf.signal.rfft(x)), (spec((8,)),))
    yield Case("stft", lambda x: tf.abs(tf.signal.stft(x, 8, 4)), (spec((33,)),))
    yield Case("trace", tf.linalg.trace, (spec((4, 4)),))
    yield Case("matmul", lambda x: tf.matmul(x, x), (spec((2, 3, 3)),))
    kernel = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 2, 3, 2)
    yield Case("conv2d", lambda x: tf.nn.conv2d(x[None], kernel, 1, "SAME")[0], (spec((5, 4, 3)),))
    yield Case("traced", tf.function(lambda x: x[..., 0] * 2.0 - x[..., 1]), (spec((4, 4)),))


def _named(name: str) -> Callable[..., Any]:
    function: Any = tf
    for part in name.split("."):
        function = getattr(function, part)
    return function  # type: ignore[no-any-return]


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
