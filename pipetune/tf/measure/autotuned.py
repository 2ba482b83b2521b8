"""Reads the values that AUTOTUNE chose, per operator, from the runtime's own model while a pipeline runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune.core.autotuned import BUFFER_SIZE, PARALLELISM, AutotuneReading, TunedValue
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.measure import failures, windows
from pipetune.tf.measure.profiler import names_in_runtime

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_POLL_SECONDS = 0.05
_STILL_SECONDS = 0.8  # AUTOTUNE optimizes every 10 ms at first, then doubles the period each time, up to 60 s
_LOOKS_KEPT = 8
_STILL_SHARE = 0.3  # of the observed time: values that have not changed for this long count as converged

_NO_MODEL = "The runtime shows no model of this pipeline: AUTOTUNE is switched off, or it runs elsewhere."


class ParameterLog:
    """Record of the runtime's parameters over time: call `take` at every poll and `reading` at the end."""

    def __init__(self, *, repeated: bool, divided: bool = False) -> None:
        """Describes the operators that run downstream of the pipeline itself.

        Args:
            repeated: the window added the outermost repeat, and a prefetch that TensorFlow puts after it.
            divided: a strategy divides the elements and prefetches them, downstream of all of that.
        """
        self._repeated, self._divided = repeated, divided
        self._started: float | None = None
        self._models: deque[Any] = deque(maxlen=_LOOKS_KEPT)
        self._first: dict[tuple[int, str], float] = {}
        self._last: dict[tuple[int, str], float] = {}
        self._moved: dict[tuple[int, str], float] = {}
        self.seconds = 0.0

    def take(self, iterator: Any) -> None:
        """Reads the current parameters; the clock of the log starts at the first call."""
        now = time.perf_counter()
        if self._started is None:
            self._started = now
        try:
            model = tf.data.experimental.get_model_proto(iterator)
        except (tf.errors.OpError, ValueError):
            return
        self._models.append(model)
        self.seconds = now - self._started
        for number, node in model.nodes.items():
            for one in node.parameters:
                key, value = (number, one.name), windows.in_force(one)
                self._first.setdefault(key, value)
                if self._last.get(key, value) != value:
                    self._moved[key] = self.seconds
                self._last[key] = value

    @property
    def still_seconds(self) -> float:
        """Seconds since a parallelism value last changed."""
        moved = [when for (_, name), when in self._moved.items() if name == PARALLELISM]
        return self.seconds - max(moved, default=0.0)

    def reading(self, pipeline: Pipeline) -> AutotuneReading:
        """Returns the recorded values, each with the operator of `pipeline` it belongs to."""
        if not self._models:
            return AutotuneReading(note=_NO_MODEL)
        model, chain = self._fullest(pipeline)
        found = []
        kernels: dict[str, str] = {}
        for number, node_id in chain:
            runtime = model.nodes[number]
            if node_id:
                kernels[node_id] = runtime.name
            for one in runtime.parameters:
                if one.name not in (PARALLELISM, BUFFER_SIZE):
                    continue
                key = (number, one.name)
                found.append(
                    TunedValue(
                        node=node_id,
                        kernel=runtime.name,
                        parameter=one.name,
                        value=windows.in_force(one),
                        low=float(one.min),
                        high=float(one.max),
                        tunable=bool(one.tunable),
                        first=self._first.get(key),
                        moved_seconds=self._moved.get(key),
                    )
                )
        still = self.still_seconds >= min(_STILL_SECONDS, _STILL_SHARE * self.seconds)
        return AutotuneReading(tuple(found), self.seconds, still and self.seconds > 0, kernels=kernels)

    def _fullest(self, pipeline: Pipeline) -> tuple[Any, list[tuple[int, str]]]:
        """The recent model that shows the most operators, the newest of equals: between epochs some are missing."""
        looks: list[tuple[Any, list[tuple[int, str]]]] = []
        for model in reversed(self._models):
            found = runtime_operators(model, pipeline, repeated=self._repeated, divided=self._divided)
            looks.append((model, list(found)))
        return max(looks, key=lambda look: len({node_id for _, node_id in look[1]}))


def watch(dataset: Any, *, seconds: float) -> ParameterLog:
    """Consumes `dataset` until its parallelism values are stable, for at least half of `seconds` and at most all of it.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    windows.settle()
    log = ParameterLog(repeated=not windows.is_endless(dataset))
    iterator: Any = None
    try:
        with failures.told():
            iterator = iter(windows.endless(dataset))
            next(iterator)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                log.take(iterator)
                if log.still_seconds >= _STILL_SECONDS and log.seconds >= seconds / 2:
                    break
                turn = time.perf_counter() + _POLL_SECONDS
                while time.perf_counter() < turn:
                    next(iterator)
            log.take(iterator)
    finally:
        del iterator
        windows.settle()
    return log


def runtime_operators(
    model: Any, pipeline: Pipeline, *, repeated: bool, divided: bool = False
) -> Iterator[tuple[int, str]]:
    """Yields runtime nodes from the output upstream, each with the operator of `pipeline` it runs; see `_chain`.

    `repeated` and `divided` are as in `ParameterLog`.
    """
    yield from _chain(model, pipeline, _top(model, repeated=repeated, divided=divided))


def _undivided(model: Any) -> int:
    """The runtime node upstream of the rebatch by which a strategy divides elements; the output node without one."""
    number = int(model.output)
    while len(model.nodes[number].inputs) == 1:
        name, number = model.nodes[number].name, int(model.nodes[number].inputs[0])
        if name.startswith("Rebatch"):
            return number
    return int(model.output)


def _top(model: Any, *, repeated: bool, divided: bool) -> int:
    """The runtime node that delivers elements to the consumer; upstream of the window's own repeat if it added one."""
    output = top = _undivided(model) if divided else int(model.output)
    while repeated and len(model.nodes[top].inputs) == 1:
        name = model.nodes[top].name
        top = int(model.nodes[top].inputs[0])
        if name in names_in_runtime("repeat"):
            return top
    return top if not repeated else output


def _chain(model: Any, pipeline: Pipeline, top: int) -> Iterator[tuple[int, str]]:
    """Yields runtime nodes from the output upstream, each with the operator it runs; '' for one that TensorFlow added.

    A kernel that fuses two operators counts for the upstream one; the other is skipped. The walk ends where nothing
    matches any more: a value is shown under its own operator or not at all.
    """
    todo: list[tuple[int, str]] = [(top, pipeline.output.id)]
    while todo:
        number, node_id = todo.pop()
        runtime = model.nodes[number]
        fitting = _fitting(runtime.name, pipeline, node_id)
        if fitting is None:
            if runtime.name not in _ADDED:
                continue
            yield number, ""
            todo.extend((above, node_id) for above in runtime.inputs)
            continue
        node, nexts = fitting
        yield number, node.id
        if len(nexts) == 1 and node.op not in _OPENING:
            todo.extend((above, nexts[0]) for above in runtime.inputs)
        elif len(nexts) == len(runtime.inputs):
            todo.extend(zip(runtime.inputs, nexts, strict=True))
        elif node.op in _OPENING:  # its input is listed among the readers it opened
            todo.extend(
                (above, name)
                for name in nexts
                for above in runtime.inputs
                if model.nodes[above].name in (*names_in_runtime(pipeline[name].op), *_ADDED)
            )


def _fitting(kernel: str, pipeline: Pipeline, node_id: str) -> tuple[Node, tuple[str, ...]] | None:
    """The operator at or upstream of `node_id` that `kernel` runs, and the inputs of that operator; None if none."""
    node = pipeline[node_id]
    while node.op in _WITHOUT_ITERATOR and kernel not in names_in_runtime(node.op) and len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
    if kernel == "MapAndBatch" and node.op == "batch":
        above = pipeline[node.inputs[0]]
        return (above, above.inputs) if above.op == "map" else None
    if kernel.startswith("ShuffleAndRepeat") and node.op == "repeat":
        above = pipeline[node.inputs[0]]
        return (above, above.inputs) if above.op == "shuffle" else None
    if kernel in names_in_runtime(node.op):
        return node, node.inputs
    return None


_WITHOUT_ITERATOR = frozenset({"with_options", "assert_cardinality", "cache"})
_OPENING = frozenset({"interleave", "flat_map"})
_ADDED = frozenset({"Root", "Options", "MaxIntraOpParallelism", "PrivateThreadPool", "Prefetch", "Model", "Finalize"})
