"""What is left of a function's cost when it decodes only what it crops: both forms on the same elements, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.measure import failures
from pipetune.tf.measure.in_turns import cpu_seconds_in_turns
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.cropped import decoding_window

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_ELEMENTS = 64  # kept in memory, and used over and over


def measure_cropping_shares(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """The share of its time that every map keeps whose function could decode a window only, by node.

    Args:
        told: the pipeline of `source` with the answers of `cropping.with_answers`.
    """
    found: dict[str, float] = {}
    for node in told:
        answer = node.function.cropping if node.function is not None else None
        if answer is None or answer.why_not:
            continue
        try:
            with failures.told():
                share = _share(source, node)
        except RunFailed:
            continue  # a trial that runs it will say why
        if share is not None:
            found[node.id] = share
    return found


def _share(source: live.LivePipeline, node: Node) -> float | None:
    """The median share of pairs; None where the function takes no time that could be told."""
    traced = source.datasets[node.id]._map_func

    def forms(plain: Any) -> list[Any]:
        with private.reusing_traced_functions():
            return [plain.map(one, synchronous=True) for one in (traced, decoding_window(traced))]

    rounds, _ = cpu_seconds_in_turns(source.datasets[node.inputs[0]], _ELEMENTS, forms)
    shares = [max(0.0, after - nothing) / (before - nothing) for nothing, before, after in rounds if before > nothing]
    return statistics.median(shares) if shares else None
