"""What makes a step longer than the model needs: a slow operator, Python, a buffer, shared processors.

Derived from the three measurements of a step (`ConsumerProfile`). If even a perfectly overlapped input would be too
slow, the operator that binds the input is the cause. Otherwise the overlap is imperfect: nothing is prepared ahead,
too little is prepared ahead for the input's bursts, or input and model need the same processors.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Cause, Profile
from pipetune.model.buffering import buffer_that_suffices, output_buffer, step_seconds

_SMALL = 0.05  # share of a step below which waiting needs no explanation
_EXPLAINS = 0.5  # share of the lost overlap that a cause must explain
_FULL = 0.75  # share of the available CPU time above which input and model compete for it


@dataclass(frozen=True)
class Explanation:
    """The cause, the operator responsible (None if there is none), and a sentence to add to the verdict."""

    cause: Cause
    node: str | None = None
    sentence: str = ""


def explain(pipeline: Pipeline, profile: Profile, bottleneck: str | None, cores: float) -> Explanation | None:
    """The most likely cause, regardless of how certain the verdict is; None if no operator's cost is known.

    Args:
        pipeline: the original pipeline.
        profile: its measurements.
        bottleneck: the operator that binds the input alone; None if no cost is known.
        cores: cores available to the process.
    """
    consumer = profile.consumer
    wait, lost, real = consumer.input_wait_seconds, consumer.overlap_lost_seconds, consumer.real_seconds
    if consumer.wait_share is not None and consumer.wait_share.median < _SMALL:
        return Explanation(Cause.CONSUMER)
    if real and consumer.bound_seconds and (consumer.input_seconds or real) < _SMALL * real:
        return Explanation(Cause.CONSUMER)  # even without any overlap, the input would not matter
    if wait is not None and lost is not None and real and lost > wait and lost > _SMALL * real:
        found = _overlap(pipeline, profile, lost, cores)
        if found is not None:
            return found
    if bottleneck is None:
        return None
    node = pipeline[bottleneck]
    if runs_python(node, profile):
        return Explanation(Cause.PYTHON, node.id, "It runs Python code: one call at a time, whatever the parallelism.")
    return Explanation(Cause.OPERATOR, node.id)


def runs_python(node: Node, profile: Profile) -> bool:
    """Whether the operator calls into Python for every element."""
    measured = profile.operator(node.id)
    written = node.function is not None and node.function.python
    return node.op == "from_generator" or written or (measured is not None and measured.python)


def _overlap(pipeline: Pipeline, profile: Profile, lost: float, cores: float) -> Explanation | None:
    """Explains why input and model overlap less than they could; None if no cause explains enough of it."""
    consumer = profile.consumer
    bound = consumer.bound_seconds or 0.0
    buffer = output_buffer(pipeline)
    if buffer == 0:
        return Explanation(Cause.TURNS, None, "Nothing is prepared ahead: input and model take turns.")
    if buffer is not None and profile.intervals:
        intervals = profile.intervals
        behind = step_seconds(intervals, bound, buffer) - step_seconds(intervals, bound, None)
        if behind >= _EXPLAINS * lost:
            enough = buffer_that_suffices(intervals, bound)
            advice = f"; {enough} would do" if enough is not None and enough > buffer else ""
            node = _last_prefetch(pipeline)
            slowest = 1e3 * max(intervals)
            usual = 1e3 * statistics.median(intervals)
            return Explanation(
                Cause.BUFFER,
                node,
                f"The input is fast enough on average but comes in bursts (up to {slowest:.3g} ms for an element, "
                f"half of them within {usual:.3g} ms), and the last prefetch holds {buffer}{advice}.",
            )
    working = profile.input_cpu_seconds or 0.0
    needed = working + (consumer.bound_cpu_seconds or 0.0)
    longest = consumer.predicted_maximum or 0.0
    # The input can take no more time from the model than the CPU time it uses.
    if consumer.bound_cpu_seconds and working >= _EXPLAINS * lost and needed > _FULL * cores * longest:
        granted = f"{cores:g} core" + ("" if cores == 1 else "s")
        return Explanation(
            Cause.PROCESSORS,
            None,
            f"Input and model share the {granted}: together they need {1e3 * needed:.3g} ms of processor time a step.",
        )
    return None


def _last_prefetch(pipeline: Pipeline) -> str | None:
    return next((node.id for node in reversed(pipeline.nodes) if node.op == "prefetch"), None)
