"""Measures what this machine and the runtime take beside the operators' own work.

Pairs of tiny pipelines that differ in one thing, in turn, several times: with a buffer and without, in one thread
and with parallel calls on all cores (fused with a batch and not), for a short function and for a longer one. The
median of the rounds counts, as it does for the windows whose rate is predicted.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.overheads import Overheads
from pipetune.tf.measure import known_costs, windows

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_ROWS = 8  # in a batch: taking it in Python counts little per row
_LANES, _KERNELS = 512, 10  # some tens of microseconds in one thread
_SORTS = 2  # most of a millisecond: beside it, what a slower core takes is more than what a call does
_WARM_UP_SHARE = 0.3
_SLOWEST_CROWD = 0.5


@functools.cache
def measure_overheads(cores: int, *, seconds: float = 2.0, rounds: int = 8) -> Overheads:
    """The overheads of this process, in about `seconds`; measured once.

    Args:
        cores: granted to the process; all of them are kept busy for a moment.
    """
    datasets = _datasets(cores)
    window = seconds / (rounds * len(datasets))
    cpu: dict[str, list[float]] = defaultdict(list)
    wall: dict[str, list[float]] = defaultdict(list)
    windows.settle()
    for _ in range(rounds):
        for name, dataset in datasets.items():
            one = _window(dataset, window)
            cpu[name].append(one[0])
            wall[name].append(one[1])
    return _from(
        {name: statistics.median(found) for name, found in cpu.items()},
        {name: statistics.median(found) for name, found in wall.items()},
        cores,
    )


def _from(cpu: Mapping[str, float], wall: Mapping[str, float], cores: int) -> Overheads:
    """From CPU and wall seconds per element of each pipeline, `_ROWS` calls in an element where it computes."""
    short, long = wall["short"] / _ROWS, wall["long"] / _ROWS

    def excess(name: str, alone: float) -> float:
        """What a call takes of all cores together beyond what it takes in one thread."""
        parallel = statistics.fmean(wall[f"{name}, {form}"] for form in ("parallel", "fused"))
        return cores * parallel / _ROWS - alone

    # The same for every call, and more the longer it runs where a core is slower among busy ones.
    least, most = excess("short", short), excess("long", long)
    slower = max(0.0, (most - least) / (long - short)) if cores > 1 and long > short else 0.0
    slower = min(slower, 1 / _SLOWEST_CROWD - 1)
    return Overheads(
        next_seconds=wall["taken"],
        wake_seconds=max(0.0, wall["taken, ahead"] - wall["taken"]),
        call_seconds=max(0.0, statistics.fmean((least - slower * short, most - slower * long))),
        spin_seconds=max(0.0, (cpu["long"] - wall["long"]) / _ROWS),
        crowded_speed=1 / (1 + slower),
    )


def _datasets(cores: int) -> dict[str, Any]:
    source = tf.data.Dataset.range(1 << 60)
    element = source.batch(_ROWS)
    plain, fusing = tf.data.Options(), tf.data.Options()
    for options in (plain, fusing):
        options.experimental_optimization.apply_default_optimizations = False
        options.experimental_optimization.inject_prefetch = False
    fusing.experimental_optimization.map_and_batch_fusion = True
    made = {"taken": element.with_options(plain), "taken, ahead": element.prefetch(2).with_options(plain)}
    for name, function in (("short", _spin), ("long", known_costs.working(_SORTS).function)):
        parallel = source.map(function, num_parallel_calls=cores).batch(_ROWS)
        made[name] = source.map(function, synchronous=True).batch(_ROWS).with_options(plain)
        made[f"{name}, parallel"] = parallel.with_options(plain)
        made[f"{name}, fused"] = parallel.with_options(fusing)
    return made


def _spin(value: Any) -> Any:
    """Small kernels one after another, none of which is divided over threads."""
    vector = tf.fill([_LANES], tf.cast(value % 2, tf.float32))
    for _ in range(_KERNELS):
        vector = tf.sin(vector) + 1.0
    return tf.reduce_sum(vector)


def _window(dataset: Any, seconds: float) -> tuple[float, float]:
    """CPU and wall seconds per element, the first part of the window left out."""
    iterator = iter(dataset)
    try:
        end = time.perf_counter() + _WARM_UP_SHARE * seconds
        next(iterator)
        while time.perf_counter() < end:
            next(iterator)
        count, cpu, wall = 0, time.process_time(), time.perf_counter()
        end = wall + (1 - _WARM_UP_SHARE) * seconds
        while count < 1 or time.perf_counter() < end:
            next(iterator)
            count += 1
        return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count
    finally:
        del iterator
        windows.settle()
