"""The elements of a dataset, obtained by draining it, and how the bytes of two runs differ. Independent of pipetune.

A run is the events of some epochs: elements as arrays, and errors by their type. Iteration continues after an error, as
with `ignore_errors` downstream or a loop with `try`; for a plain loop an epoch ends with its first error.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

MOST_ERRORS = 40
"""Errors in one epoch after which it is ended: some datasets never end once they raise."""

TOLERANCE = 1e-5
"""The tolerance of `APPROXIMATE`: relative, and absolute below one."""


class Kind(enum.IntEnum):
    """Kinds of differences between two runs, the worst last."""

    NAN = 1  # other bits of NaN, which have no meaning
    ZERO = 2  # zeros of another sign
    DENORMAL = 3  # numbers below the smallest normal one
    ROUNDING = 4  # floats within the tolerance
    OVERFLOW = 5  # both not finite, or one of them and the other near the limits of the type
    TOLERANCE = 6  # floats beyond the tolerance, which another order of the same sums could explain
    VALUES = 7  # other values
    COUNT = 8  # fewer or more elements
    SHAPE = 9  # other shapes, types or structure
    ERROR = 10  # a new, missing or different error
    LATER = 11  # a difference only after an error


class Unbuilt(Exception):
    """TensorFlow cannot run what was composed, or it gives no element."""


@dataclass(frozen=True)
class Difference:
    kind: Kind
    detail: str


@dataclass(frozen=True)
class Raised:
    type: str


Element = tuple[np.ndarray, ...]
Event = Element | Raised


@dataclass(frozen=True)
class Run:
    spec: str
    epochs: tuple[tuple[Event, ...], ...]

    @property
    def elements(self) -> int:
        return sum(map(len, self.epochs)) - self.errors

    @property
    def errors(self) -> int:
        return sum(isinstance(event, Raised) for event in itertools.chain(*self.epochs))

    def first_epochs(self, count: int) -> Run:
        return Run(self.spec, self.epochs[:count])

    @property
    def sound_epochs(self) -> int:
        """Epochs up to and including the first one with an error.

        Iteration after an error fills a cache of the script as far as the runtime has read ahead by then, so later
        epochs depend on the runtime, unless the plan itself adds a cache.
        """
        raises = [any(isinstance(event, Raised) for event in epoch) for epoch in self.epochs]
        return raises.index(True) + 1 if True in raises else len(self.epochs)

    def until_error(self) -> Run:
        return Run(self.spec, tuple(map(_until_error, self.epochs)))


def _until_error(epoch: tuple[Event, ...]) -> tuple[Event, ...]:
    raised = [place for place, event in enumerate(epoch) if isinstance(event, Raised)]
    return epoch[: raised[0] + 1] if raised else epoch


def drain(dataset: Any, *, epochs: int = 1, most: int = 5000) -> Run:
    """All elements of some epochs, at most `most` of each; errors of any kind are events."""
    found = []
    for _ in range(epochs):
        events: list[Event] = []
        errors = 0
        try:
            iterator = iter(dataset)
        except Exception as error:
            found.append((Raised(type(error).__name__),))
            continue
        while len(events) < most and errors < MOST_ERRORS:
            try:
                element = next(iterator)
            except StopIteration:
                break
            except Exception as error:
                events.append(Raised(type(error).__name__))
                errors += 1
                continue
            events.append(arrays(element))
        del iterator
        found.append(tuple(events))
    return Run(repr(dataset.element_spec), tuple(found))


def arrays(element: Any) -> Element:
    """The tensors of an element: parts of composites, and the elements of inner datasets, one after another."""
    found: list[np.ndarray] = []
    for part in tf.nest.flatten(element):
        if isinstance(part, tf.data.Dataset):
            inner = [arrays(item) for item in part]
            found += [np.asarray(len(inner)), *itertools.chain(*inner)]
        elif isinstance(part, tf.experimental.Optional):
            has = bool(part.has_value())
            found.append(np.asarray(has))
            found += arrays(part.get_value()) if has else ()
        elif part is not None:
            tensors = tf.nest.flatten(part, expand_composites=True)
            found += [np.asarray("variant" if one.dtype == tf.variant else one.numpy()) for one in tensors]
    return tuple(found)


def content(array: np.ndarray) -> bytes:
    """The bytes of an array; strings are preceded by their length."""
    if array.dtype == object:
        return b"".join(len(text).to_bytes(8, "big") + text for text in array.reshape(-1).tolist())
    return array.tobytes()


def key_of(element: Element) -> tuple[object, ...]:
    """A key that is equal exactly where the bytes are."""
    return tuple((array.dtype.str, array.shape, content(array)) for array in element)


def rows_of(element: Element) -> list[tuple[object, ...]]:
    """The rows of a batch, each as a key; the element itself where it has no common first axis."""
    sizes = {array.shape[0] if array.ndim else -1 for array in element}
    if len(sizes) != 1 or -1 in sizes:
        return [key_of(element)]
    return [key_of(tuple(np.asarray(array[row]) for array in element)) for row in range(sizes.pop())]


# -- denormals


def flush(array: np.ndarray) -> np.ndarray:
    """The array with zeros in place of denormals."""
    if not _is_float(array):
        return array
    smallest = np.finfo(array.dtype).smallest_normal if array.dtype.kind in "fc" else 2.0**-126  # bfloat16
    return np.where(np.abs(array) < smallest, array.dtype.type(0), array)


def either(original: Run, flushed: Run, candidate: Run) -> Run:
    """The original's numbers, but the flushed run's where the candidate has those."""
    epochs = []
    for one, other, wanted in zip(original.epochs, flushed.epochs, candidate.epochs, strict=True):
        known = tuple(map(_either, one, other, wanted))
        epochs.append(known + one[len(known) :])
    return Run(original.spec, tuple(epochs))


def _either(one: Event, other: Event, wanted: Event) -> Event:
    if isinstance(one, Raised) or isinstance(other, Raised) or isinstance(wanted, Raised):
        return one
    if not len(one) == len(other) == len(wanted):
        return one
    return tuple(_number_by_number(*arrays) for arrays in zip(one, other, wanted, strict=True))


def _number_by_number(one: np.ndarray, other: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not (_is_float(one) and one.shape == other.shape == wanted.shape and one.dtype == other.dtype == wanted.dtype):
        return one
    with np.errstate(all="ignore"):
        return np.where(np.isclose(other, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True), other, one)


# -- how two runs differ


def in_order(original: Run, candidate: Run) -> Difference | None:
    """The worst difference of two runs that should be equal, element by element, epoch by epoch."""
    if original.spec != candidate.spec:
        return Difference(Kind.SHAPE, f"{original.spec} became {candidate.spec}")
    worst = _epochs_differ(original.until_error(), candidate.until_error())
    if worst is None or worst.kind <= Kind.ROUNDING:
        behind = _epochs_differ(original, candidate)
        if behind is not None and behind.kind > Kind.ROUNDING:
            return Difference(Kind.LATER, f"behind an error, {behind.detail}")
    return worst


def _epochs_differ(original: Run, candidate: Run) -> Difference | None:
    pairs = enumerate(zip(original.epochs, candidate.epochs, strict=True), 1)
    return _worst((f"epoch {number}, ", _events_differ(*pair)) for number, pair in pairs)


def _worst(found: Iterable[tuple[str, Difference | None]]) -> Difference | None:
    """The first of the worst differences, with its place."""
    placed = [Difference(one.kind, place + one.detail) for place, one in found if one is not None]
    return max(placed, key=lambda one: one.kind, default=None)


def _events_differ(one: Sequence[Event], other: Sequence[Event]) -> Difference | None:
    pairs = enumerate(zip(one, other, strict=False))
    worst = _worst((f"element {place}: ", _differ(*pair)) for place, pair in pairs)
    if len(one) == len(other) or (worst is not None and worst.kind >= Kind.ERROR):
        return worst
    longer = one if len(one) > len(other) else other
    rest = longer[min(len(one), len(other)) :]
    kind = Kind.ERROR if any(isinstance(event, Raised) for event in rest) else Kind.COUNT
    return Difference(kind, f"{_counted(one)} became {_counted(other)}")


def _counted(events: Sequence[Event]) -> str:
    errors = Counter(event.type for event in events if isinstance(event, Raised))
    words = f"{len(events) - errors.total()} elements"
    return words + "".join(f", {count} {name}" for name, count in errors.items())


def _differ(a: Event, b: Event) -> Difference | None:
    if isinstance(a, Raised) or isinstance(b, Raised):
        if a == b:
            return None
        return Difference(Kind.ERROR, f"{_named(a)} became {_named(b)}")
    if len(a) != len(b):
        return Difference(Kind.SHAPE, f"{len(a)} tensors became {len(b)}")
    return _worst(("", _arrays_differ(*pair)) for pair in zip(a, b, strict=True))


def _named(event: Event) -> str:
    return event.type if isinstance(event, Raised) else "an element"


def _arrays_differ(a: np.ndarray, b: np.ndarray) -> Difference | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return Difference(Kind.SHAPE, f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}")
    if content(a) == content(b):
        return None
    if not _is_float(a):
        return Difference(_of_whole_numbers(a, b), _shown(a, b))
    return _floats_differ(a.reshape(-1), b.reshape(-1))


def _of_whole_numbers(a: np.ndarray, b: np.ndarray) -> Kind:
    if a.dtype.kind not in "iu":
        return Kind.VALUES
    one, other = a.astype(np.float64), b.astype(np.float64)
    near = np.abs(one - other) <= TOLERANCE * np.maximum(np.abs(one), 1.0)
    return Kind.ROUNDING if near.all() else Kind.VALUES


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"


def _floats_differ(a: np.ndarray, b: np.ndarray) -> Difference:
    bits = np.dtype(f"V{a.dtype.itemsize}")
    apart = np.frombuffer(a.tobytes(), bits) != np.frombuffer(b.tobytes(), bits)
    smallest, epsilon, most = 1e-38, 2.0**-8, 3e38  # of bfloat16
    if a.dtype.kind in "fc":
        info = np.finfo(a.dtype)
        smallest, epsilon, most = float(info.smallest_normal), float(info.eps), float(info.max)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    one, other = a[apart].astype(wide), b[apart].astype(wide)
    with np.errstate(all="ignore"):
        nan = np.isnan(one) & np.isnan(other)
        zero = (one == 0) & (other == 0)
        tiny = (np.abs(one) < smallest) & (np.abs(other) < smallest)
        distance = np.abs(one - other) / np.maximum(np.abs(one), 1.0)
        finite = np.isfinite(one) & np.isfinite(other)
        near = finite & (distance <= TOLERANCE)
        limit = 1e-6 * most
        overflow = ~finite & ((np.abs(one) > limit) | np.isnan(one)) & ((np.abs(other) > limit) | np.isnan(other))
        # Another order of adding numbers as large as the greatest one: some dozens of units in its last place.
        greatest = float(np.max(np.abs(a[np.isfinite(a)].astype(wide)), initial=1.0))
        summed = finite & (np.abs(one - other) <= 256 * epsilon * greatest)
    found = [nan, zero, tiny, near, overflow, summed]
    known = [Kind.NAN, Kind.ZERO, Kind.DENORMAL, Kind.ROUNDING, Kind.OVERFLOW, Kind.TOLERANCE]
    kinds = np.select(found, known, default=Kind.VALUES)
    place = int(np.argmax(kinds))
    detail = f"{one[place]!r} became {other[place]!r}, in {int(apart.sum())} of {a.size} numbers"
    return Difference(Kind(int(kinds[place])), detail)


def _shown(a: np.ndarray, b: np.ndarray) -> str:
    where = np.nonzero(a.reshape(-1) != b.reshape(-1))[0]
    if not len(where):
        return "other values"
    place = int(where[0])
    return f"{a.flat[place]!r} became {b.flat[place]!r}, in {len(where)} of {a.size} values"


def in_any_order(original: Run, candidate: Run, *, spare: int) -> Difference | None:
    """The difference of two runs that should have the same rows of batches, in any order and epoch; `spare` rows may be
    exchanged by dropped last batches."""
    if original.spec != candidate.spec:
        return Difference(Kind.SHAPE, f"{original.spec} became {candidate.spec}")
    one, other = _rows(original), _rows(candidate)
    missing, added = (one - other).total(), (other - one).total()
    if missing <= spare and added <= spare and abs(missing - added) <= spare:
        return None
    kind = Kind.COUNT if missing != added else Kind.VALUES
    return Difference(kind, f"of {one.total()} rows {missing} are missing, {added} are new")


def _rows(run: Run) -> Counter[tuple[object, ...]]:
    keys: Counter[tuple[object, ...]] = Counter()
    for event in itertools.chain(*run.epochs):
        keys.update([("raised", event.type)] if isinstance(event, Raised) else rows_of(event))
    return keys
