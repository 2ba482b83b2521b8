"""Draws elements from a dataset and hashes them, and counts distinct ones."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private


class IncomparableElement(Exception):
    """An element contains something that cannot be compared."""


@dataclass(frozen=True)
class DrawnElements:
    """The elements that a dataset yielded, in order, as hashes of their components; exceptions count as elements."""

    hashes: tuple[tuple[str, ...], ...]
    complete: bool = False  # the dataset ended, or raised so often in a row that no further element is expected
    errors: tuple[str, ...] = ()  # type names of the exceptions, in order
    values: tuple[Any, ...] = field(default=(), compare=False)  # the elements themselves, if they were kept

    @property
    def comparable(self) -> int:
        """How many elements of another run can be compared with these: one more than there are, if these are all.

        One more reveals that the other run adds elements.
        """
        return len(self.hashes) + self.complete

    def limited(self, count: int) -> DrawnElements:
        """Returns the first `count` elements."""
        if len(self.hashes) <= count:
            return self
        hashes = self.hashes[:count]
        raised = sum(map(is_error, hashes))
        return DrawnElements(hashes, errors=self.errors[:raised], values=self.values[:count])

    @property
    def digests(self) -> list[str]:
        """One hash per element."""
        return [hashlib.sha256("/".join(parts).encode()).hexdigest()[:24] for parts in self.hashes]


def is_error(hashes: tuple[str, ...]) -> bool:
    """Whether these hashes represent an exception that was raised in place of an element."""
    return len(hashes) == 1 and hashes[0].startswith("raises ")


def draw_elements(
    dataset: Any,
    *,
    count: int,
    deadline: float,
    max_kept_bytes: float = 0.0,
    on_element: Callable[[Any], None] | None = None,
    normalize_zeros: bool = False,
) -> DrawnElements:
    """Draws up to `count` elements until `deadline`, at least one if there is one, and returns them.

    An exception takes the place of an element, and drawing continues after it: a consumer may catch it, and then it
    matters which elements are lost.

    Args:
        count: number of elements, at most.
        deadline: end of drawing, in `time.monotonic` seconds.
        max_kept_bytes: also keep the elements themselves, and stop once they exceed this many bytes; 0 keeps none.
        on_element: called with each element.
        normalize_zeros: treat -0.0 and denormals as 0.0.

    Raises:
        IncomparableElement: an element contains something that cannot be compared.
    """
    hashes: list[tuple[str, ...]] = []
    values: list[Any] = []
    errors: list[str] = []
    kept, in_a_row, complete = 0.0, 0, False
    iterator = iter(dataset)
    try:
        while len(hashes) < count and (not hashes or time.monotonic() < deadline):
            try:
                element = next(iterator, _END)
            except Exception as error:  # whatever the user's functions raise; both pipelines must raise the same
                errors.append(type(error).__name__)
                hashes.append((f"raises {errors[-1]}",))
                in_a_row += 1
                if max_kept_bytes:
                    values.append(None)
                if in_a_row < _MAX_CONSECUTIVE_ERRORS:
                    continue
                element = _END
            if element is _END:
                complete = True
                break
            in_a_row = 0
            hashes.append(component_hashes(element, normalize_zeros=normalize_zeros))
            if on_element is not None:
                on_element(element)
            if max_kept_bytes:
                values.append(element)
                kept += element_bytes(element)
                if kept > max_kept_bytes:
                    break
    finally:
        del iterator
    return DrawnElements(tuple(hashes), complete, tuple(errors), tuple(values))


@contextmanager
def seeded_python(seed: int) -> Iterator[None]:
    """Context manager: while open, `random` and `np.random` draw from this seed on; both then go on as before."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


_MAX_CONSECUTIVE_ERRORS = 16  # in a row: some readers raise the same error forever without advancing


_END = object()


def component_hashes(element: Any, *, normalize_zeros: bool = False) -> tuple[str, ...]:
    """Returns one hash per component of an element, of its dtype, shape and bytes; all NaNs count as equal.

    Raises:
        IncomparableElement: a component is a variant.
    """
    return tuple(_hash(component, normalize_zeros=normalize_zeros) for component in _components(element))


def element_bytes(element: Any) -> int:
    """Returns the approximate size of an element in memory, in bytes."""
    return sum(_bytes(component) for component in _components(element))


def row_hashes(element: Any) -> list[str]:
    """Returns one hash per row of a batch, along its first axis.

    A component without axes, as the number that `enumerate` puts beside a batch, belongs to no row. Where a function
    made something else of a batch, components without a common first axis, it is one row.
    """
    parts = tf.nest.flatten(element)
    components = [part for part in parts if not (isinstance(part, tf.Tensor) and part.shape.rank == 0)]
    if all(isinstance(part, tf.Tensor) and part.dtype != tf.string for part in components):
        arrays = [part.numpy() for part in components]
        sizes = {len(array) for array in arrays}
        if len(sizes) != 1:
            return ["/".join(component_hashes(element))]
        return [
            "/".join(_digest("", array.shape[1:], array[row].tobytes()) for array in arrays) for row in range(*sizes)
        ]
    batch = tf.data.Dataset.from_tensors(tuple(components)).unbatch()
    return ["/".join(component_hashes(row)) for row in batch]


def _components(element: Any) -> list[Any]:
    found: list[Any] = []
    for part in tf.nest.flatten(element):
        if isinstance(part, tensorflow_private.DatasetV2 | tf.experimental.Optional):
            found.append(part)
        elif part is not None:
            found += tf.nest.flatten(part, expand_composites=True)
    return found


def _bytes(component: Any) -> int:
    if isinstance(component, tensorflow_private.DatasetV2 | tf.experimental.Optional) or component.dtype == tf.variant:
        return 1024
    array = component.numpy()
    if isinstance(array, bytes):
        return len(array)
    return sum(map(len, array.flat)) if array.dtype == object else int(array.nbytes)


def _hash(component: Any, *, normalize_zeros: bool = False) -> str:
    if isinstance(component, tensorflow_private.DatasetV2):
        inner = [part for item in component for part in component_hashes(item)]
        return _digest("dataset", (), "/".join(inner).encode())
    if isinstance(component, tf.experimental.Optional):
        parts = component_hashes(component.get_value()) if bool(component.has_value()) else ("none",)
        return _digest("optional", (), "/".join(parts).encode())
    if component.dtype == tf.variant:
        raise IncomparableElement("an element holds a variant, whose content cannot be read")
    # A scalar text is made no text of numpy, which ends before zero bytes.
    array = np.asarray(component.numpy(), object if component.dtype == tf.string else None)
    if component.dtype == tf.string:
        texts = [bytes(text) for text in array.reshape(-1).tolist()]
        content = b"".join(len(text).to_bytes(8, "big") + text for text in texts)
    else:
        if component.dtype.is_floating or component.dtype.is_complex:
            if component.dtype.is_complex:  # its real and imaginary parts: one may be NaN, and the other a number
                array = np.stack([array.real, array.imag])
            nan = array != array
            if nan.any():
                array = np.where(nan, np.asarray(np.nan, array.dtype), array)
            if normalize_zeros:
                array = np.where(np.abs(array) < _SMALLEST_NORMAL[component.dtype.name], array.dtype.type(0), array)
        content = array.tobytes()
    return _digest(component.dtype.name, array.shape, content)


_SMALLEST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022,
                 "complex64": 2.0**-126, "complex128": 2.0**-1022}  # fmt: skip
"""The smallest positive number of each dtype that is not denormal."""


def _digest(kind: str, shape: tuple[int, ...], content: bytes) -> str:
    return hashlib.blake2b(f"{kind}{shape}".encode() + content, digest_size=12).hexdigest()


EPOCHS = 3  # whole epochs compared, by judgement: one shows no change between epochs, more take longer

FEW_OUTCOMES = {
    "within batches": 0.2,  # distinct rows within each batch, summed over the batches
    "over three epochs": 0.2,  # distinct rows over all epochs
    "changed from epoch to epoch": 0.5,  # rows that differ from the row at the same position one epoch earlier
}
"""Relative difference of counts that is attributed to chance, if draws have few outcomes (a flip, a small crop).
A draw shared by a batch at least halves the first count; a frozen draw makes the last one zero."""


class RowCounter:
    """Counts the distinct rows in one run over several whole epochs; keeps only hashes."""

    def __init__(self, *, batched: bool) -> None:
        self._batched = batched
        self.rows: list[str] = []
        self.within_batches = 0

    def __call__(self, element: Any) -> None:
        rows = row_hashes(element) if self._batched else ["/".join(component_hashes(element))]
        self.rows += rows
        self.within_batches += len(set(rows))

    def counts(self) -> dict[str, int]:
        """Returns the counts of a run over `EPOCHS` whole epochs, by the keys of `FEW_OUTCOMES`."""
        epoch = len(self.rows) // EPOCHS
        changed = sum(one != other for one, other in zip(self.rows, self.rows[epoch:], strict=False))
        return dict(zip(FEW_OUTCOMES, (self.within_batches, len(set(self.rows)), changed), strict=True))
