"""How full the queues of a running pipeline are: what MindSpore's rule decides by."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.pipeline import Pipeline
from pipetune.tf.measure import failures, windows
from pipetune.tf.measure.autotuned import runtime_operators

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Watched:
    """What was seen of one pipeline, consumed as fast as it delivers."""

    rate: float  # elements of the output per second
    filled: dict[str, float]  # by prefetch: the share of its buffer that was filled, on average


def watch(
    dataset: Any, pipeline: Pipeline, prefetches: Iterable[str], *, seconds: float, warmup_seconds: float
) -> Watched:
    """Looks at these prefetches of `pipeline`, which `dataset` is, every 10 ms for so many seconds after a warm-up.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    windows.settle()
    wanted = set(prefetches)
    repeated = not windows.is_endless(dataset)
    looks: dict[str, list[float]] = defaultdict(list)
    iterator: Any = None
    try:
        with failures.told():
            iterator = iter(windows.endless(dataset))
            next(iterator)
            end = time.perf_counter() + warmup_seconds
            while time.perf_counter() < end:
                next(iterator)
            started, steps = time.perf_counter(), 0
            polled = started
            while True:
                next(iterator)
                steps += 1
                now = time.perf_counter()
                if now - polled >= _POLL_SECONDS:
                    _look(iterator, pipeline, wanted, looks, repeated=repeated)
                    polled = time.perf_counter()
                if now - started >= seconds:
                    break
    finally:
        del iterator
        windows.settle()
    return Watched(steps / (now - started), {name: statistics.fmean(found) for name, found in looks.items()})


def _look(
    iterator: Any, pipeline: Pipeline, wanted: set[str], looks: dict[str, list[float]], *, repeated: bool
) -> None:
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError):
        return
    for number, name in runtime_operators(model, pipeline, repeated=repeated):
        if name not in wanted:
            continue
        node = model.nodes[number]
        size = max((float(one.value) for one in node.parameters if one.name == "buffer_size"), default=0.0)
        written = pipeline[name].argument("buffer_size")
        size = size or (float(written) if isinstance(written, int) and written > 0 else 1.0)
        looks[name].append(min(1.0, float(node.buffered_elements) / size))
