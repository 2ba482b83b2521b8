"""What forms of one piece of a pipeline cost: on the same elements, kept in memory, one after the other in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from pipetune.tf.measure import windows

_SECONDS = 0.05  # of a pass, at least
_ROUNDS = 5
_MOST_SECONDS = 3.0  # of all rounds; never fewer than two


def cpu_seconds_in_turns(
    dataset: Any, elements: int, forms: Callable[[Any], Sequence[Any]]
) -> tuple[list[tuple[float, ...]], int]:
    """CPU seconds of the process, in every round for a pass of each form; and the elements of a pass.

    Args:
        elements: of the dataset that are kept, at most.
        forms: what is measured, made of a dataset that gives elements over and over; the first is that alone.
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
    """Of the process, for one pass: every form goes through the same elements."""
    started = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - started
