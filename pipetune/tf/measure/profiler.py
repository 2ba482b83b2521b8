"""Cost per operator, from the runtime's own model of a run at parallelism 1.

`tf.data.experimental.get_model_proto` gives each operator's wall time in its threads. Taken at parallelism 1 and
scaled so that all operators together use the process CPU time of the same run, it is CPU seconds. Optimizations are
off in that run, so that the graph is the one the user wrote.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, SetArgument, SetOption
from pipetune.core.measurement import RunFailed
from pipetune.core.operators import facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import OperatorProfile, Stage
from pipetune.tf.measure import failures, windows
from pipetune.tf.measure.missed import Counters, complete
from pipetune.tf.pipelines import live, replay

AS_WRITTEN: tuple[Edit, ...] = (
    SetOption("experimental_optimization.apply_default_optimizations", False),
    SetOption("experimental_optimization.inject_prefetch", False),
    SetOption("autotune.enabled", True),
)
"""Edits that keep the graph as the user wrote it and the runtime's model readable."""

_POLL_SECONDS = 0.004, 0.02  # pause between readings of about 0.1 ms; counts not read before an epoch ends are lost
_LEAST_SHARE = 0.01

_SOURCES = frozenset(
    {"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "CsvDataset", "from_generator", "load"}
)
_READERS = frozenset({"TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset", "FixedLengthRecordDataset",
                      "FixedLengthRecordDatasetV2", "CSVDataset", "CSVDatasetV2", "ReadFile"})  # fmt: skip
_LOAD = frozenset({"prefetch", "with_options"})

# Names of operators in the runtime, where they differ from the name of the dataset method.
_RUNTIME_NAMES: Mapping[str, tuple[str, ...]] = {
    "from_tensor_slices": ("TensorSlice",),
    "from_tensors": ("Tensor",),
    "map": ("Map", "ParallelMapV2", "ParallelMap"),
    "batch": ("BatchV2", "Batch", "ParallelBatch", "MapAndBatch"),
    "padded_batch": ("PaddedBatchV2", "PaddedBatch"),
    "interleave": ("Interleave", "ParallelInterleaveV4", "ParallelInterleaveV3", "ParallelInterleaveV2"),
    "TFRecordDataset": ("FlatMap", "ParallelInterleave", "LegacyParallelInterleaveV2"),
    "TextLineDataset": ("FlatMap",),
    "FixedLengthRecordDataset": ("FlatMap",),
    "from_generator": ("FlatMap",),
    "repeat": ("Repeat", "ForeverRepeat", "FiniteRepeat", "EmptyRepeat"),
    "cache": ("Cache", "MemoryCacheImpl", "CacheV2", "MemoryCache", "FileCache"),
    "take": ("Take", "FiniteTake", "EmptyTake"),
    "skip": ("Skip", "FiniteSkip", "EmptySkip"),
    "prefetch": ("Prefetch",),
    "choose": ("DirectedInterleave",),
    "shuffle": ("Shuffle", "ShuffleV3", "ShuffleAndRepeat"),
    "assert_cardinality": ("AssertCardinality",),
}


class _Part(enum.Enum):
    """Role of a runtime node with respect to the pipeline node that it is counted for."""

    OPERATOR = 1
    READER = 2  # the last operator of a pipeline that its function returned
    INSIDE = 3  # any other operator of such a pipeline


class _Readings:
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
        top = model.output
        while self._repeated and len(model.nodes[top].inputs) == 1:
            name = model.nodes[top].name
            (top,) = model.nodes[top].inputs
            if name in names_in_runtime("repeat"):
                break
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
    first_seconds: float  # from building the iterator to the first element
    notes: tuple[str, ...] = ()


def at_parallelism_one(pipeline: Pipeline) -> Pipeline:
    """The original pipeline, with every parallel operator at one call."""
    edits: list[Edit] = list(AS_WRITTEN)
    for node in pipeline:
        if node.argument("num_parallel_calls") is not None:
            edits.append(SetArgument(node.id, "num_parallel_calls", 1))
    return apply_edits(pipeline, edits)


def profile_input(
    source: live.LivePipeline, *, seconds: float = 1.5, limit_seconds: float = 6.0
) -> InputProfile:
    """Runs the pipeline alone at parallelism 1 for about `seconds` and reads the cost of each operator.

    A slow pipeline runs on until it has put out three elements, or for `limit_seconds`.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    dataset = replay.replay(source, at_parallelism_one(source.pipeline))
    windows.settle()
    iterator: Any = None
    try:
        with failures.told():
            started = time.perf_counter()
            running = windows.endless(dataset)
            repeated = running is not dataset
            iterator = iter(running)
            try:
                next(iterator)
            except StopIteration:
                raise RunFailed("The dataset is empty.") from None
            first_seconds = time.perf_counter() - started
            readings = _Readings(source.pipeline, repeated=repeated)
            readings.take(iterator, count=False)
            cpu, wall, count = time.process_time(), time.perf_counter(), 0
            polled, pause, draw = wall, 0.0, random.Random(0)
            epoch = int(dataset.cardinality()) if repeated else 0
            while (
                count < 3 and time.perf_counter() - wall < limit_seconds
            ) or time.perf_counter() - wall < seconds:
                next(iterator)
                count += 1
                since = time.perf_counter() - polled
                # At the end of an epoch the shares of all operators are those of the whole epoch. Operators that end
                # earlier, upstream of a buffer, are seen at other, random moments, independent of the epochs.
                ending = epoch > 0 and (count + 1) % epoch == (epoch - 1) % epoch
                if since > pause or (ending and since > _POLL_SECONDS[0]):
                    readings.take(iterator)
                    polled, pause = time.perf_counter(), draw.uniform(*_POLL_SECONDS)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            readings.take(iterator)
    finally:
        del iterator
        windows.settle()
    counters = complete(source.pipeline, readings.counters, outputs=count, repeated=repeated)
    notes = (
        () if readings.counters else ("The runtime shows no model of this pipeline; no cost per operator.",)
    )
    return InputProfile(
        operators=tuple(_operator_profiles(source.pipeline, counters, cpu, count)),
        cpu_seconds=cpu / count,
        wall_seconds=wall / count,
        first_seconds=first_seconds,
        notes=notes,
    )


def stage_of(pipeline: Pipeline, node: Node) -> Stage:
    """Extract is reading, up to the last reader; load only passes elements through; transform is the rest."""
    if not node.inputs or node.op in _SOURCES:
        return Stage.EXTRACT
    if node.function is not None and _READERS.intersection(node.function.operations):
        return Stage.EXTRACT
    below = pipeline.downstream(node.id)
    if (
        any(other.op in ("interleave", "flat_map") and other.inner for other in below)
        and node.function is None
    ):
        return Stage.EXTRACT
    if node.op in ("interleave", "flat_map") and (
        node.function and (node.function.reads_files or node.function.python)
    ):
        return Stage.EXTRACT
    return Stage.LOAD if node.op in _LOAD else Stage.TRANSFORM


def _operator_profiles(
    pipeline: Pipeline, counters: Mapping[str, Counters], cpu_seconds: float, outputs: int
) -> Iterator[OperatorProfile]:
    total = sum(counter.seconds for counter in counters.values())
    scale = min(1.0, cpu_seconds / total) if total > 0 else 1.0
    overhead = _call_overhead(pipeline, counters, max(0.0, cpu_seconds - total))
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
            random=bool(node.function and node.function.random) or facts(node.op).random,
            python=bool(node.function and node.function.python),
            inside=_shares(counter.inside) if node.inner else None,
        )


def _shares(inside: Mapping[str, float]) -> dict[str, float] | None:
    """Shares of an operator's time by the operators inside its function, at least 1 %; "" is the rest, its own."""
    told = {name: share for name, share in inside.items() if share >= _LEAST_SHARE}
    return {**told, "": max(0.0, 1 - sum(told.values()))} if told else None


def _call_overhead(
    pipeline: Pipeline, counters: Mapping[str, Counters], missing_seconds: float
) -> dict[str, float]:
    """Distributes the CPU seconds that the runtime's model misses.

    For an operator with a function, the model counts only the kernels of the function (`CapturedFunction::Run` stops
    the operator's own clock), not the cost of starting and scheduling them: some microseconds per call and node of the
    function. So the missing seconds are attributed to these operators, in proportion to calls times nodes.
    """
    weights = {
        node.id: counters[node.id].elements * float(1 + node.function.size)
        for node in pipeline
        if node.function is not None and node.id in counters
    } or {name: counter.seconds for name, counter in counters.items()}
    total = sum(weights.values())
    return {name: missing_seconds * weight / total for name, weight in weights.items()} if total > 0 else {}


def _match(
    model: Any, number: int, pipeline: Pipeline, node: Node, assignment: dict[int, tuple[str, _Part]]
) -> None:
    """Walks the runtime's tree in parallel with the pipeline: runtime node -> (pipeline node, its role there).

    Nodes that only the runtime has are looked through; readers that an interleave opened are assigned to it.
    """
    found = model.nodes[number]
    if found.name not in names_in_runtime(node.op):
        if (
            node.op in ("with_options", "cache") and len(node.inputs) == 1
        ):  # no iterator of its own, or a full cache
            return _match(model, number, pipeline, pipeline[node.inputs[0]], assignment)
        for above in found.inputs:
            _match(model, above, pipeline, node, assignment)
        return None
    assignment[number] = (node.id, _Part.OPERATOR)
    wanted = [pipeline[name] for name in node.inputs]
    for above in found.inputs:
        counterpart = next((other for other in wanted if _leads_to(model, above, other)), None)
        if counterpart is not None:
            wanted.remove(counterpart)
            _match(model, above, pipeline, counterpart, assignment)
        else:
            _claim(model, above, (node.id, _Part.READER), assignment)
    return None


def _claim(
    model: Any, number: int, claim: tuple[str, _Part], assignment: dict[int, tuple[str, _Part]]
) -> None:
    assignment[number] = claim
    for above in model.nodes[number].inputs:
        _claim(model, above, (claim[0], _Part.INSIDE), assignment)


def _leads_to(model: Any, number: int, node: Node) -> bool:
    """Whether this input of a runtime node is the pipeline's node, or leads to it through nodes TensorFlow added."""
    names = names_in_runtime(node.op)
    while True:
        found = model.nodes[number]
        if found.name in names or node.op in ("with_options", "opaque"):
            return True
        if len(found.inputs) != 1 or found.name not in _ADDED:
            return False
        (number,) = found.inputs


_ADDED = frozenset(
    {"Root", "Options", "MaxIntraOpParallelism", "PrivateThreadPool", "Prefetch", "Model", "Finalize"}
)


def names_in_runtime(op: str) -> tuple[str, ...]:
    """The names that the runtime's model may use for this operator."""
    if op in _RUNTIME_NAMES:
        return _RUNTIME_NAMES[op]
    camel = "".join(part.capitalize() for part in op.split("_"))
    return (camel, camel + "V2", camel + "V3")
