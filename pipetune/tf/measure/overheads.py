"""Measures what this machine and the runtime take beside the operators' own work.

Pairs of tiny pipelines that differ in one thing, in turn, several times: with a buffer and without, with several
sources read in one thread and in several, in one thread and with parallel calls on all cores (fused with a batch and
not), for functions of different length. The median of the rounds counts, as it does for the windows whose rate is
predicted.
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

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_ROWS = {"brief": 64, "short": 32, "long": 8}
"""Kinds of functions, and rows in a batch of each, so that taking it in Python counts little per row."""

_TAKEN_ROWS = 256
_READERS = 4  # as many as scripts open, on few cores and on many
_WARM_UP_SHARE = 0.3
_SLOWEST_CROWD = 0.5


@functools.cache
def measure_overheads(cores: int, *, seconds: float = 2.0, rounds: int = 6) -> Overheads:
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
    """From CPU and wall seconds per batch of each pipeline."""
    alone = {name: wall[name] / rows for name, rows in _ROWS.items()}

    def busy(name: str, form: str) -> float:
        """What a call takes of processors beyond the function's own work, idle threads that look for some included."""
        return max(0.0, cpu[f"{name}, {form}"] / _ROWS[name] - (1 + slower) * alone[name])

    def excess(name: str, form: str) -> float:
        """What a call takes of all cores together beyond what it takes in one thread."""
        return cores * wall[f"{name}, {form}"] / _ROWS[name] - alone[name]

    # The same for every call of some tens of microseconds, and more the longer it runs where a core is slower among
    # busy ones.
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
        "brief": functools.partial(_spin, lanes=128, kernels=8),  # little beside what calling it takes
        "short": functools.partial(_spin, lanes=512, kernels=10),  # some tens of microseconds in one thread
        "long": known_costs.working(2).function,  # most of a millisecond: a slower core takes more here than the call
    }
    for name, function in functions.items():
        rows = _ROWS[name]
        parallel = source.map(function, num_parallel_calls=cores).batch(rows)
        made[name] = source.map(function, synchronous=True).batch(rows).with_options(plain)
        made[f"{name}, parallel"] = parallel.prefetch(2).with_options(plain)  # as TensorFlow would put one there
        made[f"{name}, fused"] = parallel.with_options(fusing)
    return made


def _interleaved(source: Any, parallel: int | None) -> Any:
    """Rows that cost next to nothing, of several sources, one row of each in turn."""
    rows = source.interleave(lambda _: source, cycle_length=_READERS, num_parallel_calls=parallel)
    return rows.batch(_TAKEN_ROWS)


def _spin(value: Any, *, lanes: int, kernels: int) -> Any:
    """Small kernels one after another, none of which is divided over threads."""
    vector = tf.fill([lanes], tf.cast(value % 2, tf.float32))
    for _ in range(kernels):
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
