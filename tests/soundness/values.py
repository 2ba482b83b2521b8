"""Hostile but legal data: the sampled rows are harmless, and one row beyond the sample is not."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
NUMBERS = (*FLOATS, *INTEGERS)

TEXTS = ("text", "number", "bytes8", "csv", "example")
"""Contents of string components: words, numbers as text, eight raw bytes, three columns, an Example."""

MANNERS = ("random", "alike", "rare", "extreme")
"""How rows differ: all random; one different from the others; a few with extremes; extremes everywhere."""


@dataclass(frozen=True)
class Component:
    """One tensor of an element: its type, its shape, and the contents of strings."""

    dtype: str
    shape: tuple[int, ...] = ()
    content: str = ""


def column(component: Component, *, rows: int, manner: str, odd: int, seed: int) -> np.ndarray:
    """The rows of one component, in one of the `MANNERS`; row `odd` is different where others are equal or harmless."""
    draw = np.random.default_rng(seed)
    if component.dtype == "string":
        return _texts(component, draw, rows=rows, manner=manner, odd=odd)
    shape = (rows, *component.shape)
    if manner == "alike":
        found = np.zeros(shape, component.dtype)
        choice = draw.random()
        if choice < 0.35:  # equal numbers everywhere hide an axis, like zeros
            found[:] = _some(component, draw, ())
        elif choice < 0.45:
            found[:] = _some(component, draw, component.shape)
        found[odd] = _some(component, draw, component.shape)
        if draw.random() < 0.5:
            found[odd] = _with_extremes(found[odd], component, draw, share=0.3)
        return found
    found = _some(component, draw, shape)
    if manner == "rare":
        found[odd] = _with_extremes(found[odd], component, draw, share=0.5)
    elif manner == "extreme":
        found = _with_extremes(found, component, draw, share=0.1)
    return found


def _some(component: Component, draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(component.dtype)
    if kind.kind == "b":
        return draw.random(shape) < 0.5
    if kind.kind == "f":
        scale = draw.choice([0.5, 1.0, 3.0, 200.0])
        values = draw.normal(size=shape) * scale
        return np.asarray(np.round(values, 3) if draw.random() < 0.3 else values).astype(kind)
    low = 0 if kind.kind == "u" or draw.random() < 0.5 else -9
    high = int(draw.choice([4, 12, 100]))
    return np.asarray(draw.integers(low, high, size=shape)).astype(kind)


def extremes(dtype: str) -> np.ndarray:
    """Rare values that functions may handle wrongly."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False])
    if kind.kind == "f":
        info = np.finfo(kind)
        listed = [0.0, -0.0, np.nan, np.inf, -np.inf, info.max, info.min, info.tiny, -info.tiny]
        listed += [info.smallest_subnormal, -info.smallest_subnormal]
        listed += [0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -1.0, 127.5, 255.5, 40000.0, 3e9]
        with np.errstate(over="ignore"):
            return np.array(listed).astype(kind)
    info = np.iinfo(kind)
    listed = [0, 1, info.max, info.min, info.max - 1, max(info.min, -1), 100, 7]
    return np.array(listed, dtype=kind)


_FLOATS = extremes("float32")


def _with_extremes(values: np.ndarray, component: Component, draw: np.random.Generator, *, share: float) -> np.ndarray:
    chosen = draw.random(values.shape) < share
    return np.where(chosen, draw.choice(extremes(component.dtype), size=values.shape), values).astype(component.dtype)


# -- strings

_WORDS = (b"red", b"green apple", b"a", b" left", b"right ", b"two words", b"x,y", b"UPPER", b"caf\xc3\xa9", b"0")
_ODD_WORDS = (b"", b" ", "日本語".encode(), b"a" * 200, b"\xff\xfe", b"\x00\x01", b"  many   blanks  ")
_ODD_NUMBERS = (b"nan", b"inf", b"-0", b"-0.0", b"1e-42", b"9e30", b" 7 ", b"007", b"1e3")


def _texts(component: Component, draw: np.random.Generator, *, rows: int, manner: str, odd: int) -> np.ndarray:
    count = rows * int(np.prod(component.shape))
    found = np.array([_text(component.content, draw, False) for _ in range(min(count, 64))], dtype=object)
    found = found[draw.integers(0, len(found), size=count)]
    if manner == "alike":
        found[:] = found[0]
    found = found.reshape((rows, *component.shape))
    if manner == "extreme":
        for row in range(0, rows, 7):
            found[row] = _filled(component, draw)
    elif manner != "random":
        found[odd] = _filled(component, draw)
    return found


def _filled(component: Component, draw: np.random.Generator) -> Any:
    texts = [_text(component.content, draw, True) for _ in range(int(np.prod(component.shape)))]
    return np.array(texts, dtype=object).reshape(component.shape)[()]


def _text(kind: str, draw: np.random.Generator, odd: bool) -> bytes:
    if kind == "number":
        if odd:
            return bytes(draw.choice(np.array(_ODD_NUMBERS, dtype=object)))
        return str(round(float(draw.normal() * 50), 2)).encode()
    if kind == "bytes8":
        return struct.pack("<2f", *draw.choice(_FLOATS, 2)) if odd else bytes(draw.integers(0, 99, 8, np.uint8))
    if kind == "csv":
        first = b"" if odd and draw.random() < 0.5 else str(int(draw.integers(-9, 99))).encode()
        last = b'"a, b"' if odd else bytes(draw.choice(np.array(_WORDS[:6], dtype=object)))
        return b",".join([first, str(round(float(draw.normal()), 3)).encode(), last])
    if kind == "example":
        return _example(draw, odd)
    words = _ODD_WORDS if odd else _WORDS
    return bytes(words[int(draw.integers(len(words)))])


def _example(draw: np.random.Generator, odd: bool) -> bytes:
    """Features `n` (one int), `v` (three floats), `t` (a text), `many` (any number of ints)."""
    features: dict[str, tf.train.Feature] = {
        "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(draw.integers(0, 9))])),
        "v": tf.train.Feature(float_list=tf.train.FloatList(value=draw.normal(size=3).astype(np.float32))),
        "t": tf.train.Feature(bytes_list=tf.train.BytesList(value=[_text("text", draw, odd)])),
    }
    many = draw.integers(0, 9, size=int(draw.integers(0, 5)) if not odd else 11)
    features["many"] = tf.train.Feature(int64_list=tf.train.Int64List(value=many))
    if odd:
        del features[str(draw.choice(np.array(list(features)), size=1)[0])]
    message = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(message.SerializeToString(deterministic=True))


def columns(components: Mapping[str, Component], *, seed: int, **given: Any) -> dict[str, np.ndarray]:
    """The rows of every component, by name; arguments as of `column`."""
    return {name: column(one, seed=seed + place, **given) for place, (name, one) in enumerate(components.items())}
