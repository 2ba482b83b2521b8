"""The effect of a buffer between input and model when the input is bursty.

The last prefetch produces the next element while the model works, as long as its buffer has room. An input that is
fast enough on average but irregular (every eighth element opens a file) still makes the model wait if the
buffer is drained before the slow element is done. Modeled as a finite buffer between two servers, after Lindley (1952).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.model.stages import defaults_apply

_INJECTED = "experimental_optimization.inject_prefetch"
_LARGEST = 1024
_ENOUGH = 0.02  # of a step; a buffer that is within this of an unlimited one suffices


def output_buffer(pipeline: Pipeline) -> int | None:
    """Number of elements that are prepared ahead of the consumer; 0 for none, None if TensorFlow chooses the number.

    This is the buffer of the last prefetch, or of the one that TensorFlow appends to a pipeline that does not end
    in a prefetch.
    """
    node = pipeline.output
    while node.op == "with_options" and node.inputs:
        node = pipeline[node.inputs[0]]
    if node.op == "prefetch":
        size = node.argument("buffer_size")
        return size if isinstance(size, int) and size != AUTOTUNE else None
    if defaults_apply(pipeline) and pipeline.options.get(_INJECTED) is not False:
        return None
    ahead = any(
        other.op == "prefetch"
        or ((name := facts(other.op).parallel_argument) and other.argument(name) is not None)
        for other in pipeline
    )
    return None if ahead else 0


def step_seconds(intervals: Sequence[float], model_seconds: float, buffer: int | None) -> float:
    """Seconds per step of a model that is fed through a buffer.

    Args:
        intervals: seconds that the input takes for each of several consecutive elements; not empty. They are repeated.
        model_seconds: seconds per step of the model alone.
        buffer: size in elements; 0 means that input and model take turns, None that the buffer is unlimited.
    """
    mean = statistics.fmean(intervals)
    if buffer is None:
        return max(mean, model_seconds)
    if buffer == 0:
        return mean + model_seconds
    count = len(intervals)
    taken = [0.0] * (2 * count)  # time at which the model takes each element
    made = 0.0
    for index in range(2 * count):  # the first pass fills the buffer, the second is measured
        room = taken[index - buffer] if index >= buffer else 0.0
        made = max(made, room) + intervals[index % count]
        free = taken[index - 1] + model_seconds if index else 0.0
        taken[index] = max(made, free)
    return (taken[-1] - taken[count - 1]) / count


def buffer_that_suffices(intervals: Sequence[float], model_seconds: float) -> int | None:
    """The smallest power of two that is about as good as an unlimited buffer; None if none is."""
    goal = (1 + _ENOUGH) * step_seconds(intervals, model_seconds, None)
    size = 1
    while size <= min(_LARGEST, 2 * len(intervals)):
        if step_seconds(intervals, model_seconds, size) <= goal:
            return size
        size *= 2
    return None
