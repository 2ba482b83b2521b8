"""Measures the cost of each operator by prefix differencing, within a given time.

The runtime's own model counts the seconds between the start and the end of an operator, including waiting. Here every
prefix of the pipeline is run, all of them in each round and in random order. Process CPU seconds and wall seconds per
element are compared; wall time that is not CPU time was spent waiting.

A prefix takes the seconds of every operator in it, each as often as it is visited: one equation per prefix. As one
round measures all of them, what drifts is in all alike; the difference round by round gives the interval, and the
typical seconds of all rounds the cost, none of them below zero.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import optimize, special

from pipetune.core import files
from pipetune.core.errors import CannotReplay
from pipetune.core.measurement import Interval, RunFailed
from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile
from pipetune.measure import prefixes
from pipetune.pipelines import live
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators

SPIN_SECONDS = 100e-6
"""CPU time beyond the wall time of a call up to which it counts as idle threads of the pool that look for work.

They do so after each call in one thread, and not where all are busy. Measured: 20 to 90 us a call. More is of kernels
that use several threads.
"""

METHOD = "t on differences between prefixes, 95 %"
_ERROR = 0.05  # two-sided


@dataclass(frozen=True)
class Cost:
    """Seconds of one operator per element it puts out."""

    cpu: Interval
    wall: Interval
    waiting: Interval  # wall less CPU; zero where several threads worked at once

    @property
    def several_threads(self) -> bool:
        """Whether it used more CPU seconds than wall seconds, beyond doubt.

        Some more are of idle threads that look for work.
        """
        return self.cpu.low > 1.3 * self.wall.high


def operator_costs(
    cpu_seconds: Mapping[str, Sequence[float]],
    wall_seconds: Mapping[str, Sequence[float]],
    visits: Mapping[str, Mapping[str, float]],
) -> dict[str, Cost]:
    """The cost of the last operator of every prefix; a prefix is named by it.

    Args:
        cpu_seconds: per element that each prefix puts out, one entry a round, at least two; the consumer's own taken
            off.
        wall_seconds: as many.
        visits: per prefix, elements every operator in it puts out per element of the prefix. Operators that end no
            prefix count to the next one behind them.

    Raises:
        ValueError: fewer than two rounds.
    """
    names = list(cpu_seconds)
    matrix = np.array([[visits[row].get(column, 0.0) for column in names] for row in names])
    cpu = np.array([cpu_seconds[name] for name in names])  # prefix, round
    wall = np.array([wall_seconds[name] for name in names])
    if cpu.shape[1] < 2:
        raise ValueError("an interval needs at least two rounds")
    cpu_points, wall_points = _not_negative(matrix, cpu), _not_negative(matrix, wall)
    cpu_rounds, wall_rounds = np.linalg.solve(matrix, cpu), np.linalg.solve(matrix, wall)
    found = {}
    for row, name in enumerate(names):
        spin = min(max(0.0, cpu_points[row] - wall_points[row]), SPIN_SECONDS)
        found[name] = Cost(
            cpu=_interval(cpu_points[row] - spin, cpu_rounds[row] - spin),
            wall=_interval(wall_points[row], wall_rounds[row]),
            waiting=_interval(max(0.0, wall_points[row] - cpu_points[row]), wall_rounds[row] - cpu_rounds[row]),
        )
    return found


def _not_negative(matrix: np.ndarray, seconds: np.ndarray) -> list[float]:
    """Costs of zero or more that explain the typical seconds of all prefixes best.

    Where every difference is positive these are the differences; where noise makes one negative, its neighbours
    give way, so that the sum stays that of the whole pipeline. Equations are scaled to 1: noise grows with the time.
    """
    typical = np.maximum(np.median(seconds, axis=1), 1e-12)
    costs, _ = optimize.nnls(matrix / typical[:, None], np.ones(len(typical)))
    return list(map(float, costs))


def _interval(point: float, rounds: np.ndarray) -> Interval:
    """Two-sided t interval around the mean of the rounds, not below zero, and with the point in it."""
    values = rounds.tolist()
    reach = statistics.stdev(values) / math.sqrt(len(values))
    reach *= float(special.stdtrit(len(values) - 1, 1 - _ERROR / 2))
    mean = statistics.fmean(values)
    low, high = max(0.0, min(mean - reach, point)), max(mean + reach, point)
    return Interval(point, low, high, pairs=len(values), method=METHOD)


FEWEST_ROUNDS = 3  # rounds needed for an interval, by judgement: with two it would be too wide to be useful
_MOST_ROUNDS = 24  # by judgement: more rounds narrow the intervals little, and leave less time for the trials
_ROUNDS = 8  # target, from which the length of the windows follows
_GRACE = 0.5  # share of the time budget by which `FEWEST_ROUNDS` may exceed it
_CALL_SECONDS = 0.004  # target time of one `next`: the overhead of Python is then below 1 %
_WINDOW_SECONDS = 0.02  # shortest window
_MOST_ELEMENTS = 1 << 20  # per call, by judgement: ends the search even if elements take no measurable time
_COUNT_SECONDS = 0.25  # to count the inputs of one operator, by judgement: shorter counts are less exact


@dataclass(frozen=True)
class DifferencingResult:
    """Result of prefix differencing."""

    costs: Mapping[str, Cost]  # by operator id
    visits: Mapping[str, float]  # by operator id: output elements per element of the pipeline, in later epochs

    @property
    def several_threads(self) -> tuple[str, ...]:
        """Operators whose kernels use several threads."""
        return tuple(node_id for node_id, cost in self.costs.items() if cost.several_threads)


def measure_costs(
    source: live.LivePipeline,
    operators: Mapping[str, OperatorProfile],
    *,
    seconds: float,
    seed: int = 0,
    full_caches: bool = False,
    each_round: Callable[[], object] = lambda: None,
) -> DifferencingResult:
    """Returns the cost of every operator that matters, from rounds over all prefixes in about `seconds`.

    Args:
        source: the live pipeline; the caller restores variables and other state that it changes.
        operators: profile of each operator from the runtime's model, by operator id.
        seconds: time budget; `FEWEST_ROUNDS` may exceed it by half.
        seed: seed of the random order of prefixes in each round.
        full_caches: whether the memory caches of `source` are full.
        each_round: called at the start of every round, to measure something else in the same rounds.

    Raises:
        RunFailed: the pipeline cannot be cut, raised, or is too slow for `FEWEST_ROUNDS` in that time.
    """
    deadline = time.perf_counter() + seconds
    latest = deadline + _GRACE * seconds
    drains: dict[str, _PrefixDrain] = {}
    free_iterators()
    try:
        with windows.as_run_failed("a prefix of the pipeline"), files.temporary_folder("costs") as folder:
            cuts = prefixes.cut(source, operators, folder, full_caches=full_caches)
            if not cuts.measured_nodes:
                raise RunFailed("all operators only pass elements through")
            cuts.fill()
            for node in cuts.nodes_to_count():
                _count(cuts, source, node)
            cuts.guess_ratios(operators)
            overhead = _Overhead(cuts.options)
            drains |= {name: _PrefixDrain(cuts.every_nth, name, latest) for name in cuts.measured_nodes}

            def between_rounds() -> None:
                overhead.measure()
                each_round()

            rounds = _run_rounds(drains, between_rounds, deadline=deadline, latest=latest, seed=seed)
    except CannotReplay as error:
        raise RunFailed(error.message) from error
    finally:
        drains.clear()
        free_iterators()
    names = cuts.measured_nodes
    cpu, wall = ({name: [overhead.without(one[name], which) for one in rounds] for name in names} for which in (0, 1))
    return DifferencingResult(
        costs=operator_costs(cpu, wall, {node_id: cuts.visits(node_id) for node_id in names}),
        visits=cuts.visits(source.pipeline.output.id, source.pipeline),
    )


@dataclass(frozen=True)
class _Window:
    """Time that some calls of `next` on one prefix took."""

    elements: int
    calls: int
    seconds: tuple[float, float]  # as of `_timed`


class _PrefixDrain:
    """One prefix, whose iterator stays alive across rounds, and how many of its elements one call consumes."""

    def __init__(self, make: Callable[[str, int], Any], node_id: str, deadline: float) -> None:
        """Finds the number of elements for which a call takes about `_CALL_SECONDS`.

        Raises:
            RunFailed: the deadline passed.
        """
        self.elements = 1
        while True:
            self._iterator = iter(make(node_id, self.elements))
            next(self._iterator)  # fills the buffers
            started = time.perf_counter()
            next(self._iterator)
            self.call_seconds = time.perf_counter() - started
            if time.perf_counter() > deadline:
                raise RunFailed(_TOO_LONG)
            if self.call_seconds >= _CALL_SECONDS / 2 or self.elements >= _MOST_ELEMENTS:
                return
            per_call = round(self.elements * _CALL_SECONDS / self.call_seconds)
            self.elements = min(_MOST_ELEMENTS, max(2 * self.elements, per_call))

    def window(self, seconds: float) -> _Window:
        """Consumes elements for about `seconds`, in at least one call, and returns the time they took."""
        calls = max(1, round(seconds / self.call_seconds))
        if calls > 3:
            next(self._iterator)  # not timed: the processor's caches still hold data of the previous prefix
        return _Window(calls * self.elements, calls, _timed(self._iterator, calls))


def _timed(iterator: Iterator[Any], calls: int) -> tuple[float, float]:
    """Returns the CPU seconds of the process and the wall seconds that so many calls of `next` take."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        next(iterator)
    wall = time.perf_counter() - wall
    return time.process_time() - cpu, wall


class _Overhead:
    """Cost of the consumer itself, per call and per element, measured on a prefix that is only a range."""

    def __init__(self, options: Any) -> None:
        numbers = tf.data.Dataset.range(1 << 20).repeat()
        self._single = iter(prefixes.every_nth_element(numbers, 1, options))
        self._many = iter(prefixes.every_nth_element(numbers, _OVERHEAD_ELEMENTS, options))
        self._windows: list[list[float]] = []  # CPU and wall seconds of a call for one element, and of one for many

    def measure(self) -> None:
        self._windows.append([])
        for iterator, calls in ((self._single, 100), (self._many, 4)):
            next(iterator)
            self._windows[-1] += [seconds / calls for seconds in _timed(iterator, calls)]

    def without(self, window: _Window, which: int) -> float:
        """Returns the seconds of an element of the prefix: the CPU seconds if `which` is 0, the wall seconds if 1."""
        call = statistics.median(one[which] for one in self._windows)
        many = statistics.median(one[which + 2] for one in self._windows)
        element = max(0.0, many - call) / (_OVERHEAD_ELEMENTS - 1)
        return (window.seconds[which] - window.calls * (call - element)) / window.elements - element


def _run_rounds(
    drains: Mapping[str, _PrefixDrain], each_round: Callable[[], object], *, deadline: float, latest: float, seed: int
) -> list[dict[str, _Window]]:
    """Measures a window of every prefix, round after round, until the deadline; returns the windows by operator id.

    Raises:
        RunFailed: `FEWEST_ROUNDS` would end after `latest`.
    """
    draw = random.Random(seed)
    order = list(drains)
    round_seconds = max(0.0, deadline - time.perf_counter()) / _ROUNDS
    dear = [drain.call_seconds for drain in drains.values() if drain.call_seconds > round_seconds / len(order)]
    share = (round_seconds - sum(dear)) / max(1, len(order) - len(dear))
    seconds = max(_WINDOW_SECONDS, share)
    longest = sum(max(seconds, drain.call_seconds) for drain in drains.values())
    rounds: list[dict[str, _Window]] = []
    while len(rounds) < _MOST_ROUNDS:
        started = time.perf_counter()
        missing = FEWEST_ROUNDS - len(rounds)
        if started + max(1, missing) * longest > (latest if missing > 0 else deadline):
            break
        draw.shuffle(order)
        each_round()
        rounds.append({node_id: drains[node_id].window(seconds) for node_id in order})
        longest = max(time.perf_counter() - started, longest if len(rounds) > 1 else 0.0)
    if len(rounds) < FEWEST_ROUNDS:
        raise RunFailed(_TOO_LONG)
    return rounds


def _count(cuts: prefixes.Prefixes, source: live.LivePipeline, node: Node) -> None:
    """Runs `node` for `_COUNT_SECONDS` and stores how many elements it takes from each input per output element."""
    try:
        dataset, read = prefixes.counting_prefix(cuts, source, node)
    except CannotReplay:
        return
    iterator = iter(prefixes.every_nth_element(dataset.repeat(), 1, cuts.options))
    next(iterator)
    first = read()
    windows.consume(iterator, _COUNT_SECONDS, fewest=0)
    last = read()
    if last[""] == first[""]:
        first = dict.fromkeys(first, 0)
    for name in node.inputs:
        cuts.ratios[node.id, name] = (last[name] - first[name]) / (last[""] - first[""])


_TOO_LONG = "running every prefix a few times takes longer than the time budget"
_OVERHEAD_ELEMENTS = 4096  # per call, by judgement: so many that together they cost more than the call itself
