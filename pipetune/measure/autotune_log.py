"""Reads the values that AUTOTUNE chose, per operator, from the runtime's own model while a pipeline runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune.core.operators import FLATTENING
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AutotuneValues, TunedValue
from pipetune.measure.profiler import ADDED_OPERATORS, runtime_names, upstream_of
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators, iterating

_POLL_SECONDS = 0.05  # between two readings, by judgement: longer dates a change less exactly, shorter costs time
_STABLE_SECONDS = 0.8  # AUTOTUNE optimizes every 10 ms at first, then doubles the period each time, up to 60 s
_MODELS_KEPT = 8  # latest readings, by judgement: enough to find one in which no operator is missing between epochs
_STABLE_SHARE = 0.3  # of the observed time: values that have not changed for this long count as converged

_NO_MODEL = (
    "TensorFlow's runtime has no model of this pipeline: AUTOTUNE is disabled, or the pipeline runs in another process."
)


class ParameterLog:
    """Record of the runtime's parameters over time: call `poll` repeatedly and `reading` at the end."""

    def __init__(self, *, repeated: bool, divided: bool = False) -> None:
        """Describes the operators that run downstream of the pipeline itself.

        Args:
            repeated: whether the window added the outermost repeat, after which TensorFlow inserts a prefetch.
            divided: whether a strategy divides and prefetches the elements, downstream of all that.
        """
        self._repeated, self._divided = repeated, divided
        self._started: float | None = None
        self._models: deque[Any] = deque(maxlen=_MODELS_KEPT)
        self._first: dict[tuple[int, str], float] = {}
        self._last: dict[tuple[int, str], float] = {}
        self._moved: dict[tuple[int, str], float] = {}
        self.seconds = 0.0

    def poll(self, iterator: Any) -> None:
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
                key, value = (number, one.name), windows.effective_value(one)
                self._first.setdefault(key, value)
                if self._last.get(key, value) != value:
                    self._moved[key] = self.seconds
                self._last[key] = value

    @property
    def stable_seconds(self) -> float:
        """Seconds since a parallelism value last changed."""
        moved = [when for (_, name), when in self._moved.items() if name == PARALLELISM]
        return self.seconds - max(moved, default=0.0)

    def reading(self, pipeline: Pipeline) -> AutotuneValues:
        """Returns the recorded values, each with the operator of `pipeline` it belongs to."""
        if not self._models:
            return AutotuneValues(note=_NO_MODEL)
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
                        value=windows.effective_value(one),
                        low=float(one.min),
                        high=float(one.max),
                        tunable=bool(one.tunable),
                        first=self._first.get(key),
                        moved_seconds=self._moved.get(key),
                    )
                )
        still = self.stable_seconds >= min(_STABLE_SECONDS, _STABLE_SHARE * self.seconds)
        return AutotuneValues(tuple(found), self.seconds, still and self.seconds > 0, kernels=kernels)

    def _fullest(self, pipeline: Pipeline) -> tuple[Any, list[tuple[int, str]]]:
        """Returns the recent model with the most operators, the newest of equals: between epochs some are missing."""
        looks: list[tuple[Any, list[tuple[int, str]]]] = []
        for model in reversed(self._models):
            top = int(model.output)
            if self._divided:  # a strategy divides elements by a rebatch
                top = upstream_of(model, top, lambda name: name.startswith("Rebatch"))
            if self._repeated:  # by the window: the pipeline itself is upstream of that
                top = upstream_of(model, top, lambda name: name in runtime_names("repeat"))
            looks.append((model, list(_chain(model, pipeline, top))))
        return max(looks, key=lambda look: len({node_id for _, node_id in look[1]}))


def log_parameters(dataset: Any, *, seconds: float) -> ParameterLog:
    """Consumes `dataset` until its parallelism values are stable, and returns the log of its parameters.

    Args:
        dataset: the dataset; it is repeated indefinitely.
        seconds: longest observation; the shortest is half of it.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    free_iterators()
    log = ParameterLog(repeated=not windows.is_endless(dataset))
    with windows.as_run_failed(), iterating(windows.repeat_forever(dataset)) as iterator:
        next(iterator)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            log.poll(iterator)
            if log.stable_seconds >= _STABLE_SECONDS and log.seconds >= seconds / 2:
                break
            windows.consume(iterator, _POLL_SECONDS, fewest=0)
        log.poll(iterator)
    return log


def _chain(model: Any, pipeline: Pipeline, top: int) -> Iterator[tuple[int, str]]:
    """Yields runtime nodes from the output upstream, each with the operator it runs; '' for one that TensorFlow added.

    A kernel that fuses two operators counts for the upstream one; the other is skipped. The walk ends at the first node
    without a match, so that no value is shown under a wrong operator.
    """
    todo: list[tuple[int, str]] = [(top, pipeline.output.id)]
    while todo:
        number, node_id = todo.pop()
        runtime = model.nodes[number]
        fitting = _fitting(runtime.name, pipeline, node_id)
        if fitting is None:
            if runtime.name in ADDED_OPERATORS:
                yield number, ""
                todo.extend((above, node_id) for above in runtime.inputs)
            continue
        node, nexts = fitting
        yield number, node.id
        if len(nexts) == 1 and node.op not in FLATTENING:
            todo.extend((above, nexts[0]) for above in runtime.inputs)
        elif len(nexts) == len(runtime.inputs):
            todo.extend(zip(runtime.inputs, nexts, strict=True))
        elif node.op in FLATTENING:  # its input is listed among the readers it opened
            todo.extend(
                (above, name)
                for name in nexts
                for above in runtime.inputs
                if model.nodes[above].name in (*runtime_names(pipeline[name].op), *ADDED_OPERATORS)
            )


def _fitting(kernel: str, pipeline: Pipeline, node_id: str) -> tuple[Node, tuple[str, ...]] | None:
    """Returns the operator at or upstream of `node_id` that `kernel` runs, with its inputs; None if there is none."""
    node = pipeline[node_id]
    while node.op in _WITHOUT_ITERATOR and kernel not in runtime_names(node.op) and len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
    if kernel == "MapAndBatch" and node.op == "batch":
        above = pipeline[node.inputs[0]]
        return (above, above.inputs) if above.op == "map" else None
    if kernel.startswith("ShuffleAndRepeat") and node.op == "repeat":
        above = pipeline[node.inputs[0]]
        return (above, above.inputs) if above.op == "shuffle" else None
    if kernel in runtime_names(node.op):
        return node, node.inputs
    return None


_WITHOUT_ITERATOR = frozenset({"with_options", "assert_cardinality", "cache"})
