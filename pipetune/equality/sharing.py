"""Finds what two pipelines share and what they do not, where data can be cut, and where elements can be recorded;
records them and serves them to both pipelines, so that the source is read only once."""

from __future__ import annotations

import collections
import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import FunctionVariant, RowWindows
from pipetune.core.operators import FLATTENING, READERS, EpochEffect, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.equality import elements
from pipetune.pipelines import live

EXPANDING_OPERATORS = FLATTENING | READERS | {"unbatch", "rebatch", "opaque"}
"""Operators that may yield many elements for one input element."""

_SELECTING_OPERATORS = frozenset({"take", "skip", "shard", "filter", "shuffle"})
"""Operators that drop or reorder elements: a function downstream of one computes some elements later, or never."""


@dataclass(frozen=True)
class ComparedPipeline:
    """One of the two compared pipelines: live objects, and the pipeline to build from them."""

    live: live.LivePipeline
    pipeline: Pipeline


def compared_pipelines(original: live.LivePipeline, candidate: Any) -> tuple[ComparedPipeline, ComparedPipeline]:
    """Returns the sides of two live datasets; a dataset object in both has the same operator id in both."""
    read = live.read(candidate, name=original.pipeline.name)
    known = {id(dataset): name for name, dataset in original.datasets.items()}
    names = {name: known.get(id(dataset), f"candidate-{name}") for name, dataset in read.datasets.items()}
    nodes = tuple(
        replace(node, id=names[node.id], inputs=tuple(names[name] for name in node.inputs))
        for node in read.pipeline.nodes
    )
    renamed = live.LivePipeline(
        replace(read.pipeline, nodes=nodes), {names[name]: dataset for name, dataset in read.datasets.items()}
    )
    return ComparedPipeline(original, original.pipeline), ComparedPipeline(renamed, renamed.pipeline)


def shared_operators(original: ComparedPipeline, candidate: ComparedPipeline) -> frozenset[str]:
    """Returns the ids of the operators that are the same in both, together with everything upstream of them."""
    found: set[str] = set()
    for node in original.pipeline:
        if node.id not in candidate.pipeline:
            continue
        same = operator_identity(node) == operator_identity(candidate.pipeline[node.id])
        same_object = original.live.datasets[node.id] is candidate.live.datasets.get(node.id)
        if same and same_object and _calls_as_traced(node) and found.issuperset(node.inputs):
            found.add(node.id)
    return frozenset(found)


def operator_identity(node: Node) -> tuple[object, ...]:
    """Returns the identity of an operator: its kind, inputs, arguments, and function (variant and digest)."""
    function = (node.function.form, node.function.digest) if node.function is not None else None
    return node.op, node.inputs, dict(node.arguments), function


def gathered_arrays(original: ComparedPipeline, candidate: ComparedPipeline) -> dict[str, RowWindows | None]:
    """Returns the ids of the original's in-memory arrays that the candidate gathers by index.

    Each with the windows that are gathered; None if these are single rows.
    """
    return {
        source.id: node.gathering.windows
        for node in candidate.pipeline
        if node.gathers_rows
        and node.gathering is not None
        and (source := candidate.pipeline.source_of(node.id)).id in original.live.datasets
    }


@dataclass(frozen=True)
class ChangedRegion:
    """The part in which two pipelines differ: from a shared operator to the position where they are equal again."""

    start: str  # id of the operator whose elements are replaced by generated ones
    sides: tuple[ComparedPipeline, ComparedPipeline]  # each ends where the pipelines are equal again

    @property
    def functions(self) -> list[tuple[Node, Any]]:
        """The original's consecutive maps from the start, each with its traced function."""
        original = self.sides[0]
        found = []
        for node in original.pipeline.downstream(self.start):
            if node.op == "map":
                found.append((node, original.live.datasets[node.id]._map_func))
            elif not operator_facts(node.op).same_elements:
                break
        return found

    @property
    def stateless(self) -> bool:
        """Whether its functions may be called outside the pipeline."""
        return all(node.function is not None and node.function.stateless for node, _ in self.functions)


def changed_region(original: ComparedPipeline, candidate: ComparedPipeline) -> ChangedRegion | None:
    """Returns the region in which functions are called in another variant, on other elements or at another position.

    None if there is none, or if it does not have exactly one start: several datasets join in it, or the pipelines
    share no operator.
    """
    if all(map(_calls_as_traced, candidate.pipeline)):
        return None
    a, b = original.pipeline.output, candidate.pipeline.output
    while a.id == b.id and operator_identity(a)[2:] == operator_identity(b)[2:] and a.op == b.op and len(a.inputs) == 1:
        a, b = original.pipeline[a.inputs[0]], candidate.pipeline[b.inputs[0]]
    sides = (
        replace(original, pipeline=_upstream_part(original.pipeline, a.id)),
        replace(candidate, pipeline=_upstream_part(candidate.pipeline, b.id)),
    )
    common = shared_operators(*sides) | gathered_arrays(*sides).keys()
    changed = [node for side in sides for node in side.pipeline if node.id not in common]
    starts = {name for node in changed for name in node.inputs if name in common}
    return ChangedRegion(starts.pop(), sides) if len(starts) == 1 else None


def _calls_as_traced(node: Node) -> bool:
    return node.function is None or node.function.form is FunctionVariant.AS_TRACED


def _upstream_part(pipeline: Pipeline, node_id: str) -> Pipeline:
    kept = {node_id, *(node.id for node in pipeline.upstream(node_id))}
    return replace(pipeline, nodes=tuple(node for node in pipeline.nodes if node.id in kept), options={})


def frontier(original: ComparedPipeline, candidate: ComparedPipeline) -> dict[str, int]:
    """Returns the shared operators furthest downstream whose elements can be recorded, and how many passes that takes.

    No operator upstream of them makes random draws that can be pinned: these must be drawn again in each epoch. One
    pass is needed if every epoch provably yields the same elements, three otherwise.
    """
    passes = dict.fromkeys(gathered_arrays(original, candidate), 1)
    common = shared_operators(original, candidate)
    for node in original.pipeline.nodes:
        if node.id not in common:
            continue
        own = _recording_passes(node, original.live.datasets[node.id])
        if own and all(name in passes for name in node.inputs):
            passes[node.id] = max([own, *(passes[name] for name in node.inputs)])
    ends = {original.pipeline.output.id, candidate.pipeline.output.id}
    return {
        name: count
        for name, count in passes.items()
        if name in ends
        or any(node.id not in passes for side in (original, candidate) for node in side.pipeline.consumers(name))
    }


def inputs_selected_earlier(original: ComparedPipeline, candidate: ComparedPipeline) -> list[str]:
    """Returns the inputs of operators that drop or reorder elements and have fewer maps upstream in the candidate.

    Inputs that cannot be read again without side effects are left out.
    """
    found: list[str] = []
    for op in sorted(_SELECTING_OPERATORS):
        if _maps_upstream(op, candidate.pipeline) < _maps_upstream(op, original.pipeline):
            found += [name for node in original.pipeline if node.op == op for name in node.inputs[:1]]
    return [name for name in found if not _has_side_effects(name, original.pipeline)]


def _has_side_effects(name: str, pipeline: Pipeline) -> bool:
    """Whether reading the output of an operator may change state of the script."""
    return any(
        operator_facts(node.op).python
        or (node.function.may_change_state if node.function else operator_facts(node.op).takes_function)
        for node in (pipeline[name], *pipeline.upstream(name))
    )


def _maps_upstream(op: str, pipeline: Pipeline) -> int:
    """Returns how many maps are upstream of operators of a kind, without those of the first part of a function."""
    above = (one for node in pipeline if node.op == op for one in pipeline.upstream(node.id) if one.op == "map")
    return sum(one.function is None or one.function.form is not FunctionVariant.HEAD for one in above)


def expanding_downstream(pipeline: Pipeline, node_id: str) -> list[Node]:
    """Returns the operators downstream by which one element (a file name) may become many.

    Not those behind a window: a `flat_map` there only undoes it.
    """
    nodes = takewhile(lambda node: node.op != "window", pipeline.downstream(node_id))
    return [node for node in nodes if node.op in EXPANDING_OPERATORS]


def expanded_without_draws(original: ComparedPipeline, candidate: ComparedPipeline) -> list[str]:
    """Returns the ids of the operators of both pipelines that expand elements, upstream of all random functions."""
    return [
        node.id
        for node in original.pipeline.nodes
        if node.op in EXPANDING_OPERATORS - {"opaque"}
        and node.id in candidate.pipeline
        and _has_plain_elements(original.live.datasets[node.id])
        and not any(
            upper.function is not None and (upper.function.random or upper.function.random_python)
            for side in (original, candidate)
            for upper in (*side.pipeline.upstream(node.id), side.pipeline[node.id])
        )
    ]


def cut_points(original: ComparedPipeline, candidate: ComparedPipeline, recorded: Collection[str]) -> list[str]:
    """Returns the ids of the operators after which data is cut, because no recording limits it.

    Never downstream of a cache: a cache that is not read to its end keeps nothing, and would not repeat an epoch.

    Args:
        recorded: ids of the operators that were recorded.
    """
    common = [node for node in original.pipeline.nodes if node.id in candidate.pipeline]
    above = {upper.id for name in recorded for upper in original.pipeline.upstream(name)} | set(recorded)
    return [
        node.id
        for node in common
        if node.id not in above
        and (node.op in EXPANDING_OPERATORS or not node.inputs)
        and not any(is_cached_upstream(side.pipeline, node.id) for side in (original, candidate))
    ]


def draws_per_element(pipeline: Pipeline, source: str) -> int:
    """Returns how many elements of a source to draw per element of the others: 1, but more if it chooses among them.

    As in `sample_from_datasets`, which draws two seeds per element of the output: of half as many draws it would end
    early, and of an odd number with an error.
    """
    draws = 1
    for node in pipeline.downstream(source):
        size = node.argument("batch_size") if node.op == "batch" else None
        draws *= size if isinstance(size, int) else 1
        if node.op == "choose":
            first = node.inputs[0]
            chooses = source in (first, *(above.id for above in pipeline.upstream(first)))
            return draws * (len(node.inputs) - 1) if chooses else 1
    return 1


def is_cached_upstream(pipeline: Pipeline, node_id: str) -> bool:
    """Whether a cache is upstream, which a cut here would prevent from being read to its end."""
    return any(node.op in ("cache", "snapshot") for node in pipeline.upstream(node_id))


def _recording_passes(node: Node, dataset: Any) -> int:
    """Returns how many passes a recording of this operator takes; 0 if it cannot be recorded."""
    known, function = operator_facts(node.op), node.function
    generator = node.op == "from_generator"
    if not _has_plain_elements(dataset):
        return 0
    if (known.random or known.epochs not in (EpochEffect.SAME, EpochEffect.FREEZES)) and not generator:
        return 0
    if node.op in ("opaque", "snapshot") or (node.op == "cache" and node.argument("filename")):
        return 0
    if function is not None and not generator:
        if function.random or function.random_python or function.writes_variables or function.mutable_tables:
            return 0
        if not function.stateless:
            return 3
    return 3 if generator else 1


def _has_plain_elements(dataset: Any) -> bool:
    """Whether elements have components, and none of them is a dataset or an optional."""
    components = tf.nest.flatten(dataset.element_spec)
    return any(not isinstance(part, tensorflow_private.NoneTensorSpec) for part in components) and not any(
        isinstance(part, tf.data.DatasetSpec | tf.OptionalSpec) for part in components
    )


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
