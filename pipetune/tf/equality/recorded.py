"""Records the elements that two pipelines share and serves them to both, so that the source is read only once."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.equality import elements

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


@dataclass(frozen=True)
class Recording:
    """Recorded elements of a dataset: of one pass, or of several passes if these differ."""

    spec: Any
    passes: tuple[tuple[Any, ...], ...]
    complete: bool  # it holds every element of the dataset
    places: str  # which part of the data it holds, for the report
    error: str = ""  # type name of the exception that ended the recording
    positions: tuple[int, ...] = ()  # index in the dataset of each element of a pass
    rows: Any = None  # for in-memory arrays: the rows of one pass, stacked; `passes` is then empty
    invented: bool = False  # the elements are generated, not the user's

    def __len__(self) -> int:
        return len(self.positions) if self.rows is not None else len(self.passes[0])


def record_rows(arrays: Any, spec: Any, *, count: int) -> Recording:
    """Like `record`, for rows of in-memory arrays, which need not be drawn one by one.

    Args:
        arrays: tensors with a common first axis, in the structure of an element.
        spec: spec of an element.
    """
    total = int(tf.nest.flatten(arrays)[0].shape[0])
    third = max(1, count // 3)
    if total <= 2 * count:
        positions = list(range(total))
    else:
        starts = (0, max(third, total // 2), max(third, total - third))
        positions = sorted({place for start in starts for place in range(start, start + third)})
    rows = tf.nest.map_structure(lambda array: tf.gather(array, tf.constant(positions, tf.int64)), arrays)
    places = "all" if len(positions) == total else "start, middle and end"
    return Recording(spec, (), len(positions) == total, places, positions=tuple(positions), rows=rows)


def record(dataset: Any, *, count: int, deadline: float, max_bytes: float, passes: int = 1) -> Recording:
    """Records up to `count` elements from the start, the middle and the end of a dataset.

    An exception of the dataset ends the recording and is named in it.

    Args:
        deadline: approximate end of drawing, in `time.monotonic` seconds.
        max_bytes: limit for the size of the recording.
        passes: how often the dataset is iterated; above 1 if it may yield different elements each time.
    """
    now = time.monotonic()
    first_deadline = now + (deadline - now) / passes
    chosen: dict[int, Any] = {}
    complete, error = False, ""
    try:
        complete = _first_pass(dataset, chosen, count, first_deadline, max_bytes / passes)
    except Exception as raised:  # from a reader or a user function; the elements before it are valid
        error = type(raised).__name__
    positions = sorted(chosen)
    found = [tuple(chosen[position] for position in positions)]
    seconds = time.monotonic() - now
    for _ in range(passes - 1):
        items, ended = _again(dataset, positions, time.monotonic() + 2 * seconds)
        found.append(tuple(items))
        if not ended:  # out of time: all passes are cut to this length, so that none looks shorter than it is
            positions = positions[: len(items)]
            found = [one[: len(items)] for one in found]
            complete = False
    if all(_same(found[0], other) for other in found[1:]):
        found = found[:1]
    spread = bool(positions) and positions[-1] >= len(positions)
    places = "all" if complete else "start, middle and end" if spread else "start"
    return Recording(dataset.element_spec, tuple(found), complete, places, error, tuple(positions))


class Turn:
    """Counts how often each served recording was iterated, as each iteration serves the next recorded pass."""

    def __init__(self) -> None:
        self._numbers: collections.Counter[int] = collections.Counter()

    def reset(self) -> None:
        """Makes the next iteration of every recording the first one again."""
        self._numbers.clear()

    def next(self, served: int) -> int:
        """The index of this iteration of one served recording, from 0, identified by `id`."""
        self._numbers[served] += 1
        return self._numbers[served] - 1


def serve(
    recording: Recording,
    turn: Turn,
    *,
    count: int | None = None,
    spread: int = 0,
    copies_of_first: int = 0,
) -> Any:
    """Builds a dataset of the recorded elements, with the recorded spec.

    Args:
        turn: counts the iterations; reset it before each run.
        count: serve only the first `count` elements.
        spread: if not 0, serve only this many elements, evenly spaced from start to end.
        copies_of_first: if not 0, serve the first element this many times instead.
    """
    if recording.rows is not None:
        chosen = _chosen(list(range(len(recording)))[:count], spread=spread, copies_of_first=copies_of_first)
        numbers = tf.constant(chosen, tf.int64)
        return tf.data.Dataset.from_tensor_slices(
            tf.nest.map_structure(lambda array: tf.gather(array, numbers), recording.rows)
        )
    flat = tuple(
        _chosen(_flat(one[:count]), spread=spread, copies_of_first=copies_of_first) for one in recording.passes
    )

    def generate() -> Iterator[Any]:
        return iter(flat[min(turn.next(id(flat)), len(flat) - 1)])

    parts = _parts(recording.spec)
    signature = tuple(_served_spec(part) for part in parts)
    served = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if not parts:
        raise ValueError("elements without components")
    structure = recording.spec

    def encode(*components: Any) -> tuple[Any, ...]:
        return tuple(
            part._to_tensor_list(component)[0] if _is_flat_ragged(part) else component
            for part, component in zip(parts, components, strict=True)
        )

    if any(map(_is_flat_ragged, parts)):
        served = served.map(tf.autograph.experimental.do_not_convert(encode))
    return private.restructured(served, structure)


def positions_served(
    recording: Recording, *, count: int | None = None, spread: int = 0, copies_of_first: int = 0
) -> list[int]:
    """Indices in the recorded dataset of the elements that `serve` yields for the same arguments."""
    return _chosen(list(recording.positions[:count]), spread=spread, copies_of_first=copies_of_first)


def _chosen(items: list[Any], *, spread: int, copies_of_first: int) -> list[Any]:
    chosen = _spread(items, spread) if spread else items
    return chosen[:1] * copies_of_first if copies_of_first else chosen


def _first_pass(dataset: Any, chosen: dict[int, Any], count: int, deadline: float, max_bytes: float) -> bool:
    """Adds elements to `chosen` by their index in the dataset; returns whether these are all elements."""
    total = int(dataset.cardinality())
    if total == tf.data.INFINITE_CARDINALITY or 0 <= total <= 2 * count:
        complete = _take(dataset, chosen, max(count, total), deadline, max_bytes)
    elif total >= 0:
        complete = _take(dataset, chosen, count // 3, deadline, max_bytes / 3)
        third = len(chosen)
        if not complete and _can_reach(dataset, total, deadline):
            for start in (max(third, total // 2), max(third, total - third)):
                _take(dataset.skip(start), chosen, third, deadline, max_bytes / 3, start=start)
    else:
        complete = _pass_through(dataset, chosen, count // 3, deadline, max_bytes / 3)
    return complete


def _can_reach(dataset: Any, total: int, deadline: float) -> bool:
    """Whether skipping to the middle and to the end of a dataset ends in time, extrapolated from shorter skips."""
    way = _SHORTEST_WAY
    while way < total:
        started = time.monotonic()
        for _ in dataset.skip(way).take(1):
            pass
        seconds = time.monotonic() - started
        if time.monotonic() + 1.5 * seconds * min(total / way, _LONGER) > deadline:
            return False
        way *= _LONGER
    return True


_SHORTEST_WAY = 16
_LONGER = 8  # factor from each tried skip to the next


def _take(
    dataset: Any, chosen: dict[int, Any], count: int, deadline: float, max_bytes: float, *, start: int = 0
) -> bool:
    """Adds up to `count` elements to `chosen`, at least one; returns whether that was the end of the dataset."""
    iterator = iter(dataset)
    used = 0.0
    try:
        for position in range(start, start + max(1, count)):
            if position > start and (time.monotonic() > deadline or used > max_bytes):
                return False
            element = next(iterator, _END)
            if element is _END:
                return True
            chosen[position] = element
            used += elements.element_bytes(element)
        return next(iterator, _END) is _END
    finally:
        del iterator


def _pass_through(
    dataset: Any, chosen: dict[int, Any], third: int, deadline: float, max_bytes: float
) -> bool:
    """Adds start, middle and end of a dataset of unknown size, as far as time allows; returns whether that is all."""
    third = max(1, third)
    blocks: list[tuple[int, list[Any]]] = []  # runs of elements; each starts at twice the index of the one before
    tail: collections.deque[tuple[int, Any]] = collections.deque(maxlen=third)
    iterator = iter(dataset)
    used, seen, ended = 0.0, 0, False
    try:
        while seen == 0 or time.monotonic() < deadline:
            element = next(iterator, _END)
            if element is _END:
                ended = True
                break
            if seen < third and (used <= max_bytes or not chosen):
                chosen[seen] = element
                used += elements.element_bytes(element)
            else:
                if not blocks:
                    third = len(chosen)
                    tail = collections.deque(maxlen=third)
                if not blocks or seen >= 2 * blocks[-1][0]:
                    blocks = [*blocks[-2:], (seen, [])]
                if len(blocks[-1][1]) < third:
                    blocks[-1][1].append(element)
                tail.append((seen, element))
            seen += 1
    finally:
        del iterator
    if blocks:
        start, block = min(blocks, key=lambda entry: abs(entry[0] - seen / 2))
        chosen.update((start + offset, element) for offset, element in enumerate(block))
        chosen.update(tail)
    return ended and len(chosen) == seen


_END = object()


def _again(dataset: Any, positions: Sequence[int], deadline: float) -> tuple[list[Any], bool]:
    """Reads the elements at these positions again; also whether the dataset rather than the time ended the pass."""
    found: list[Any] = []
    wanted = set(positions)
    last = positions[-1] if positions else -1
    iterator = iter(dataset)
    try:
        for position in range(last + 1):
            if found and time.monotonic() > deadline:
                return found, False
            element = next(iterator, _END)
            if element is _END:
                return found, True
            if position in wanted:
                found.append(element)
    except Exception:  # as in the first pass: the elements before it are valid
        return found, True
    finally:
        del iterator
    return found, True


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        elements.component_hashes(a) == elements.component_hashes(b) for a, b in zip(one, other, strict=True)
    )


def _parts(spec: Any) -> list[Any]:
    return [part for part in tf.nest.flatten(spec) if not isinstance(part, private.NoneTensorSpec)]


def _flat(items: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [tuple(part for part in tf.nest.flatten(item) if part is not None) for item in items]


def _spread(items: list[Any], count: int) -> list[Any]:
    if len(items) <= count:
        return items
    return [items[round(step * (len(items) - 1) / max(1, count - 1))] for step in range(count)]


def _is_flat_ragged(spec: Any) -> bool:
    """Whether the spec is of a row of a ragged batch: the spec is ragged, but the element is a plain tensor."""
    return isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank == 0


def _served_spec(spec: Any) -> Any:
    return tf.TensorSpec(spec.shape, spec.dtype) if _is_flat_ragged(spec) else spec
