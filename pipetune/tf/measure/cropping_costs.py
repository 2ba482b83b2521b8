"""What is left of a function's cost when it decodes only what it crops: both forms on the same elements, in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.measure import failures, windows
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.cropped import decoding_window

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_ELEMENTS = 64  # kept in memory, and used over and over
_SECONDS = 0.05  # of a pass, at least
_ROUNDS = 5


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
    kept = source.datasets[node.inputs[0]].take(_ELEMENTS).cache()
    for _ in kept:
        pass  # from now on they come from memory
    traced = source.datasets[node.id]._map_func
    rounds = math.ceil(_SECONDS / max(1e-6, sum(_cpu_seconds(one) for one in _forms(kept, traced)) / 2))
    forms = _forms(kept.repeat(rounds), traced)
    shares = []
    for _ in range(_ROUNDS):
        nothing, before, after = (_cpu_seconds(one) for one in forms)
        if before > nothing:
            shares.append(max(0.0, after - nothing) / (before - nothing))
    return statistics.median(shares) if shares else None


def _forms(plain: Any, traced: Any) -> tuple[Any, ...]:
    """Without the function, with it as it is, with it decoding a window only."""
    with private.reusing_traced_functions():
        mapped = [plain.map(one, synchronous=True) for one in (traced, decoding_window(traced))]
    return tuple(windows.undisturbed(one) for one in (plain, *mapped))


def _cpu_seconds(dataset: Any) -> float:
    """Of the process, for one pass: every form goes through the same elements."""
    started = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - started
