"""What is left of a function's cost when it decodes less of its images: both forms on the same elements, in turns."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.measure import failures, windows
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.cropped import decoding_window
from pipetune.tf.pipelines.shrinking import decoding_smaller

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_ELEMENTS = 64  # kept in memory, and used over and over
_SECONDS = 0.05  # of a pass, at least
_ROUNDS = 5


def measure_cropping_shares(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """The share of its time that every map keeps whose function could decode a window only, by node.

    Args:
        told: the pipeline of `source` with the answers of `cropping.with_answers`.
    """
    found: dict[str, float | None] = {}
    for node in told:
        answer = node.function.cropping if node.function is not None else None
        if answer is not None and not answer.why_not:
            found[node.id] = _share(source, node, decoding_window)
    return {name: share for name, share in found.items() if share is not None}


def measure_shrinking_shares(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """The share of its time that every map keeps whose function could decode at a smaller scale, by node.

    Args:
        told: the pipeline of `source` with the answers of `shrinking.with_answers`.
    """
    found: dict[str, float | None] = {}
    for node in told:
        answer = node.function.shrinking if node.function is not None else None
        if answer is not None and not answer.why_not:
            found[node.id] = _share(source, node, functools.partial(decoding_smaller, form=answer.form))
    return {name: share for name, share in found.items() if share is not None}


def _share(source: live.LivePipeline, node: Node, otherwise: Callable[[Any], Any]) -> float | None:
    """The median share of pairs; None where the function fails, or takes no time that could be told."""
    try:
        with failures.told():
            return _measured_share(source.datasets[node.inputs[0]], source.datasets[node.id]._map_func, otherwise)
    except RunFailed:
        return None  # a trial that runs it will say why


def _measured_share(above: Any, traced: Any, otherwise: Callable[[Any], Any]) -> float | None:
    kept = above.take(_ELEMENTS).cache()
    for _ in kept:
        pass  # from now on they come from memory
    other = otherwise(traced)
    rounds = math.ceil(_SECONDS / max(1e-6, sum(_cpu_seconds(one) for one in _forms(kept, traced, other)) / 2))
    forms = _forms(kept.repeat(rounds), traced, other)
    shares = []
    for _ in range(_ROUNDS):
        nothing, before, after = (_cpu_seconds(one) for one in forms)
        if before > nothing:
            shares.append(max(0.0, after - nothing) / (before - nothing))
    return statistics.median(shares) if shares else None


def _forms(plain: Any, traced: Any, other: Any) -> tuple[Any, ...]:
    """Without the function, with it as it is, with it decoding otherwise."""
    with private.reusing_traced_functions():
        mapped = [plain.map(one, synchronous=True) for one in (traced, other)]
    return tuple(windows.undisturbed(one) for one in (plain, *mapped))


def _cpu_seconds(dataset: Any) -> float:
    """Of the process, for one pass: every form goes through the same elements."""
    started = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - started
