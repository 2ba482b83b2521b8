"""Measures the cost of each operator by prefix differencing, within a given time.

The runtime's own model counts the seconds between the start and the end of an operator, whether it worked or waited.
Here every prefix of the pipeline is run, all of them in each round and in random order. Process CPU seconds and wall
seconds per element are compared; wall time that is not CPU time was spent waiting.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core import scratch
from pipetune.core.errors import CannotReplay
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile
from pipetune.search.differencing import Cost, PrefixSeconds, operator_costs
from pipetune.tf.measure import failures, prefixes, windows
from pipetune.tf.pipelines import live

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

FEWEST_ROUNDS = 3
_MOST_ROUNDS = 24
_ROUNDS = 8  # target
_GRACE = 0.5  # share of the time budget by which `FEWEST_ROUNDS` may exceed it
_CALL_SECONDS = 0.004  # target time of one `next`: the overhead of Python is then below 1 %
_WINDOW_SECONDS = 0.02  # shortest window
_MOST_ELEMENTS = 1 << 20
_COUNT_SECONDS = 0.25


@dataclass(frozen=True)
class Differences:
    """Result of prefix differencing."""

    costs: Mapping[str, Cost]  # by operator id
    visits: Mapping[str, float]  # by operator id: elements put out per element of the pipeline, in later epochs
    rounds: int

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
    each_round: Callable[[], object] = lambda: None,
) -> Differences:
    """Returns the cost of every operator that matters, from rounds over all prefixes in about `seconds`.

    Args:
        source: the live pipeline; the caller restores the state that it keeps outside itself.
        operators: profile of each operator from the runtime's model, by operator id.
        seconds: time budget; `FEWEST_ROUNDS` may exceed it by half.
        seed: of the random order of prefixes in each round.
        each_round: called at the start of every round, to measure something else in the same rounds.

    Raises:
        RunFailed: the pipeline cannot be cut, raised, or is too slow for `FEWEST_ROUNDS` in that time.
    """
    deadline = time.perf_counter() + seconds
    latest = deadline + _GRACE * seconds
    drains: dict[str, _Drain] = {}
    windows.settle()
    try:
        with failures.told("a prefix of the pipeline"), scratch.folder("costs") as folder:
            cuts = prefixes.cut(source, operators, folder)
            if not cuts.measured:
                raise RunFailed("no operator does anything but hand elements on")
            cuts.fill()
            for node in cuts.uncounted():
                _count(cuts, source, node)
            cuts.guess_ratios(operators)
            overhead = _Overhead(cuts.options)
            for node_id in cuts.measured:
                drains[node_id] = _Drain(cuts.drained, node_id, latest)

            def beside() -> None:
                overhead.measure()
                each_round()

            rounds = _run_rounds(drains, beside, deadline=deadline, latest=latest, seed=seed)
    except CannotReplay as error:
        raise RunFailed(error.message) from error
    finally:
        drains.clear()
        windows.settle()
    readings = [
        PrefixSeconds(
            node_id,
            cpu=tuple(overhead.cpu_without(one[node_id]) for one in rounds),
            wall=tuple(overhead.wall_without(one[node_id]) for one in rounds),
        )
        for node_id in cuts.measured
    ]
    return Differences(
        costs=operator_costs(readings, {node_id: cuts.visits(node_id) for node_id in cuts.measured}),
        visits=cuts.visits(source.pipeline.output.id, source.pipeline),
        rounds=len(rounds),
    )


@dataclass(frozen=True)
class _Window:
    """Time that some calls of `next` on one prefix took."""

    elements: int
    calls: int
    cpu_seconds: float
    wall_seconds: float


class _Drain:
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
            wanted = round(self.elements * _CALL_SECONDS / self.call_seconds)
            self.elements = min(_MOST_ELEMENTS, max(2 * self.elements, wanted))

    def window(self, seconds: float) -> _Window:
        """Consumes elements for about `seconds`, with one call at least."""
        calls = max(1, round(seconds / self.call_seconds))
        if calls > 3:
            next(self._iterator)  # not timed: the processor's caches still hold data of the previous prefix
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(calls):
            next(self._iterator)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return _Window(calls * self.elements, calls, cpu, wall)


class _Overhead:
    """Cost of the consumer itself, per call and per element, measured on a prefix that is only a range."""

    def __init__(self, options: Any) -> None:
        numbers = tf.data.Dataset.range(1 << 20).repeat()

        def make(_node: str, elements: int) -> Any:
            return prefixes.drained(numbers, elements, options)

        self._single = iter(make("", 1))
        self._many = iter(make("", _OVERHEAD_ELEMENTS))
        self._windows: list[tuple[float, float, float, float]] = []

    def measure(self) -> None:
        found = []
        for iterator, calls in ((self._single, 100), (self._many, 4)):
            next(iterator)
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(calls):
                next(iterator)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            found += [cpu / calls, wall / calls]
        self._windows.append((found[0], found[1], found[2], found[3]))

    def cpu_without(self, window: _Window) -> float:
        return self._without(window.cpu_seconds, window, 0)

    def wall_without(self, window: _Window) -> float:
        return self._without(window.wall_seconds, window, 1)

    def _without(self, seconds: float, window: _Window, which: int) -> float:
        call = statistics.median(one[which] for one in self._windows)
        many = statistics.median(one[which + 2] for one in self._windows)
        element = max(0.0, many - call) / (_OVERHEAD_ELEMENTS - 1)
        return (seconds - window.calls * (call - element)) / window.elements - element


def _run_rounds(
    drains: Mapping[str, _Drain], beside: Callable[[], object], *, deadline: float, latest: float, seed: int
) -> list[dict[str, _Window]]:
    """Measures windows of all prefixes, round after round, until the deadline.

    Raises:
        RunFailed: `FEWEST_ROUNDS` would end after `latest`.
    """
    draw = random.Random(seed)
    order = list(drains)
    wanted = max(0.0, deadline - time.perf_counter()) / _ROUNDS
    dear = [drain.call_seconds for drain in drains.values() if drain.call_seconds > wanted / len(order)]
    share = (wanted - sum(dear)) / max(1, len(order) - len(dear))
    seconds = max(_WINDOW_SECONDS, share)
    longest = sum(max(seconds, drain.call_seconds) for drain in drains.values())
    rounds: list[dict[str, _Window]] = []
    while len(rounds) < _MOST_ROUNDS:
        started = time.perf_counter()
        missing = FEWEST_ROUNDS - len(rounds)
        if started + max(1, missing) * longest > (latest if missing > 0 else deadline):
            break
        draw.shuffle(order)
        beside()
        rounds.append({node_id: drains[node_id].window(seconds) for node_id in order})
        longest = max(time.perf_counter() - started, longest if len(rounds) > 1 else 0.0)
    if len(rounds) < FEWEST_ROUNDS:
        raise RunFailed(_TOO_LONG)
    return rounds


def _count(cuts: prefixes.Prefixes, source: live.LivePipeline, node: Node) -> None:
    """Runs `node` for a while and stores the number of elements it takes from each input per element put out."""
    try:
        dataset, read = prefixes.counted(cuts, source, node)
    except CannotReplay:
        return
    iterator = iter(prefixes.drained(dataset.repeat(), 1, cuts.options))
    next(iterator)
    first, end = read(), time.perf_counter() + _COUNT_SECONDS
    while time.perf_counter() < end:
        next(iterator)
    last = read()
    if last[""] == first[""]:
        first = dict.fromkeys(first, 0)
    for name in node.inputs:
        cuts.ratios[node.id, name] = (last[name] - first[name]) / (last[""] - first[""])


_TOO_LONG = "running every prefix a few times takes longer than there is time for"
_OVERHEAD_ELEMENTS = 4096
