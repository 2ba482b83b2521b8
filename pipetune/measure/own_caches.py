"""The memory caches that the script itself has: empty as in its first epoch, or full as in those after it.

A window ends long before a pass over the data does, and what it has put into a cache is discarded with its iterator. So
without this every window would show the first epoch.
"""

from __future__ import annotations

import tensorflow as tf

from pipetune.core.errors import PipetuneError
from pipetune.core.results import RunFailed
from pipetune.measure.runner import fill_caches
from pipetune.measure.shuffles import seconds_per_element
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line

_UNKNOWN_COUNT = 1 << 20  # elements to draw from, at most, where nobody knows how many there are


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
        try:
            empty = copy.datasets[node.inputs[0]].cache()
            datasets = replay.replay_nodes(copy, copy.pipeline, replacements={node.id: empty})
        except (PipetuneError, tf.errors.OpError, ValueError, TypeError) as error:
            raise RunFailed(f"The pipeline cannot be rebuilt with another cache: {first_line(error)}") from error
        copy = live.LivePipeline(copy.pipeline, {one.id: datasets[one.id] for one in copy.pipeline})
    return copy


def with_full_caches(
    source: live.LivePipeline, *, seconds: float, most_bytes: float | None = None
) -> live.LivePipeline:
    """Returns the pipeline with memory caches of its own, which are full, as `with_empty_caches` does.

    Args:
        source: the script's pipeline.
        seconds: what filling them may take. Where the number of elements is known, nothing is filled if it would take
            longer.
        most_bytes: what the process may hold meanwhile; None: no limit.

    Raises:
        RunFailed: the pipeline cannot be rebuilt, or has raised, or its caches take too long or too much memory.
    """
    copy = with_empty_caches(source)
    for cache in copy.pipeline.memory_caches:
        above = copy.pipeline[cache.inputs[0]]
        most = above.cardinality if above.cardinality > 0 else _UNKNOWN_COUNT
        each = seconds_per_element(copy.datasets[above.id], most=most)
        if above.cardinality > 0 and above.cardinality * each > seconds:
            raise RunFailed(f"Filling the cache would take about {above.cardinality * each:.0f} s.")
        fill_caches([copy.datasets[cache.id]], seconds=seconds, element_seconds=each, most_bytes=most_bytes)
    return copy
