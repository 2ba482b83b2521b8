"""Caches as windows read them: empty as in the first epoch, or full as in those after it.

A window ends long before a pass over the data does, and what it has put into a cache is discarded with its iterator. So
without this every window would show the first epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.errors import PipetuneError
from pipetune.core.pipeline import INFINITE, Pipeline
from pipetune.core.results import RunFailed
from pipetune.core.time_plan import CACHE_SECONDS
from pipetune.measure.machine import rss_bytes
from pipetune.measure.shuffles import seconds_per_element
from pipetune.model.caches import may_hold_part
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.timing.iterators import free_iterators

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
