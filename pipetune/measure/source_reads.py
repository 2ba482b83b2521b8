"""Measures what a running pipeline reads, and the rate of its own source at several levels of parallelism."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import random
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import tensorflow as tf
from scipy import special

from pipetune import tensorflow_private
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile
from pipetune.core.storage import Sweep, SweepLevel, SweepReader
from pipetune.pipelines import live
from pipetune.search.statistics import ratio_interval
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators, iterating

_LOOK_SECONDS = 0.005  # between two looks at open files, by judgement: a file open for less time may be missed
_OWN = ("/proc/", "/sys/", "/dev/", sys.prefix + "/", sys.base_prefix + "/lib")  # not data
_NOT_DATA = (".py", ".pyc", ".so", ".log", " (deleted)")


@dataclass(frozen=True)
class ReadObservation:
    """What a running pipeline read in one period of time."""

    elements: int
    seconds: float
    bytes_per_element: float | None  # None if the system does not count
    storage_bytes_per_element: float | None
    opened_files: frozenset[str]  # regular files seen open for reading that were not open before


def read_counters() -> tuple[int, int] | None:
    """Returns the bytes that this process has read since it started; None if the system does not count (proc(5)).

    By system calls, from memory or not; and from storage.
    """
    try:
        counters = psutil.Process().io_counters()
        return counters.read_chars, counters.read_bytes
    except (AttributeError, RuntimeError, ValueError, OSError, psutil.Error):  # only Linux has all, and may hide them
        return None


def observe(dataset: Any, *, seconds: float) -> ReadObservation:
    """Returns what `dataset`, repeated forever, reads in about `seconds` after its first elements.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    free_iterators()
    with windows.as_run_failed(), opened_files() as opened, iterating(windows.repeat_forever(dataset)) as iterator:
        started = time.perf_counter()
        next(iterator)
        filled = time.perf_counter()  # shuffle buffers are full now
        windows.consume(iterator, min(seconds / 4, 2 * (filled - started)), fewest=0)
        before, started = read_counters(), time.perf_counter()
        elements = windows.consume(iterator, seconds)
        spent, after = time.perf_counter() - started, read_counters()
    per_element: tuple[float | None, float | None] = None, None
    if before is not None and after is not None:
        per_element = (after[0] - before[0]) / elements, (after[1] - before[1]) / elements
    return ReadObservation(elements, spent, *per_element, frozenset(opened))


@contextlib.contextmanager
def opened_files() -> Iterator[set[str]]:
    """Context manager that polls which data files this process has newly open for reading; yields the set of them."""
    before, seen, done = _open_data_files(frozenset()), set[str](), threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_SECONDS):
            seen.update(_open_data_files(before | seen))

    thread = threading.Thread(target=watch, name="pipetune-open-files", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _open_data_files(known: Collection[str]) -> set[str]:
    """Returns the data files that are open for reading now, without those that are known."""
    found: set[str] = set()
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed in the meantime
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            may_be_data = name.startswith("/") and not name.startswith(_OWN) and not name.endswith(_NOT_DATA)
            new = name not in known and may_be_data and stat.S_ISREG(os.stat(name).st_mode)
            if new and fcntl.fcntl(int(descriptor), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                found.add(name)
    return found


LEVELS = (1, 2, 4, 8, 16, 32)  # numbers of parallel readers, by judgement: more levels make each window shorter
_FEWEST_ROUNDS = 2  # the fewest that show a variance, from which the interval is computed
_METHOD = "t on logs, pooled over levels, 95 %"
_SHORTEST_SECONDS = 0.03  # of a window
_PATIENCE = 2.5  # times the time limit: until then the fewest rounds must be done
_WINDOWS = 0.6  # share of the time for windows; the rest is for the preparation of each


@dataclass(frozen=True)
class Rates:
    """Rates of one window, per second; 0 if not counted."""

    bytes: float = 0.0
    elements: float = 0.0


MeasureRates = Callable[[int, float], Rates]
"""Reads with a number of parallel readers, for about a number of seconds; returns the rates."""


def sweep(
    reader: SweepReader,
    window: MeasureRates,
    *,
    levels: Sequence[int] = LEVELS,
    limit_seconds: float,
    most_rounds: int = 4,
    seed: int = 0,
    before: Callable[[], None] | None = None,
    node: str = "",
) -> Sweep | None:
    """Returns the curve of `window` over `levels`; None if nothing was read, or time was too short for two rounds.

    Args:
        reader: who reads, for the result.
        window: measures one window.
        levels: numbers of parallel readers.
        limit_seconds: approximate time limit for all windows.
        most_rounds: with fewer rounds, windows are longer.
        seed: for the order of levels in each round.
        before: called before each window (to drop the page cache).
        node: id of the operator that reads, for the result.
    """
    started, draw = time.perf_counter(), random.Random(seed)
    seconds = max(_SHORTEST_SECONDS, _WINDOWS * limit_seconds / (most_rounds * len(levels)))
    window(levels[0], _SHORTEST_SECONDS)  # warm-up: some things are slow only the first time
    rounds: list[list[Rates]] = []  # the rates of every level, in whole rounds only
    while len(rounds) < most_rounds:
        spent = time.perf_counter() - started
        if len(rounds) >= _FEWEST_ROUNDS and spent * (len(rounds) + 1) / len(rounds) > limit_seconds:
            break
        found: dict[int, Rates] = {}
        for level in draw.sample(list(levels), len(levels)):
            if len(rounds) < _FEWEST_ROUNDS and time.perf_counter() - started > _PATIENCE * limit_seconds:
                return None
            if before is not None:
                before()
            found[level] = window(level, seconds)
        rounds.append([found[level] for level in levels])
    by_bytes = _intervals([[one.bytes for one in row] for row in rounds])
    by_elements = _intervals([[one.elements for one in row] for row in rounds])
    intervals = by_bytes or by_elements
    if not intervals:
        return None
    knee = find_knee(levels, [one.median for one in intervals])
    unknown: list[Interval | None] = [None] * len(levels)
    curve = zip(levels, by_bytes or unknown, by_elements or unknown, strict=True)
    return Sweep(
        reader=reader,
        levels=tuple(SweepLevel(level, size, count) for level, size, count in curve),
        node=node,
        cold=before is not None,
        knee=knee.parallelism,
        falling=knee.falling and intervals[-1].high < max(one.low for one in intervals),
        ceiling=knee.ceiling if by_bytes else None,
    )


def _intervals(rounds: Sequence[Sequence[float]]) -> list[Interval]:
    """Returns the rate of every level with its confidence interval; empty if a rate was not counted.

    Few rounds of several levels still give an interval: the variance is pooled over the levels, after the effect of
    each round as a whole is removed (the residual of the two-way layout of rounds and levels, on logs).
    """
    if any(rate <= 0 for row in rounds for rate in row):
        return []
    logs = [[math.log(rate) for rate in row] for row in rounds]
    if len(logs[0]) == 1:
        return [ratio_interval([row[0] for row in rounds])]
    row_means, means = [fmean(row) for row in logs], [fmean(column) for column in zip(*logs, strict=True)]
    residual = sum(
        (value - row_mean - mean + fmean(means)) ** 2
        for row, row_mean in zip(logs, row_means, strict=True)
        for value, mean in zip(row, means, strict=True)
    )
    freedom = (len(logs) - 1) * (len(means) - 1)
    reach = float(special.stdtrit(freedom, 0.975)) * math.sqrt(residual / freedom / len(logs))
    return [
        Interval(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), len(logs), _METHOD) for mean in means
    ]


_READERS = ("TFRecord", "TextLine", "FixedLength", "CSV", "Snapshot")  # prefixes of kernel names: V2 may follow
SLOW_SECONDS = 0.002
"""Seconds per element above which a source is assumed to wait: its sweep needs more time and can gain more."""

_LONGEST_WARM_UP = 1.5  # seconds
_FEWEST_ELEMENTS = 8  # per window, with one reader
_COUNTED_SECONDS = 0.01  # elements that arrive in this time are counted together, inside TensorFlow


def reading_operator(source: live.LivePipeline) -> Node | None:
    """Returns the operator that reads, if its number of readers can be changed; None if there is none.

    That is the first interleave or flat_map that opens readers, or a TFRecordDataset.
    """
    return next((node for node in source.pipeline if node.op == "TFRecordDataset" or opens_readers(node)), None)


def opens_readers(node: Node) -> bool:
    """Whether the function of this interleave or flat_map opens something that reads: files or a generator."""
    if node.op not in ("interleave", "flat_map") or not node.inner:
        return False
    function = node.function
    inside = function is not None and (function.reads_files or function.python)
    return inside or any(kind.startswith(_READERS) for kind in node.inner)


def sweep_source(
    source: live.LivePipeline,
    node: Node,
    costs: OperatorProfile | None,
    *,
    limit_seconds: float,
    seed: int = 0,
    before: Callable[[], None] | None = None,
) -> Sweep | None:
    """Returns the rates of `node` (see `reading_operator`) with 1 to 32 readers, but no more than there are files.

    The traced function that opens a reader is reused; its Python code is not called again. None if the source raised.

    Args:
        source: the live pipeline.
        node: the operator that reads.
        costs: profile of `node`, for its bytes per element, and its time, which decides how many are counted together.
        limit_seconds: as in `sweep`.
        seed: as in `sweep`.
        before: as in `sweep`.
    """
    files = most_readers(source, node)
    levels = [level for level in LEVELS if files is None or level < files]
    if files is not None and files <= LEVELS[-1]:
        levels.append(files)
    size = (costs.bytes_out if costs else None) or 0.0
    each = (costs.wall_seconds if costs else None) or 0.0
    at_once = max(1, int(_COUNTED_SECONDS / each)) if each else 1

    def window(parallel: int, seconds: float) -> Rates:
        seconds = max(seconds, _FEWEST_ELEMENTS * each)
        dataset = with_readers(source, node, parallel)
        # A source that waits delivers in bursts until all readers are open and out of phase.
        warm_up = (4 * parallel, _LONGEST_WARM_UP) if each > SLOW_SECONDS else (2 * parallel, seconds)
        rate = _elements_per_second(dataset, seconds, at_once=at_once, warm_up=warm_up)
        return Rates(bytes=rate * size, elements=rate)

    try:
        return sweep(
            SweepReader.SOURCE,
            window,
            levels=levels,
            limit_seconds=limit_seconds,
            most_rounds=2 if each > SLOW_SECONDS else 4,
            seed=seed,
            before=before,
            node=node.id,
        )
    except (tf.errors.OpError, ValueError, TypeError, StopIteration):
        return None


def most_readers(source: live.LivePipeline, node: Node) -> int | None:
    """Returns the most readers that can run at once, which is the number of files; None if unknown."""
    if node.op == "TFRecordDataset":
        count = int(source.datasets[node.id]._filenames.cardinality())
    else:
        count = source.pipeline[node.inputs[0]].cardinality
    return count if count >= 1 else None


def with_readers(source: live.LivePipeline, node: Node, parallel: int) -> Any:
    """Returns an endless dataset of the elements of `node`, with `parallel` readers open and reading at once."""
    original = source.datasets[node.id]
    if node.op == "TFRecordDataset":
        return type(original)(original._filenames.repeat(), original._compression_type, num_parallel_reads=parallel)
    with tensorflow_private.reusing_traced_functions():
        return (
            source.datasets[node.inputs[0]]
            .repeat()
            .interleave(original._map_func, cycle_length=parallel, num_parallel_calls=parallel, deterministic=False)
        )


def _elements_per_second(dataset: Any, seconds: float, *, at_once: int, warm_up: tuple[int, float]) -> float:
    """Returns the elements per second after the first elements, which arrive while the readers are being opened.

    `warm_up` is the number of these first elements, and the longest time to wait for them in seconds.
    """
    first, longest = warm_up
    counted = windows.without_optimizations(dataset.map(lambda *_: tf.constant(1, tf.int64)).batch(at_once))
    with iterating(counted) as iterator:
        taken, started = 0, time.perf_counter()
        while taken == 0 or (taken < first and time.perf_counter() < started + longest):
            taken += int(next(iterator).shape[0])
        taken, started = 0, time.perf_counter()
        while taken == 0 or time.perf_counter() < started + seconds:
            taken += int(next(iterator).shape[0])
        return taken / (time.perf_counter() - started)


SIGNIFICANT_RISE = 0.10
"""A relative rise below this, from the lowest parallelism to the knee, is noise or not worthwhile."""

MAX_SLOPE_RATIO = 0.25
"""After a knee the slope is at most this share of the slope before it; otherwise the curve has no knee."""

_ERROR_TOLERANCE = 1.01  # errors within this factor count as equal: the lowest parallelism among them is the knee


@dataclass(frozen=True)
class Knee:
    """Where a curve bends."""

    parallelism: int | None  # None: the curve still rises at its last level
    ceiling: float  # the highest rate of the fitted curve at any level, in the unit given
    falling: bool  # the rate falls after the knee


def find_knee(parallelism: Sequence[int], rates: Sequence[float]) -> Knee:
    """Returns the knee of `rates` (above zero, any unit) over `parallelism` (increasing).

    Raises:
        ValueError: there is no level, or the lengths differ.
    """
    if not parallelism or len(parallelism) != len(rates):
        raise ValueError("a curve needs at least one level, and one rate per level")
    levels, values = np.asarray(parallelism, float), np.asarray(rates, float)
    fits = [_Fit(levels, values, place) for place in range(parallelism[0], parallelism[-1] + 1)]
    least = min(fit.error for fit in fits)
    best = next(fit for fit in fits if fit.error <= _ERROR_TOLERANCE * least + 1e-12)
    fitted, ceiling = best.fitted, float(best.fitted.max())
    falling = bool(fitted[-1] < (1 - SIGNIFICANT_RISE) * ceiling)
    if ceiling < (1 + SIGNIFICANT_RISE) * fitted[0]:
        return Knee(parallelism[0], ceiling, falling)
    if best.position == parallelism[-1] or best.slope_after > MAX_SLOPE_RATIO * best.slope_before:
        return Knee(None, ceiling, falling=False)
    return Knee(best.position, ceiling, falling)


class _Fit:
    """The best two line segments that meet at `place`: their slopes, the fitted rates, and the error."""

    def __init__(self, levels: Any, values: Any, place: int) -> None:
        self.position = place
        basis = np.stack([np.ones_like(levels), np.minimum(levels, place) - levels[0], np.maximum(levels - place, 0)])
        used = [index for index in range(3) if basis[index].any()]
        solution, *_ = np.linalg.lstsq((basis[used] / values).T, np.ones_like(values), rcond=None)
        slopes = dict(zip(used, solution.tolist(), strict=True))
        self.slope_before, self.slope_after = slopes.get(1, 0.0), slopes.get(2, 0.0)
        self.fitted = basis[used].T @ solution
        self.error = float(np.sum((self.fitted / values - 1) ** 2))
