"""Caches and shuffle buffers as windows read them: a cache empty as in the first epoch or full as in those after it, a
buffer cut where filling it may take longer than a window.

A window ends long before a pass over the data does, and what it has put into a cache is discarded with its iterator. So
without this every window would show the first epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.edits import SetArgument, apply_edits
from pipetune.core.errors import CannotReplay, PipetuneError
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import INFINITE, Pipeline
from pipetune.core.time_plan import CACHE_SECONDS
from pipetune.measure import prefixes
from pipetune.measure.machine import rss_bytes
from pipetune.model.segments import may_hold_part
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.timing.iterators import free_iterators, iterating

_FILL_SECONDS = 0.1
"""Of one buffer, at most. A window takes 0.3 to 1 s, and each begins with a new iterator. Measured on the photos
example with a map made parallel: 256 elements, 1.92 times as fast; cut to 32 elements in both, 1.96 times."""

_FEWEST_IN_A_BUFFER = 32  # kept of a buffer: with fewer, elements may still be in the processor's cache when they leave


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
        if not isinstance(size, int) or size <= _FEWEST_IN_A_BUFFER:
            continue
        size = min(size, rows) if rows > 0 else size
        seconds = seconds_per_element(cut.source.datasets[node.inputs[0]], most=size)
        kept = max(_FEWEST_IN_A_BUFFER, int(_FILL_SECONDS / seconds)) if seconds > 0 else size
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


_UNKNOWN_COUNT = 1 << 20  # elements to draw from, at most, where nobody knows how many there are
_CLEARLY = 0.25  # of the seconds for all elements: what takes less by a short look takes less in any case
_LOOK_SECONDS = 0.5  # to see how long an element takes: in less, what was ready before the first one may be all
_PART_BYTES = 512 << 20  # of a part, by judgement: no cache of a processor holds as much
_PART_SHARE = 0.3  # of the seconds for all elements: for a part of them
_UNKNOWN_BYTES = 1 << 17  # of an element of unknown size: an image of 200 pixels by 200
_FEWEST_ELEMENTS = 2  # of a part: a first element takes longer than what follows, and may be all that is drawn
_FILL_CHUNK = 256  # elements that fill a cache per Python step: with two logical devices a step of one takes 0.5 ms
_FILL_LOOK_SECONDS = 0.25  # between two looks at the clock while a cache is filled
_FILL_LIMIT_SECONDS = 60.0  # to fill one cache, by judgement: slower plans fail, a longer limit takes trial time


@dataclass(frozen=True)
class FullCaches:
    """A pipeline whose caches are full, or hold a part of the elements, which is repeated: each costs the same."""

    pipeline: Pipeline
    datasets: Mapping[str, Any]  # by node id, as `replay_nodes` returns them
    seconds: float = 0.0  # that it takes to fill them with all elements
    at_least: bool = False  # whether it takes longer: nobody knows how many elements there are

    @property
    def live(self) -> live.LivePipeline:
        """The pipeline with these datasets."""
        return live.LivePipeline.of(self.pipeline, self.datasets)


def with_empty_caches(source: live.LivePipeline) -> live.LivePipeline:
    """Returns the pipeline with memory caches of its own, which are empty; those of the script stay as they are.

    It is `source` itself if it has none. A cache in a file belongs to the user, and is the same one.

    Raises:
        RunFailed: the pipeline cannot be rebuilt.
    """
    copy = source
    for node in source.pipeline:
        if node.op != "cache" or node.argument("filename"):
            continue
        datasets = _rebuilt(copy, copy.pipeline, {node.id: copy.datasets[node.inputs[0]].cache()})
        copy = live.LivePipeline.of(copy.pipeline, datasets)
    return copy


def with_full_caches(
    source: live.LivePipeline, *, seconds: float = CACHE_SECONDS, most_bytes: float | None = None
) -> FullCaches:
    """Returns the pipeline with memory caches of its own, which are full, as `with_empty_caches` does.

    Args:
        source: the script's pipeline.
        seconds: as in `filled`.
        most_bytes: as in `filled`.

    Raises:
        RunFailed: as in `filled`, or the pipeline cannot be rebuilt.
    """
    empty = with_empty_caches(source)
    ids = [cache.id for cache in empty.pipeline.memory_caches]
    return filled(empty, empty.pipeline, empty.datasets, ids, seconds=seconds, limit=2 * seconds, most_bytes=most_bytes)


def filled(
    source: live.LivePipeline,
    pipeline: Pipeline,
    datasets: Mapping[str, Any],
    caches: Iterable[str],
    *,
    seconds: float = CACHE_SECONDS,
    limit: float = _FILL_LIMIT_SECONDS,
    most_bytes: float | None = None,
) -> FullCaches:
    """Fills caches of a pipeline, and returns the pipeline in which they are full.

    Where it would take too long, a cache gets a part of the elements, which are repeated endlessly: reading them takes
    as long as reading all. A cache in a file gets all of them, and so does one whose elements cannot be repeated.

    Args:
        source: the live pipeline that `pipeline` is an edit of.
        pipeline: the pipeline.
        datasets: of its nodes, as `replay_nodes(source, pipeline)` returns them; its caches are empty.
        caches: ids of those to be filled.
        seconds: what filling one with all elements may take, where a part will do; three tenths of it for the part.
        limit: what filling one with all elements may take where no part will do.
        most_bytes: what the process may hold meanwhile; None: no limit.

    Raises:
        RunFailed: the pipeline has raised, cannot be rebuilt, or a cache takes too long or too much memory.
    """
    given: dict[str, Any] = {}
    total, at_least = 0.0, False
    wanted = set(caches)
    for name in (node.id for node in pipeline if node.id in wanted):
        (upstream,) = pipeline[name].inputs
        above, dataset = pipeline[upstream], datasets[upstream]
        known, most = above.cardinality > 0, above.cardinality if above.cardinality > 0 else _UNKNOWN_COUNT
        each = seconds_per_element(dataset, most=most)
        if most * each > _CLEARLY * seconds:
            each = seconds_per_element(dataset, most=most, seconds=_LOOK_SECONDS)
        # Upstream may be a part of another cache's elements, which never ends.
        ends = int(dataset.cardinality()) != INFINITE or above.cardinality == INFINITE
        if not may_hold_part(pipeline, name) or (most * each <= seconds and ends):
            if known and most * each > limit:
                raise RunFailed(f"Filling the cache would take about {most * each:.0f} s.")
            total += fill_cache(datasets[name], seconds=limit, element_seconds=each, most_bytes=most_bytes)
            given[name] = datasets[name]  # or another cache's part would have it rebuilt, and empty
            continue
        fitting = int(_PART_BYTES / (above.element_bytes or _UNKNOWN_BYTES))
        count = max(_FEWEST_ELEMENTS, min(most, fitting, int(_PART_SHARE * seconds / max(each, 1e-9))))
        part = dataset.take(count).cache()
        spent = fill_cache(part, element_seconds=each, most_bytes=most_bytes)
        is_part = any(True for _ in part.skip(count - 1).take(1))  # else the elements ended before
        total += spent * most / count if known else spent
        at_least |= is_part and not known
        given[name] = part.repeat() if is_part else part
        datasets = _rebuilt(source, pipeline, given)
    return FullCaches(pipeline, datasets, total, at_least)


def counted(full: FullCaches) -> dict[str, int]:
    """Returns how many elements caches hold of which TensorFlow does not know it, by node id; not of a part."""
    unknown = [] if full.at_least else [cache.id for cache in full.pipeline.memory_caches if cache.cardinality < 0]
    return {name: int(full.datasets[name].reduce(np.int64(0), lambda count, *_: count + 1)) for name in unknown}


def fill_cache(
    dataset: Any, *, seconds: float = _FILL_LIMIT_SECONDS, element_seconds: float = 0.0, most_bytes: float | None = None
) -> float:
    """Reads a dataset that ends in a cache to its end once; returns the seconds that it took.

    Args:
        dataset: the dataset.
        seconds: what it may take.
        element_seconds: what an element takes, if it is known: the limits are looked at four times per second.
        most_bytes: what the process may hold meanwhile; None: no limit.

    Raises:
        RunFailed: the dataset raised, or took too long or too much memory.
    """
    chunk = max(1, min(_FILL_CHUNK, int(_FILL_LOOK_SECONDS / element_seconds))) if element_seconds else _FILL_CHUNK
    begun = time.perf_counter()
    try:
        for _ in _chunks(dataset, chunk):
            if time.perf_counter() > begun + seconds:
                raise RunFailed(f"Filling the cache took longer than {seconds:.0f} s.")
            if most_bytes is not None and rss_bytes() > most_bytes:
                raise RunFailed("The cache holds more than fits into memory.")
    except tf.errors.OpError as error:
        raise RunFailed(f"The pipeline raised while the cache was filled: {error.message[:200]}") from error
    free_iterators()
    return time.perf_counter() - begun


def _chunks(dataset: Any, size: int) -> Any:
    """Returns a dataset with one element for each chunk of elements of another.

    Windows only point to the elements. A function called for each of 1.3 million numbers took four times as long.
    """

    def zero(*_: Any) -> Any:
        return tf.constant(0, tf.int8)

    try:
        return dataset.window(size).map(zero)
    except NotImplementedError:  # a type of the user's own without a shape
        return dataset.map(zero).batch(size)


def _rebuilt(source: live.LivePipeline, pipeline: Pipeline, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the datasets of a pipeline with other caches, by node id.

    Raises:
        RunFailed: it cannot be rebuilt.
    """
    try:
        return replay.replay_nodes(source, pipeline, replacements=given)
    except (PipetuneError, tf.errors.OpError, ValueError, TypeError) as error:
        raise RunFailed(f"The pipeline cannot be rebuilt with another cache: {first_line(error)}") from error
