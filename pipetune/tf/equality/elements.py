"""Draws elements from a dataset and hashes them: the hashes are equal exactly when the elements are."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf import private


class Unreadable(Exception):
    """An element contains something that cannot be compared."""


@dataclass(frozen=True)
class Drawn:
    """The elements that a dataset yielded, in order, as hashes of their components, with exceptions in their places."""

    hashes: tuple[tuple[str, ...], ...]
    complete: bool = False  # the dataset ended, or raised so often in a row that no further element is expected
    errors: tuple[str, ...] = ()  # type names of the exceptions, in order
    values: tuple[Any, ...] = field(default=(), compare=False)  # the elements themselves, where they were kept

    @property
    def digests(self) -> list[str]:
        """One hash per element."""
        return [hashlib.sha256("/".join(parts).encode()).hexdigest()[:24] for parts in self.hashes]


def draw(
    dataset: Any,
    *,
    count: int,
    deadline: float,
    keep_bytes: float = 0.0,
    observe: Callable[[Any], None] | None = None,
    zeros_alike: bool = False,
) -> Drawn:
    """Draws up to `count` elements until `deadline` (in `time.monotonic` seconds); at least one if there is one.

    An exception takes the place of an element, and drawing continues after it: a consumer may catch it, and then it
    matters which elements are lost.

    Args:
        keep_bytes: also keep the elements themselves, and stop once they exceed this many bytes; 0 keeps none.
        observe: called with each element.
        zeros_alike: treat -0.0 and denormals as 0.0.

    Raises:
        Unreadable: an element contains something that cannot be compared.
    """
    hashes: list[tuple[str, ...]] = []
    values: list[Any] = []
    errors: list[str] = []
    kept, in_a_row = 0.0, 0
    iterator = iter(dataset)
    try:
        while len(hashes) < count and (not hashes or time.monotonic() < deadline):
            try:
                element = next(iterator, _END)
            except Exception as error:  # whatever the user's functions raise; both pipelines must raise the same
                errors.append(type(error).__name__)
                hashes.append((f"raises {errors[-1]}",))
                in_a_row += 1
                if keep_bytes:
                    values.append(None)
                if in_a_row < _MOST_RAISED:
                    continue
                element = _END
            if element is _END:
                return Drawn(tuple(hashes), complete=True, errors=tuple(errors), values=tuple(values))
            in_a_row = 0
            hashes.append(component_hashes(element, zeros_alike=zeros_alike))
            if observe is not None:
                observe(element)
            if keep_bytes:
                values.append(element)
                kept += element_bytes(element)
                if kept > keep_bytes:
                    break
    finally:
        del iterator
    return Drawn(tuple(hashes), errors=tuple(errors), values=tuple(values))


_MOST_RAISED = 16  # in a row: some readers raise the same error forever without advancing


_END = object()


def component_hashes(element: Any, *, zeros_alike: bool = False) -> tuple[str, ...]:
    """One hash per component of an element, of its dtype, shape and bytes; all NaNs count as equal."""
    return tuple(_hash(component, zeros_alike=zeros_alike) for component in _components(element))


def element_bytes(element: Any) -> int:
    """Approximate size of an element in memory, in bytes."""
    return sum(_bytes(component) for component in _components(element))


def rows(element: Any) -> list[str]:
    """One hash per row of a batch, along its first axis."""
    components = tf.nest.flatten(element)
    if all(isinstance(part, tf.Tensor) and part.dtype != tf.string for part in components):
        arrays = [part.numpy() for part in components]
        return [
            "/".join(_digest("", array.shape[1:], array[row].tobytes()) for array in arrays)
            for row in range(len(arrays[0]))
        ]
    batch = tf.data.Dataset.from_tensors(element).unbatch()
    return ["/".join(component_hashes(row)) for row in batch]


def _components(element: Any) -> list[Any]:
    found: list[Any] = []
    for part in tf.nest.flatten(element):
        if isinstance(part, private.DatasetV2 | tf.experimental.Optional):
            found.append(part)
        elif part is not None:
            found += tf.nest.flatten(part, expand_composites=True)
    return found


def _bytes(component: Any) -> int:
    if isinstance(component, private.DatasetV2 | tf.experimental.Optional) or component.dtype == tf.variant:
        return 1024
    array = component.numpy()
    if isinstance(array, bytes):
        return len(array)
    return sum(map(len, array.flat)) if array.dtype == object else int(array.nbytes)


def _hash(component: Any, *, zeros_alike: bool = False) -> str:
    if isinstance(component, private.DatasetV2):
        inner = [part for item in component for part in component_hashes(item)]
        return _digest("dataset", (), "/".join(inner).encode())
    if isinstance(component, tf.experimental.Optional):
        parts = component_hashes(component.get_value()) if bool(component.has_value()) else ("none",)
        return _digest("optional", (), "/".join(parts).encode())
    if component.dtype == tf.variant:
        raise Unreadable("an element holds a variant, whose content cannot be read")
    array = np.asarray(component.numpy())
    if component.dtype == tf.string:
        texts = [bytes(text) for text in array.reshape(-1).tolist()]
        content = b"".join(len(text).to_bytes(8, "big") + text for text in texts)
    else:
        if component.dtype.is_floating or component.dtype.is_complex:
            nan = array != array
            if nan.any():
                array = np.where(nan, np.asarray(np.nan, array.dtype), array)
            if zeros_alike:
                array = np.where(np.abs(array) < _LEAST_NORMAL[component.dtype.name], array.dtype.type(0), array)
        content = array.tobytes()
    return _digest(component.dtype.name, array.shape, content)


_LEAST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022,
                 "complex64": 2.0**-126, "complex128": 2.0**-1022}  # fmt: skip
"""The smallest positive number of each dtype that is not denormal."""


def _digest(kind: str, shape: tuple[int, ...], content: bytes) -> str:
    return hashlib.blake2b(f"{kind}{shape}".encode() + content, digest_size=12).hexdigest()
