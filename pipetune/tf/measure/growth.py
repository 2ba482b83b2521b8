"""Samples the resident memory of the process while a pipeline runs alone."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.memory import Held
from pipetune.tf.measure import failures, machine, windows

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

READINGS = 24
_FILLING = 1 / 3  # of the time, before the first reading, for buffers and allocator to fill


@dataclass(frozen=True)
class Watched:
    """Observations of memory while a pipeline ran."""

    readings: tuple[tuple[int, float], ...]  # elements taken so far, resident bytes
    held: tuple[Held, ...]  # by the buffers at the end, largest first


def watch(dataset: Any, *, seconds: float) -> Watched:
    """Reads the resident size `READINGS` times in about `seconds` while the dataset, repeated forever, is consumed.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    windows.settle()
    iterator: Any = None
    readings: list[tuple[int, float]] = []
    try:
        with failures.told():
            iterator = iter(windows.endless(dataset))
            next(iterator)
            started, taken = time.perf_counter(), 1
            first = started + _FILLING * seconds
            between = (1 - _FILLING) * seconds / READINGS
            while len(readings) < READINGS:
                next(iterator)
                taken += 1
                if time.perf_counter() >= first + between * len(readings):
                    readings.append((taken, float(machine.rss_bytes())))
                if time.perf_counter() > started + 3 * seconds:
                    break
            return Watched(tuple(readings), held(iterator))
    finally:
        del iterator
        windows.settle()


def held(iterator: Any) -> tuple[Held, ...]:
    """What the buffers of a running iterator hold now, as counted by the runtime; empty if it has no model."""
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError):
        return ()
    found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for node in model.nodes.values():
        elements, size = found[node.name]
        found[node.name] = (elements + float(node.buffered_elements), size + float(node.buffered_bytes))
    by_size = sorted(found.items(), key=lambda entry: -entry[1][1])
    return tuple(Held(name, elements, size) for name, (elements, size) in by_size if size > 0)
