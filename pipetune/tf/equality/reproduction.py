"""Checks whether a pipeline yields the same data twice, and hashes its data comparably across processes."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from pipetune.core import scratch
from pipetune.tf import private
from pipetune.tf.equality import elements
from pipetune.tf.equality.pinning import CannotPin, Pins, pinned
from pipetune.tf.pipelines import live

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


UNREADABLE = (CannotPin, elements.Unreadable, tf.errors.OpError, ValueError, TypeError, NotImplementedError)
"""Exceptions that `digests` raises if a pipeline cannot be made reproducible."""


def digests(dataset: Any, *, count: int, seed: int = 0, time_limit_seconds: float = 20.0) -> list[str]:
    """One hash per element, for the first `count` elements, with all randomness pinned.

    The hashes are the same in every process that builds the pipeline from the same functions, whatever its
    parallelism, prefetches and caches.

    Raises:
        CannotPin: something random cannot be fixed.
        tensorflow.errors.OpError: the dataset cannot be serialized.
    """
    return _pinned_run(dataset, count=count, seed=seed, seconds=time_limit_seconds).digests


def reproducible(
    source: live.LivePipeline, *, count: int = 64, time_limit_seconds: float = 5.0, seed: int = 0
) -> tuple[bool, str]:
    """Whether two runs of the original pipeline with fixed seeds yield the same elements; if not, why.

    The reason is a phrase that starts with "not reproducible, because", else ''.
    """
    for node in source.pipeline:
        if node.function is not None and node.function.random_python and node.op != "from_generator":
            return False, _because(f"{node.title} draws from a generator whose state outlives the pipeline")
    half = time_limit_seconds / 2
    try:
        first = _pinned_run(source.dataset, count=count, seed=seed, seconds=half)
        second = _pinned_run(source.dataset, count=len(first.hashes) + first.complete, seed=seed, seconds=half)
    except (elements.Unreadable, CannotPin) as error:
        return False, _because(str(error))
    except (tf.errors.OpError, NotImplementedError, ValueError, TypeError) as error:
        return False, _because(f"the pipeline cannot be serialised ({type(error).__name__})")
    both = min(len(first.hashes), len(second.hashes))
    if second.complete and len(second.hashes) < len(first.hashes):
        return False, _because(
            f"its second run ended after {len(second.hashes)} elements, the first gave {len(first.hashes)}"
            + (": the source can be read only once" if _generators(source) else "")
        )
    if first.hashes[:both] == second.hashes[:both]:
        return True, ""
    return False, _because(_suspect(source))


def _pinned_run(dataset: Any, *, count: int, seed: int, seconds: float) -> elements.Drawn:
    with scratch.folder("digests") as folder:
        graph = private.serialized_graph(dataset)
        fixed = pinned(graph, dataset.element_spec, Pins(seed), folder=f"{folder}/cache")
        return elements.draw(fixed.dataset, count=count, deadline=time.monotonic() + seconds)


def _generators(source: live.LivePipeline) -> list[str]:
    return [node.title for node in source.pipeline if node.op == "from_generator"]


def _suspect(source: live.LivePipeline) -> str:
    """The most likely reason why two runs differ."""
    for node in source.pipeline:
        if node.op == "from_generator":
            return "the generator gives something else each time it is started"
        function = node.function
        if function is not None and function.python:
            return f"the Python function of {node.title} gives something else for the same element"
        if function is not None and (function.writes_variables or function.mutable_tables):
            return f"{node.title} changes a variable or a table it reads"
    return "two runs with the same seeds differ"


def _because(reason: str) -> str:
    return f"not reproducible, because {reason}"
