"""Share of a function's cost that remains when it decodes less of its images: both variants, on the same elements."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.measure import failures
from pipetune.tf.measure.in_turns import cpu_seconds_in_turns
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.cropped import decoding_window
from pipetune.tf.pipelines.shrinking import decoding_smaller

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_ELEMENTS = 64  # kept in memory and reused


def measure_cropping_shares(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """Returns the share of CPU time that remains if a map decodes only the window it crops, by node id.

    Args:
        source: the live pipeline.
        told: the pipeline of `source`, annotated by `cropping.with_answers`.
    """
    found: dict[str, float | None] = {}
    for node in told:
        answer = node.function.cropping if node.function is not None else None
        if answer is not None and not answer.why_not:
            found[node.id] = _share(source, node, decoding_window)
    return {name: share for name, share in found.items() if share is not None}


def measure_shrinking_shares(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """Returns the share of CPU time that remains if a map decodes at a smaller scale, by node id.

    Args:
        source: the live pipeline.
        told: the pipeline of `source`, annotated by `shrinking.with_answers`.
    """
    found: dict[str, float | None] = {}
    for node in told:
        answer = node.function.shrinking if node.function is not None else None
        if answer is not None and not answer.why_not:
            found[node.id] = _share(source, node, functools.partial(decoding_smaller, ratio=answer.ratio))
    return {name: share for name, share in found.items() if share is not None}


def _share(source: live.LivePipeline, node: Node, otherwise: Callable[[Any], Any]) -> float | None:
    """Median share over the rounds; None if the function fails, or takes too little time to measure."""
    traced = source.datasets[node.id]._map_func

    def forms(plain: Any) -> list[Any]:
        with private.reusing_traced_functions():
            return [plain.map(one, synchronous=True) for one in (traced, otherwise(traced))]

    try:
        with failures.told():
            rounds, _ = cpu_seconds_in_turns(source.datasets[node.inputs[0]], _ELEMENTS, forms)
    except RunFailed:
        return None  # a trial that runs it will report the reason
    shares = [max(0.0, after - nothing) / (before - nothing) for nothing, before, after in rounds if before > nothing]
    return statistics.median(shares) if shares else None
