"""Measures what this machine and the runtime cost in addition to the operators' own work.

Runs pairs of tiny pipelines that differ in one respect, alternately and several times: with and without a buffer, with
several sources read in one thread and in several, in one thread and with parallel calls on all cores (fused with a
batch or not), for functions of different length. The median of the rounds counts, as it does for the windows whose
rate is predicted.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.overheads import CallCost, Overheads
from pipetune.tf.measure import known_costs, windows

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_ROWS = {"brief": 64, "short": 32, "long": 8}
"""Kinds of functions, with rows per batch of each: enough that taking a batch in Python costs little per row."""

_TAKEN_ROWS = 256
_READERS = 4  # as many as scripts open, whatever the number of cores
_WARM_UP_SHARE = 0.3
_SLOWEST_CROWD = 0.5  # lower bound of `crowded_speed`


@functools.cache
def measure_overheads(cores: int, *, seconds: float = 2.0, rounds: int = 6) -> Overheads:
    """Returns the overheads of this process, measured once, in about `seconds`.

    Args:
        cores: cores available to the process; all of them are kept busy for a moment.
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
    """Derives the overheads from CPU and wall seconds per batch of each pipeline."""
    alone = {name: wall[name] / rows for name, rows in _ROWS.items()}

    def busy(name: str, form: str) -> float:
        """CPU seconds per call beyond the function's own work, including idle threads that look for work."""
        return max(0.0, cpu[f"{name}, {form}"] / _ROWS[name] - (1 + slower) * alone[name])

    def excess(name: str, form: str) -> float:
        """Seconds of all cores together per call, beyond the time of the call in one thread."""
        return cores * wall[f"{name}, {form}"] / _ROWS[name] - alone[name]

    # The excess is the same for all calls of some tens of microseconds; it grows with the length of the call where a
    # core is slower while the others are busy.
    least, most = (statistics.fmean(excess(name, form) for form in _FORMS) for name in ("short", "long"))
    apart = alone["long"] - alone["short"]
    slower = min(max(0.0, (most - least) / apart), 1 / _SLOWEST_CROWD - 1) if cores > 1 and apart > 0 else 0.0
    calls = {
        name: [max(0.0, excess(name, form) - slower * alone[name]) for form in _FORMS] for name in ("brief", "short")
    }
    row_ahead, row = wall["rows, ahead"] / _TAKEN_ROWS, wall["rows"] / _TAKEN_ROWS
    return Overheads(
        next_seconds=wall["taken"],
        wake_seconds=max(0.0, wall["taken, ahead"] - wall["taken"]),
        buffer_seconds=max(0.0, row_ahead - row / 2),  # two threads then share the row's own work
        interleave_seconds=max(0.0, (wall["rows, interleaved"] - wall["rows, in turn"]) / _TAKEN_ROWS),
        calls=tuple(
            CallCost(alone[name], *calls[name], *(busy(name, form) for form in _FORMS))
            for name in sorted(calls, key=lambda name: alone[name])
        ),
        spin_seconds=max(0.0, cpu["long"] / _ROWS["long"] - alone["long"]),
        crowded_speed=1 / (1 + slower),
    )


_FORMS = ("parallel", "fused")


def _datasets(cores: int) -> dict[str, Any]:
    source = tf.data.Dataset.range(1 << 60)
    element = source.batch(8)
    plain, fusing = tf.data.Options(), tf.data.Options()
    for options in (plain, fusing):
        options.experimental_optimization.apply_default_optimizations = False
        options.experimental_optimization.inject_prefetch = False
    fusing.experimental_optimization.map_and_batch_fusion = True
    made = {
        "taken": element.with_options(plain),
        "taken, ahead": element.prefetch(2).with_options(plain),
        "rows": source.batch(_TAKEN_ROWS).with_options(plain),
        "rows, ahead": source.prefetch(tf.data.AUTOTUNE).batch(_TAKEN_ROWS).with_options(plain),
        "rows, in turn": _interleaved(source, None).with_options(plain),
        "rows, interleaved": _interleaved(source, _READERS).with_options(plain),
    }
    functions: Mapping[str, Callable[..., Any]] = {
        "brief": functools.partial(_spin, lanes=128, kernels=8),  # much shorter than the overhead of calling it
        "short": functools.partial(_spin, lanes=512, kernels=10),  # some tens of microseconds in one thread
        "long": known_costs.working(2).function,  # most of a millisecond: here a slower core costs more than the call
    }
    for name, function in functions.items():
        rows = _ROWS[name]
        parallel = source.map(function, num_parallel_calls=cores).batch(rows)
        made[name] = source.map(function, synchronous=True).batch(rows).with_options(plain)
        made[f"{name}, parallel"] = parallel.prefetch(2).with_options(plain)  # as TensorFlow would insert it
        made[f"{name}, fused"] = parallel.with_options(fusing)
    return made


def _interleaved(source: Any, parallel: int | None) -> Any:
    """Batches of rows that cost next to nothing, interleaved from several sources, one row of each at a time."""
    rows = source.interleave(lambda _: source, cycle_length=_READERS, num_parallel_calls=parallel)
    return rows.batch(_TAKEN_ROWS)


def _spin(value: Any, *, lanes: int, kernels: int) -> Any:
    """Runs small kernels one after another, none of which is split over threads."""
    vector = tf.fill([lanes], tf.cast(value % 2, tf.float32))
    for _ in range(kernels):
        vector = tf.sin(vector) + 1.0
    return tf.reduce_sum(vector)


def _window(dataset: Any, seconds: float) -> tuple[float, float]:
    """CPU and wall seconds per element, without the warm-up at the start of the window."""
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
