"""Records the elements that two pipelines share and serves them to both, so that the source is read only once."""

from __future__ import annotations

import collections
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.equality import elements


@dataclass(frozen=True)
class RecordedElements:
    """Recorded elements of a dataset: of one pass, or of several passes if these differ."""

    spec: Any
    passes: tuple[tuple[Any, ...], ...]
    complete: bool  # it holds every element of the dataset
    covered_part: str  # which part of the data it holds, for the report
    error: str = ""  # type name of the exception that ended the recording
    positions: tuple[int, ...] = ()  # index in the dataset of each element of a pass
    rows: Any = None  # if they are equal in shape and small: those of one pass, stacked; `passes` is then empty
    generated: bool = False  # the elements are generated, not the user's
    out_of_time: bool = False  # more elements were wanted

    def __len__(self) -> int:
        return len(self.positions) if self.rows is not None else len(self.passes[0])


def record_rows(arrays: Any, spec: Any, *, count: int) -> RecordedElements:
    """Like `record`, for rows of in-memory arrays, which need not be drawn one by one.

    Args:
        arrays: tensors with a common first axis, in the structure of an element.
        spec: spec of an element.
        count: number of rows, at most; up to twice as many if these are all rows.
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
    return RecordedElements(spec, (), len(positions) == total, places, positions=tuple(positions), rows=rows)


def record(dataset: Any, *, count: int, deadline: float, max_bytes: float, passes: int = 1) -> RecordedElements:
    """Records up to `count` elements from the start, the middle and the end of a dataset.

    An exception of the dataset ends the recording, which stores its type.

    Args:
        count: number of elements, at most; up to twice as many if these are all elements.
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
    late = time.monotonic() >= first_deadline
    positions = sorted(chosen)
    found = [tuple(chosen[position] for position in positions)]
    seconds = time.monotonic() - now
    for _ in range(passes - 1):
        items, ended = _reread(dataset, positions, time.monotonic() + 2 * seconds)
        found.append(tuple(items))
        if not ended:  # out of time: all passes are cut to this length, so that none looks shorter than it is
            positions = positions[: len(items)]
            found = [one[: len(items)] for one in found]
            complete = False
    if all(_equal_passes(found[0], other) for other in found[1:]):
        found = found[:1]
    spread = bool(positions) and positions[-1] >= len(positions)
    places = "all" if complete else "start, middle and end" if spread else "start"
    places += " of what there was time to read" if spread and late and not complete else ""
    out_of_time = not (complete or error) and len(positions) < count and time.monotonic() >= first_deadline
    return RecordedElements(
        dataset.element_spec, tuple(found), complete, places, error, tuple(positions), out_of_time=out_of_time
    )


# Of elements that each served dataset copies: a generator, which copies none, costs 20 ms, as copying some MB does.
_MAX_STACKED_BYTES = 4e6


def stacked(recording: RecordedElements) -> RecordedElements:
    """Returns a recording of one pass with its elements stacked, if their shapes are fixed and they are small."""
    (*more, items), parts = recording.passes, tf.nest.flatten(recording.spec)
    small = sum(map(elements.element_bytes, items)) <= _MAX_STACKED_BYTES
    if more or not items or not parts or not all(map(is_dense, parts)) or not small:
        return recording
    return replace(recording, rows=tf.nest.map_structure(lambda *rows: tf.stack(rows), *items), passes=())


def is_dense(spec: Any) -> bool:
    """Whether this is the spec of tensors of one fixed shape."""
    handle = (tf.variant, tf.resource)
    return isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() and spec.dtype not in handle


PassCounter = collections.Counter[int]
"""How often each served recording was iterated, by its id: each iteration serves the next recorded pass."""


Selection = Callable[[int], Sequence[int]]
"""Which elements of a pass are served: returns their indices from the number of recorded elements."""


def first_elements(count: int) -> Selection:
    """Selects the first `count` elements."""
    return lambda recorded: range(min(count, recorded))


def copies_of(position: int, count: int) -> Selection:
    """Selects the element at a position, or the last one if there are fewer, `count` times."""
    return lambda recorded: [min(position, recorded - 1)] * count if recorded else []


def evenly_spaced(count: int) -> Selection:
    """Selects `count` elements, evenly spaced from start to end."""

    def chosen(recorded: int) -> Sequence[int]:
        if recorded <= count:
            return range(recorded)
        return [round(step * (recorded - 1) / max(1, count - 1)) for step in range(count)]

    return chosen


def serve(recording: RecordedElements, pass_counter: PassCounter, selection: Selection) -> Any:
    """Returns a dataset of the recorded elements, with the recorded spec.

    Args:
        pass_counter: counts the iterations; to be cleared before each run.
        selection: which of the elements to serve.

    Raises:
        ValueError: elements have no components.
    """
    if recording.rows is not None:
        numbers = tf.constant(list(selection(len(recording))), tf.int64)
        return tf.data.Dataset.from_tensor_slices(
            tf.nest.map_structure(lambda array: tf.gather(array, numbers), recording.rows)
        )
    flat = tuple(
        [tuple(part for part in tf.nest.flatten(one[index]) if part is not None) for index in selection(len(one))]
        for one in recording.passes
    )

    def generate() -> Iterator[Any]:
        pass_counter[id(flat)] += 1
        return iter(flat[min(pass_counter[id(flat)], len(flat)) - 1])

    structure = recording.spec
    parts = [part for part in tf.nest.flatten(structure) if not isinstance(part, tensorflow_private.NoneTensorSpec)]
    signature = tuple(tf.TensorSpec(part.shape, part.dtype) if _is_flat_ragged(part) else part for part in parts)
    served = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if not parts:
        raise ValueError("elements without components")

    def encode(*components: Any) -> tuple[Any, ...]:
        return tuple(
            part._to_tensor_list(component)[0] if _is_flat_ragged(part) else component
            for part, component in zip(parts, components, strict=True)
        )

    if any(map(_is_flat_ragged, parts)):
        served = served.map(tf.autograph.experimental.do_not_convert(encode))
    return tensorflow_private.with_structure(served, structure)


def _first_pass(dataset: Any, chosen: dict[int, Any], count: int, deadline: float, max_bytes: float) -> bool:
    """Adds elements to `chosen` by their index in the dataset; returns whether these are all elements.

    All are taken from its start where there is no time to skip to its middle and its end.
    """
    total = int(dataset.cardinality())
    if total == tf.data.INFINITE_CARDINALITY or 0 <= total <= 2 * count:
        return _read_block(dataset, chosen, max(count, total), deadline, max_bytes)
    if total < 0:
        return _scan_unknown_size(dataset, chosen, count // 3, deadline, max_bytes / 3)
    complete = _read_block(dataset, chosen, count // 3, deadline, max_bytes / 3)
    third = len(chosen)
    if not complete:
        starts = max(third, total // 2), max(third, total - third)
        if not _can_skip_in_time(dataset, total, deadline):
            starts = third, 2 * third
        for start in starts:
            if time.monotonic() < deadline:
                _read_block(dataset.skip(start), chosen, third, deadline, max_bytes / 3, start=start)
    return complete


def _can_skip_in_time(dataset: Any, total: int, deadline: float) -> bool:
    """Whether skipping to the middle and to the end of a dataset ends in time, extrapolated from shorter skips."""
    distance = _SHORTEST_SKIP
    while distance < total:
        started = time.monotonic()
        for _ in dataset.skip(distance).take(1):
            pass
        seconds = time.monotonic() - started
        if time.monotonic() + 1.5 * seconds * min(total / distance, _SKIP_GROWTH) > deadline:
            return False
        distance *= _SKIP_GROWTH
    return True


_SHORTEST_SKIP = 16  # elements in the first trial skip, by judgement: a longer one may already take too long
_SKIP_GROWTH = 8  # factor from each tried skip to the next


def _read_block(
    dataset: Any, chosen: dict[int, Any], count: int, deadline: float, max_bytes: float, *, start: int = 0
) -> bool:
    """Adds up to `count` elements to `chosen`, at least one; returns whether that was the end of the dataset."""
    used, end = 0.0, start + max(1, count)
    for position, element in enumerate(dataset, start):
        if position == end:
            return False
        chosen[position] = element
        used += elements.element_bytes(element)
        if position + 1 < end and (time.monotonic() > deadline or used > max_bytes):
            return False
    return True


def _scan_unknown_size(dataset: Any, chosen: dict[int, Any], third: int, deadline: float, max_bytes: float) -> bool:
    """Adds start, middle and end of a dataset of unknown size, if time allows; returns whether that is everything."""
    third = max(1, third)
    blocks: list[tuple[int, list[Any]]] = []  # runs of elements; each starts at twice the index of the previous one
    tail: collections.deque[tuple[int, Any]] = collections.deque(maxlen=third)
    used, seen, ended = 0.0, 0, False
    for place, element in enumerate(dataset):
        seen = place + 1
        if place < third and (used <= max_bytes or not chosen):
            chosen[place] = element
            used += elements.element_bytes(element)
        else:
            if not blocks:
                third = len(chosen)
                tail = collections.deque(maxlen=third)
            if not blocks or place >= 2 * blocks[-1][0]:
                blocks = [*blocks[-2:], (place, [])]
            if len(blocks[-1][1]) < third:
                blocks[-1][1].append(element)
            tail.append((place, element))
        if time.monotonic() >= deadline:
            break
    else:
        ended = True
    if blocks:
        start, block = min(blocks, key=lambda entry: abs(entry[0] - seen / 2))
        chosen.update((start + offset, element) for offset, element in enumerate(block))
        chosen.update(tail)
    return ended and len(chosen) == seen


def _reread(dataset: Any, positions: Sequence[int], deadline: float) -> tuple[list[Any], bool]:
    """Reads the elements at these positions again; returns them, and False if time ended the pass early."""
    found: list[Any] = []
    waiting = set(positions)
    with contextlib.suppress(Exception):  # as in the first pass: the elements before it are valid
        for position, element in enumerate(itertools.islice(dataset, max(positions, default=-1) + 1)):
            if position in waiting:
                waiting.remove(position)
                found.append(element)
            if waiting and found and time.monotonic() > deadline:
                return found, False
    return found, True


def _equal_passes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        elements.component_hashes(a) == elements.component_hashes(b) for a, b in zip(one, other, strict=True)
    )


def _is_flat_ragged(spec: Any) -> bool:
    """Whether this is the spec of a row of a ragged batch: the spec is ragged, but the element is a plain tensor."""
    return isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank == 0
