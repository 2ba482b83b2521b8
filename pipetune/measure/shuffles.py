"""Shuffle buffers that are cut for measuring: filling one may take longer than a window, and tells nothing about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from pipetune.core.edits import SetArgument, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.measure import prefixes
from pipetune.pipelines import live, replay
from pipetune.timing.iterators import iterating

_FILL_SECONDS = 0.1
"""Of one buffer, at most. A window takes 0.3 to 1 s, and each begins with a new iterator. Measured on the photos
example with a map made parallel: 256 elements, 1.92 times as fast; cut to 32 elements in both, 1.96 times."""

_FEWEST_ELEMENTS = 32  # kept of a buffer: with fewer, elements may still be in the processor's cache when they leave


@dataclass(frozen=True)
class CutBuffers:
    """A pipeline with smaller shuffle buffers; the cost of an element is the same."""

    source: live.LivePipeline  # with these buffers; its nodes have the ids of the original
    sizes: Mapping[str, int] = field(default_factory=dict)  # elements of every buffer that was cut, by node id
    fill_seconds: float = 0.0  # that the original buffers take longer to fill

    def applied_to(self, pipeline: Pipeline) -> Pipeline:
        """Returns an edited form of the original pipeline with its larger buffers cut in the same way."""
        return with_smaller_shuffles(pipeline, self.sizes)


def with_smaller_shuffles(pipeline: Pipeline, sizes: Mapping[str, int]) -> Pipeline:
    """Returns the pipeline with shuffle buffers of at most these sizes, by node id."""
    edits = []
    for node in pipeline:
        current, size = node.argument("buffer_size"), sizes.get(node.id)
        if node.op == "shuffle" and size is not None and isinstance(current, int) and current > size:
            edits.append(SetArgument(node.id, "buffer_size", size))
    return apply_edits(pipeline, edits)


def cut_buffers(source: live.LivePipeline, counts: Mapping[str, int] = MappingProxyType({})) -> CutBuffers:
    """Returns the pipeline with every shuffle buffer cut that takes long to fill; draws some elements to see which do.

    The buffer of a shuffle upstream of a cache is not cut: what is in the cache would have to be computed anew.

    Args:
        source: the live pipeline.
        counts: elements per epoch by node id, for operators that were counted: a buffer holds no more.
    """
    cut = CutBuffers(source)
    for node in source.pipeline:
        if node.op != "shuffle":
            continue
        if any(below.op in ("cache", "snapshot") for below in source.pipeline.downstream(node.id)):
            continue
        size, above = node.argument("buffer_size"), source.pipeline[node.inputs[0]]
        rows = counts.get(above.id, above.cardinality)
        if not isinstance(size, int) or size <= _FEWEST_ELEMENTS:
            continue
        size = min(size, rows) if rows > 0 else size
        seconds = seconds_per_element(cut.source.datasets[node.inputs[0]], most=size)
        kept = max(_FEWEST_ELEMENTS, int(_FILL_SECONDS / seconds)) if seconds > 0 else size
        if kept < size:
            sizes = {**cut.sizes, node.id: kept}
            cut = with_buffers(source, sizes, fill_seconds=cut.fill_seconds + (size - kept) * seconds)
    return cut


def with_buffers(source: live.LivePipeline, sizes: Mapping[str, int], *, fill_seconds: float = 0.0) -> CutBuffers:
    """Returns the pipeline with shuffle buffers of at most these sizes; as it is if it cannot be rebuilt."""
    if not sizes:
        return CutBuffers(source)
    pipeline = with_smaller_shuffles(source.pipeline, sizes)
    try:
        datasets = replay.replay_nodes(source, pipeline)
    except (CannotReplay, tf.errors.OpError, ValueError, TypeError):
        return CutBuffers(source)
    return CutBuffers(live.LivePipeline.of(pipeline, datasets), sizes, fill_seconds)


_GROUPS = (1, 16, 256)  # elements per call: taking one from Python costs some 50 microseconds
_STARTS = 4  # times the permitted time: if iterators take that long to start, as behind a shuffle, no other is made
_LONG_CALL = 0.001  # seconds of a call, beside which those of Python count little
_CALLS = 16  # with each group but the last, before the next one is worth it


def seconds_per_element(dataset: Any, *, most: int, seconds: float = _FILL_SECONDS) -> float:
    """Returns the seconds between two elements, without the start; 0 if `most` elements come within these `seconds`.

    Errors are left to the first window, which reports them.
    """
    each, latest = 0.0, time.perf_counter() + _STARTS * seconds
    for group in _GROUPS:
        calls = _CALLS if group < _GROUPS[-1] else most // group
        try:
            groups = prefixes.every_nth_element(dataset, group, dataset.options())
            each = _seconds_per_call(groups, calls, seconds) / group
        except (StopIteration, tf.errors.OpError, ValueError, TypeError):
            break
        late = time.perf_counter() > latest and each * group > _LONG_CALL
        if each * group * calls > seconds or group * calls >= most or late:
            break
    return each if each * most > seconds else 0.0


def _seconds_per_call(dataset: Any, calls: int, seconds: float) -> float:
    """Returns the seconds that a call of `next` takes after the first: of up to `calls`, for about `seconds`.

    Raises:
        StopIteration: there are fewer elements.
    """
    with iterating(dataset) as iterator:
        next(iterator)
        count, passed, started = 0, 0.0, time.perf_counter()
        while count < calls and passed <= seconds:
            next(iterator)
            count, passed = count + 1, time.perf_counter() - started
        return passed / max(count, 1)
