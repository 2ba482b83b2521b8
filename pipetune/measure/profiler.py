"""Cost per operator, from the runtime's own model of a run at parallelism 1, with its counters completed."""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from pipetune.core.edits import Edit, SetArgument, SetOption, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.measurement import RunFailed
from pipetune.core.operators import FLATTENING, CountEffect, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import OperatorProfile, Stage
from pipetune.pipelines import live, replay
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators, iterating


@dataclass
class Counters:
    """The runtime's counters for one pipeline node, summed over the iterators that it created and dropped."""

    seconds: float = 0.0
    elements: float = 0.0
    bytes: float = 0.0
    buffered: tuple[float, float] = (0.0, 0.0)  # elements, bytes; maximum over all readings
    inner_seconds: float = 0.0  # of the readers it opened
    inner_elements: float = 0.0  # output elements of those readers
    inside: dict[str, float] = field(default_factory=dict)  # seconds of the readers, by the runtime's names

    def scaled(self, factor: float) -> Counters:
        """Returns the counters multiplied by `factor`, for what was not observed; `inside` then contains shares."""
        inner = max(1.0, self.elements / self.inner_elements) if self.inner_elements else 1.0
        seconds = self.seconds + self.inner_seconds * inner
        shares = {name: found * inner / seconds for name, found in self.inside.items()} if seconds else {}
        return Counters(seconds * factor, self.elements * factor, self.bytes * factor, self.buffered, inside=shares)


def complete_counters(
    pipeline: Pipeline, counters: Mapping[str, Counters], *, outputs: int, repeated: bool
) -> dict[str, Counters]:
    """Returns the counters of every node, corrected for iterators that were dropped.

    Args:
        pipeline: the pipeline that ran.
        counters: sums over all readings, by node id.
        outputs: elements taken from the pipeline.
        repeated: whether the whole pipeline was rebuilt in each epoch.
    """
    seen = {node.id: counters[node.id] for node in pipeline if node.id in counters}
    factors: dict[str, float] = {}
    passed: dict[str, float | None] = {pipeline.output.id: float(outputs) if repeated else None}
    for node in reversed(pipeline.nodes):
        own, through = seen.get(node.id), passed.get(node.id)
        if own is not None:
            if through is not None and own.elements > 0:
                factors[node.id] = max(1.0, through / own.elements)
            through = own.elements * factors.setdefault(node.id, 1.0)
        for name in node.inputs:
            taken = _taken(pipeline, node, name)
            if node.op == "cache":
                factors[name] = 1.0  # upstream of a cache nothing runs in later epochs
            elif taken is None:
                factors[name] = max(factors.get(node.id, 1.0), factors.get(name, 1.0))
            elif through is not None:
                passed[name] = max(through * taken, passed.get(name) or 0.0)
    return {name: found.scaled(factors.get(name, 1.0)) for name, found in seen.items()}


def _taken(pipeline: Pipeline, node: Node, name: str) -> float | None:
    """Returns the elements of the input `name` per element of `node`; None if only a run can show it."""
    above = pipeline[name]
    if node.op in ("repeat", "take", "zip") or (
        operator_facts(node.op).count is CountEffect.ONE_TO_ONE and node.op != "cache"
    ):
        return 1.0
    if node.op in ("batch", "padded_batch"):
        if node.cardinality > 0 and above.cardinality > 0:
            return above.cardinality / node.cardinality
        size = node.argument("batch_size")
        return float(size) if isinstance(size, int) else None
    return None


ORIGINAL_GRAPH_EDITS: tuple[Edit, ...] = (
    SetOption("experimental_optimization.apply_default_optimizations", False),
    SetOption("experimental_optimization.inject_prefetch", False),
    SetOption("autotune.enabled", True),
)
"""Edits that keep the graph as the user wrote it and the runtime's model readable."""

_POLL_SECONDS = 0.004, 0.02  # pause between readings of about 0.1 ms; counts not read before an epoch ends are lost
_SLOW_SECONDS = 6.0  # run of a slow pipeline that has not output three elements before
_DRAINED_SECONDS = 0.2  # for what is upstream of a shuffle that holds all of it, which costs little as a rule
_LEAST_SHARE = 0.01  # of an operator's time, by judgement: operators inside its function with less are not listed

_SOURCES = frozenset(
    {"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "CsvDataset", "from_generator", "load"}
)
_READERS = frozenset({"TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset", "FixedLengthRecordDataset",
                      "FixedLengthRecordDatasetV2", "CSVDataset", "CSVDatasetV2", "ReadFile"})  # fmt: skip
_LOAD = frozenset({"prefetch", "with_options"})

# Names of operators in the runtime that differ from the name of the dataset method.
_RUNTIME_NAMES: Mapping[str, tuple[str, ...]] = {
    "from_tensor_slices": ("TensorSlice",),
    "from_tensors": ("Tensor",),
    "from_list": ("List",),
    "map": ("Map", "ParallelMapV2", "ParallelMap"),
    "to_ragged": ("Map", "ParallelMapV2", "ParallelMap"),
    "batch": ("BatchV2", "Batch", "ParallelBatch", "MapAndBatch"),
    "interleave": ("Interleave", "ParallelInterleaveV4", "ParallelInterleaveV3", "ParallelInterleaveV2"),
    "parallel_interleave": ("LegacyParallelInterleaveV2", "ParallelInterleave"),
    "TFRecordDataset": ("FlatMap", "ParallelInterleave", "LegacyParallelInterleaveV2"),
    "TextLineDataset": ("FlatMap",),
    "FixedLengthRecordDataset": ("FlatMap",),
    "CsvDataset": ("CSV",),
    "SqlDataset": ("Sql",),
    "from_generator": ("FlatMap",),
    "repeat": ("Repeat", "ForeverRepeat", "FiniteRepeat", "EmptyRepeat"),
    "cache": ("Cache", "MemoryCacheImpl", "CacheV2", "MemoryCache", "FileCache"),
    "take": ("Take", "FiniteTake", "EmptyTake"),
    "skip": ("Skip", "FiniteSkip", "EmptySkip"),
    "choose": ("DirectedInterleave",),
    "shuffle": ("Shuffle", "ShuffleV3", "ShuffleAndRepeat"),
}


class _Part(enum.Enum):
    """Role of a runtime node with respect to the pipeline node that it is counted for."""

    OPERATOR = 1
    READER = 2  # the last operator of a pipeline that its function returned
    INSIDE = 3  # any other operator of such a pipeline


class _CounterSums:
    """Sums the runtime's counters over many readings.

    An operator upstream of a repeat, or a reader inside an interleave, is rebuilt repeatedly, and its counters with
    it: each reading adds what a counter gained since the last reading, or all of it if the counter is new.
    """

    def __init__(self, pipeline: Pipeline, *, repeated: bool) -> None:
        """`repeated`: whether the profiler added the outermost repeat."""
        self._pipeline, self._repeated = pipeline, repeated
        self._before: dict[int, tuple[float, int, float]] = {}
        self.counters: dict[str, Counters] = {}

    def take(self, iterator: Any, *, count: bool = True) -> None:
        """Reads the counters; with `count` False, only as the starting point of the next reading."""
        try:
            model = tf.data.experimental.get_model_proto(iterator)
        except (tf.errors.OpError, ValueError):
            return
        top = int(model.output)
        if self._repeated:
            top = upstream_of(model, top, lambda name: name in runtime_names("repeat"))
        assignment: dict[int, tuple[str, _Part]] = {}
        _match(model, top, self._pipeline, self._pipeline.output, assignment)
        now: dict[int, tuple[float, int, float]] = {}
        for number, (node_id, part) in assignment.items():
            found = model.nodes[number]
            now[number] = (found.processing_time * 1e-9, int(found.num_elements), float(found.bytes_produced))
            if not count:
                continue
            before = self._before.get(number, (0.0, 0, 0.0))
            counters = self.counters.setdefault(node_id, Counters())
            seconds, elements = max(0.0, now[number][0] - before[0]), max(0, now[number][1] - before[1])
            if part is not _Part.OPERATOR:
                counters.inner_seconds += seconds
                counters.inner_elements += elements if part is _Part.READER else 0
                counters.inside[found.name] = counters.inside.get(found.name, 0.0) + seconds
            else:
                counters.seconds += seconds
                counters.elements += elements
                counters.bytes += max(0.0, now[number][2] - before[2])
                held = (float(found.buffered_elements), float(found.buffered_bytes))
                counters.buffered = max(counters.buffered, held)
        self._before = now


@dataclass(frozen=True)
class InputProfile:
    """Result of profiling the input alone."""

    operators: tuple[OperatorProfile, ...]
    cpu_seconds: float  # of the process, per element of the output
    wall_seconds: float  # per element of the output
    notes: tuple[str, ...] = ()


def at_parallelism_one(pipeline: Pipeline, *, full_caches: bool = False) -> Pipeline:
    """Returns the original pipeline, with every parallel operator at one call.

    With `full_caches`, those that are idle stay as they are.
    """
    idle = pipeline.idle_operators if full_caches else {}
    parallel = (node for node in pipeline if node.argument("num_parallel_calls") is not None and node.id not in idle)
    edits: list[Edit] = [*ORIGINAL_GRAPH_EDITS, *(SetArgument(node.id, "num_parallel_calls", 1) for node in parallel)]
    return apply_edits(pipeline, edits)


def profile_input(source: live.LivePipeline, *, seconds: float = 1.5, full_caches: bool = False) -> InputProfile:
    """Returns the cost of each operator from a run of the pipeline alone at parallelism 1.

    Args:
        source: the live pipeline.
        seconds: approximate length of the run; longer if a slow pipeline has not output three elements before.
        full_caches: whether its memory caches are full.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    pipeline = source.pipeline
    run = _run(source, pipeline, seconds, full_caches=full_caches)
    counters = complete_counters(pipeline, run.counters, outputs=run.outputs, repeated=run.repeated)
    drained = [node.id for node in pipeline if _is_drained(pipeline, node, counters)]
    idle = frozenset(above.id for shuffle in drained for above in pipeline.upstream(shuffle))
    operators = {one.node: one for one in _operator_profiles(pipeline, counters, run.cpu_seconds, run.outputs, idle)}
    for shuffle in drained:
        above = Pipeline(pipeline.upstream(shuffle))
        more = _run(source, above, _DRAINED_SECONDS, full_caches=full_caches)
        found = complete_counters(above, more.counters, outputs=more.outputs, repeated=more.repeated)
        visits = operators[shuffle].visits or 0.0
        operators[shuffle] = replace(operators[shuffle], ratio=1.0)
        for one in _operator_profiles(above, found, more.cpu_seconds, more.outputs):
            operators[one.node] = replace(one, visits=None if one.visits is None else one.visits * visits)
    no_model = "TensorFlow's runtime has no model of this pipeline, so there is no cost per operator."
    return InputProfile(
        operators=tuple(operators.values()),
        cpu_seconds=run.cpu_seconds / run.outputs,
        wall_seconds=run.wall_seconds / run.outputs,
        notes=(*run.notes, *(() if run.counters else (no_model,))),
    )


def _is_drained(pipeline: Pipeline, node: Node, counters: Mapping[str, Counters]) -> bool:
    """Whether it is a shuffle with a buffer that held all its input before the run began: nothing above it ran then."""
    if node.op != "shuffle" or node.id not in counters or node.inputs[0] in counters:
        return False
    return all(one.op != "cache" and one.id not in counters for one in pipeline.upstream(node.id))


@dataclass(frozen=True)
class _Run:
    """A run, at parallelism 1 if it can be rebuilt; seconds and counters are of what came after its first element."""

    counters: Mapping[str, Counters]  # by node id
    outputs: int
    repeated: bool  # whether the whole pipeline was rebuilt in each epoch
    cpu_seconds: float  # of the process
    wall_seconds: float
    notes: tuple[str, ...] = ()


def _run(source: live.LivePipeline, pipeline: Pipeline, seconds: float, *, full_caches: bool) -> _Run:
    """Runs a pipeline alone, with the datasets of `source`; as `profile_input`."""
    notes: tuple[str, ...] = ()
    try:
        edited = at_parallelism_one(pipeline, full_caches=full_caches)
        dataset = replay.replay(source, edited)
    except CannotReplay as error:
        edited = apply_edits(pipeline, ORIGINAL_GRAPH_EDITS)
        dataset = replay.replay(source, edited)
        notes = (f"{error.message} So the costs were measured with as many parallel calls as the script makes.",)
    free_iterators()
    with windows.as_run_failed(), iterating(running := windows.repeat_forever(dataset)) as iterator:
        repeated = running is not dataset
        try:
            next(iterator)
        except StopIteration:
            raise RunFailed("The dataset is empty.") from None
        readings = _CounterSums(edited, repeated=repeated)
        readings.take(iterator, count=False)
        cpu, wall, count = time.process_time(), time.perf_counter(), 0
        polled, pause, draw = wall, 0.0, random.Random(0)
        epoch = int(dataset.cardinality()) if repeated else 0
        while (spent := time.perf_counter() - wall) < seconds or (count < 3 and spent < _SLOW_SECONDS):
            next(iterator)
            count += 1
            since = time.perf_counter() - polled
            # At the end of an epoch the shares of all operators are those of the whole epoch. Operators that end
            # earlier, upstream of a buffer, are read at random moments, independent of the epochs.
            ending = epoch > 0 and (count + 1) % epoch == (epoch - 1) % epoch
            if since > pause or (ending and since > _POLL_SECONDS[0]):
                readings.take(iterator)
                polled, pause = time.perf_counter(), draw.uniform(*_POLL_SECONDS)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        readings.take(iterator)
    return _Run(readings.counters, count, repeated, cpu, wall, notes)


def stage_of(pipeline: Pipeline, node: Node) -> Stage:
    """Returns the stage of an operator: extract up to the last reader, load if it only passes elements through."""
    if not node.inputs or node.op in _SOURCES:
        return Stage.EXTRACT
    if node.function is not None and _READERS.intersection(node.function.operations):
        return Stage.EXTRACT
    below = pipeline.downstream(node.id)
    if any(other.op in FLATTENING and other.inner for other in below) and node.function is None:
        return Stage.EXTRACT
    if node.op in FLATTENING and (node.function and (node.function.reads_files or node.function.python)):
        return Stage.EXTRACT
    return Stage.LOAD if node.op in _LOAD else Stage.TRANSFORM


def _operator_profiles(
    pipeline: Pipeline,
    counters: Mapping[str, Counters],
    cpu_seconds: float,
    outputs: int,
    idle: frozenset[str] = frozenset(),
) -> Iterator[OperatorProfile]:
    """Yields the costs; operators that are `idle` did not run."""
    total = sum(counter.seconds for counter in counters.values())
    scale = min(1.0, cpu_seconds / total) if total > 0 else 1.0
    overhead = _call_overhead(pipeline, counters, max(0.0, cpu_seconds - total), idle)
    nothing = Counters()
    for node in pipeline:
        counter = counters.get(node.id, nothing)
        count = counter.elements
        above = [counters.get(name, nothing) for name in node.inputs]
        measured = count > 0
        size = counter.bytes / count if measured and counter.bytes > 0 else node.element_bytes
        yield OperatorProfile(
            node=node.id,
            stage=stage_of(pipeline, node),
            cpu_seconds=(counter.seconds * scale + overhead.get(node.id, 0.0)) / count if measured else None,
            wall_seconds=(counter.seconds + overhead.get(node.id, 0.0)) / count if measured else None,
            elements=round(count) if measured else None,
            ratio=sum(one.elements for one in above) / count if measured and node.inputs else None,
            visits=count / outputs if measured else None,
            bytes_in=sum(one.bytes for one in above) / count if measured and node.inputs else None,
            bytes_out=size,
            buffered_elements=counter.buffered[0] if measured else None,
            buffered_bytes=counter.buffered[1] if measured else None,
            random=bool(node.function and node.function.random) or operator_facts(node.op).random,
            python=bool(node.function and node.function.python),
            inside=_shares(counter.inside) if node.inner else None,
        )


def _shares(inside: Mapping[str, float]) -> dict[str, float] | None:
    """Returns an operator's time as shares of the operators inside its function, at least 1 %; "" is the rest."""
    shown = {name: share for name, share in inside.items() if share >= _LEAST_SHARE}
    return {**shown, "": max(0.0, 1 - sum(shown.values()))} if shown else None


def _call_overhead(
    pipeline: Pipeline, counters: Mapping[str, Counters], missing_seconds: float, idle: frozenset[str]
) -> dict[str, float]:
    """Distributes the CPU seconds that the runtime's model does not count; returns them by operator id.

    For an operator with a function, the model counts only the kernels of the function (`CapturedFunction::Run` stops
    the operator's own clock), not the cost of starting and scheduling them: some microseconds per call and node of the
    function. So the missing seconds are attributed to these operators, in proportion to calls times nodes. They are
    attributed to none where the counters of a function that runs were lost: its seconds are among them.
    """
    lost = [node for node in pipeline if node.function is not None and node.id not in {*counters, *idle}]
    if any(all(below.op != "cache" for below in pipeline.downstream(node.id)) for node in lost):
        return {}
    weights = {
        node.id: counters[node.id].elements * float(1 + node.function.size)
        for node in pipeline
        if node.function is not None and node.id in counters
    } or {name: counter.seconds for name, counter in counters.items()}
    total = sum(weights.values())
    return {name: missing_seconds * weight / total for name, weight in weights.items()} if total > 0 else {}


def upstream_of(model: Any, top: int, matches: Callable[[str], bool]) -> int:
    """Returns the runtime node directly upstream of the first, from `top` on, whose name matches; else `top`."""
    number = top
    while len(model.nodes[number].inputs) == 1:
        name, number = model.nodes[number].name, int(model.nodes[number].inputs[0])
        if matches(name):
            return number
    return top


def _match(model: Any, number: int, pipeline: Pipeline, node: Node, assignment: dict[int, tuple[str, _Part]]) -> None:
    """Walks the runtime's tree in parallel with the pipeline: runtime node -> (pipeline node, its role there).

    Nodes that only the runtime has are skipped; readers that an interleave opened are assigned to it.
    """
    found = model.nodes[number]
    if found.name not in runtime_names(node.op):
        repeats_part = node.op == "cache" and found.name == _REPEATS_PART
        if node.op in ("with_options", "cache") and len(node.inputs) == 1 and not repeats_part:
            # It has no iterator of its own, or is a full cache.
            return _match(model, number, pipeline, pipeline[node.inputs[0]], assignment)
        for above in found.inputs:
            _match(model, above, pipeline, node, assignment)
        return None
    assignment[number] = (node.id, _Part.OPERATOR)
    inputs = [pipeline[name] for name in node.inputs]
    for above in found.inputs:
        counterpart = next((other for other in inputs if _leads_to(model, above, other)), None)
        if counterpart is not None:
            inputs.remove(counterpart)
            _match(model, above, pipeline, counterpart, assignment)
        else:
            _claim(model, above, (node.id, _Part.READER), assignment)
    return None


def _claim(model: Any, number: int, claim: tuple[str, _Part], assignment: dict[int, tuple[str, _Part]]) -> None:
    assignment[number] = claim
    for above in model.nodes[number].inputs:
        _claim(model, above, (claim[0], _Part.INSIDE), assignment)


def _leads_to(model: Any, number: int, node: Node) -> bool:
    """Whether this input of a runtime node is the pipeline's node, or leads to it through nodes TensorFlow added."""
    names = runtime_names(node.op)
    while True:
        found = model.nodes[number]
        if found.name in names or node.op in ("with_options", "opaque"):
            return True
        added = found.name in ADDED_OPERATORS or (node.op == "cache" and found.name == _REPEATS_PART)
        if len(found.inputs) != 1 or not added:
            return False
        (number,) = found.inputs


_REPEATS_PART = "ForeverRepeat"  # what a cache holds, if that is a part of the elements: no operator of the pipeline
ADDED_OPERATORS = frozenset(
    {"Root", "Options", "MaxIntraOpParallelism", "PrivateThreadPool", "Prefetch", "Model", "Finalize"}
)
"""Names of runtime nodes that TensorFlow adds to a pipeline."""


def runtime_names(op: str) -> tuple[str, ...]:
    """Returns the names that the runtime's model may use for this operator."""
    if op in _RUNTIME_NAMES:
        return _RUNTIME_NAMES[op]
    camel = "".join(part.capitalize() for part in op.split("_"))
    return (camel, camel + "V2", camel + "V3")
