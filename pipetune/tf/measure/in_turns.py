"""CPU cost of variants of one part of a pipeline, measured alternately on the same elements, kept in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from pipetune.tf.measure import windows

_SECONDS = 0.05  # of an average pass, at least
_ROUNDS = 5
_MOST_SECONDS = 3.0  # of all rounds together; at least two are run


def cpu_seconds_in_turns(
    dataset: Any, elements: int, forms: Callable[[Any], Sequence[Any]]
) -> tuple[list[tuple[float, ...]], int]:
    """Measures the CPU seconds of the process for one pass through each variant, round by round.

    Args:
        dataset: the input of the variants.
        elements: number of elements of `dataset` that are kept in memory, at most.
        forms: builds the variants from a dataset that repeats the elements kept.

    Returns:
        Per round, the CPU seconds of a pass through the plain input and through each variant; and the elements of a
        pass.
    """
    kept = dataset.take(elements).cache()
    count = sum(1 for _ in kept)  # from now on they come from memory

    def undisturbed(plain: Any) -> list[Any]:
        return [windows.undisturbed(one) for one in (plain, *forms(plain))]

    once = [_cpu_seconds(one) for one in undisturbed(kept)]
    repeats = math.ceil(_SECONDS / max(1e-6, sum(once) / max(1, len(once) - 1)))
    measured = undisturbed(kept.repeat(repeats))
    rounds = max(2, min(_ROUNDS, int(_MOST_SECONDS / max(1e-6, repeats * sum(once)))))
    return [tuple(_cpu_seconds(one) for one in measured) for _ in range(rounds)], repeats * count


def _cpu_seconds(dataset: Any) -> float:
    """CPU seconds of the process for one pass; every variant goes through the same elements."""
    started = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - started
