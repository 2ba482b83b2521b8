"""Values of the user's program as Python expressions, if an expression represents them completely."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import string_literal
from pipetune.core.errors import CannotExpress

LONGEST = 2_000  # characters of one literal, at most
_MOST_NUMBERS = 64  # numbers of an array, at most

_PUBLIC = ("", "io", "image", "data", "data.experimental", "strings", "math", "audio", "sparse", "nn",
           "linalg", "signal", "random", "lookup", "ragged", "dtypes", "debugging")  # fmt: skip


@functools.cache
def _public_names() -> dict[int, tuple[str, Any]]:
    found: dict[int, tuple[str, Any]] = {}
    for path in reversed(_PUBLIC):
        module: Any = tf
        for part in path.split(".") if path else ():
            module = getattr(module, part, None)
        if module is None:
            continue
        prefix = f"tf.{path}." if path else "tf."
        for name in dir(module):
            value = None if name.startswith("_") else getattr(module, name, None)
            if value is not None and not isinstance(value, ModuleType | int | float | str | bool):
                found[id(value)] = (prefix + name, value)
    return found


def public_name(value: Any) -> str:
    """Returns the public name of an object of TensorFlow ("tf.io.read_file"); '' if it has none."""
    name, found = _public_names().get(id(value), ("", None))
    return name if found is value else ""


def literal(value: Any) -> str:
    """Returns `value` as an expression that uses no names except `tf` and `np`.

    Raises:
        CannotExpress: it is not a plain value, or the expression would be too long.
    """
    text = _write(value)
    if len(text) > LONGEST:
        raise CannotExpress(f"a {type(value).__name__} of {len(text)} characters is too long to write down")
    return text


def names_of_modules(text: str) -> Iterator[tuple[str, str]]:
    """Yields the modules that a literal uses, each as its name and the import statement."""
    if "tf." in text:
        yield "tf", "import tensorflow as tf"
    if "np." in text:
        yield "np", "import numpy as np"


def _write(value: Any) -> str:
    if isinstance(value, str):
        return string_literal(value)
    if value is None or isinstance(value, bool | int | bytes):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    name = public_name(value)
    if name:
        return name
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if isinstance(value, tf.TensorShape):
        return f"tf.TensorShape({value.as_list() if value.rank is not None else None})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _named_tuple(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_write, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return "[" + ", ".join(_write(item) for item in value) + "]"
    if isinstance(value, dict) and type(value) is dict:
        return "{" + ", ".join(f"{_write(key)}: {_write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return f"np.{value.dtype.name}({_write(value.item())})"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size <= _MOST_NUMBERS:
        return f"np.array({_write(value.tolist())}, dtype=np.{value.dtype.name})"
    if isinstance(value, tf.Tensor) and hasattr(value, "numpy") and value.dtype != tf.resource:
        return _tensor(value)
    raise CannotExpress(f"a {type(value).__name__} cannot be written down")


def _named_tuple(value: Any) -> str:
    name = public_name(type(value))
    if not name:
        raise CannotExpress(f"a {type(value).__name__} cannot be written down")
    fields = ", ".join(f"{field}={_write(getattr(value, field))}" for field in value._fields)
    return f"{name}({fields})"


def _tensor(value: Any) -> str:
    array = np.asarray(value.numpy())
    if array.size > _MOST_NUMBERS:
        raise CannotExpress(f"a tensor of {array.size} numbers is too long to write down")
    return f"tf.constant({_write(array.tolist())}, dtype=tf.{value.dtype.name})"
