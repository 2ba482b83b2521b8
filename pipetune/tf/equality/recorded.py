"""Records the elements that two pipelines share and serves them to both, so that the source is drawn once."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.equality import elements

REPLAYS = True  # datasets made below this module are pipetune's, not the user's


@dataclass(frozen=True)
class Recording:
    """Elements of a dataset: those of one pass, or of several where passes differ."""

    spec: Any
    passes: tuple[tuple[Any, ...], ...]
    complete: bool  # every element of the dataset is in it
    places: str  # which part of the data it holds, for the report
    error: str = ""  # type of what the dataset raised, which ended the recording
    positions: tuple[int, ...] = ()  # of the elements of a pass, in the dataset
    rows: Any = None  # of arrays in memory: those of one pass, stacked; then `passes` holds nothing
    invented: bool = False  # they are none of the user's

    def __len__(self) -> int:
        return len(self.positions) if self.rows is not None else len(self.passes[0])


def record_rows(arrays: Any, spec: Any, *, count: int) -> Recording:
    """As `record`, of the rows of arrays in memory, which nobody has to draw one by one.

    Args:
        arrays: tensors with one first axis, in the structure of an element.
        spec: of an element.
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
    """Up to `count` elements from the start, the middle and the end of a dataset.

    Args:
        deadline: about when drawing ends, in seconds of `time.monotonic`.
        max_bytes: most the recording may hold.
        passes: how often the dataset is iterated; above 1 where it may give something else each time.
    What the dataset raises ends the recording and is named in it.
    """
    now = time.monotonic()
    first_deadline = now + (deadline - now) / passes
    chosen: dict[int, Any] = {}
    complete, error = False, ""
    try:
        complete = _first_pass(dataset, chosen, count, first_deadline, max_bytes / passes)
    except Exception as raised:  # the reader's or the user's function's; what came before it is good
        error = type(raised).__name__
    positions = sorted(chosen)
    found = [tuple(chosen[position] for position in positions)]
    seconds = time.monotonic() - now
    for _ in range(passes - 1):
        items, ended = _again(dataset, positions, time.monotonic() + 2 * seconds)
        found.append(tuple(items))
        if not ended:  # for want of time: no pass may look shorter than it is
            positions = positions[: len(items)]
            found = [one[: len(items)] for one in found]
            complete = False
    if all(_same(found[0], other) for other in found[1:]):
        found = found[:1]
    spread = bool(positions) and positions[-1] >= len(positions)
    places = "all" if complete else "start, middle and end" if spread else "start"
    return Recording(dataset.element_spec, tuple(found), complete, places, error, tuple(positions))


class Turn:
    """How often each served recording was iterated: each time it serves the next recorded pass."""

    def __init__(self) -> None:
        self._numbers: collections.Counter[int] = collections.Counter()

    def reset(self) -> None:
        """The next iteration is the first again, of every recording."""
        self._numbers.clear()

    def next(self, served: int) -> int:
        """The number of this iteration of one served recording, from 0."""
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
    """A dataset of the recorded elements, with the recorded spec.

    Args:
        turn: counts the iterations; reset it before each run.
        count: serve only the first so many.
        spread: serve only so many, evenly from start to end.
        copies_of_first: serve the first element so many times instead.
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
    """Where in the recorded dataset the elements stand that `serve` gives for the same arguments."""
    return _chosen(list(recording.positions[:count]), spread=spread, copies_of_first=copies_of_first)


def _chosen(items: list[Any], *, spread: int, copies_of_first: int) -> list[Any]:
    chosen = _spread(items, spread) if spread else items
    return chosen[:1] * copies_of_first if copies_of_first else chosen


def _first_pass(dataset: Any, chosen: dict[int, Any], count: int, deadline: float, max_bytes: float) -> bool:
    """Adds elements by their positions in the dataset; whether these are all there are."""
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
    """Whether skipping to the middle and to the end of a dataset ends in time; measured on shorter ways."""
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
_LONGER = 8  # each way tried is so many times the one before


def _take(
    dataset: Any, chosen: dict[int, Any], count: int, deadline: float, max_bytes: float, *, start: int = 0
) -> bool:
    """Adds up to `count` elements, at least one; whether the dataset ended before."""
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
    """Start, middle and end of a dataset whose size nobody knows, as far as the time reaches."""
    third = max(1, third)
    blocks: list[tuple[int, list[Any]]] = []  # runs of elements, each starting twice as far as the one before
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
    """The elements at these positions, and whether it was the dataset that ended, not the time."""
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
    except Exception:  # as in the first pass: what came before it is good
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
    """A row of a batch of ragged rows: its spec is ragged, the element itself is a plain tensor."""
    return isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank == 0


def _served_spec(spec: Any) -> Any:
    return tf.TensorSpec(spec.shape, spec.dtype) if _is_flat_ragged(spec) else spec
