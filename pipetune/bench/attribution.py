"""How well the cost of operators is attributed: pipelines of known cost, the truth beside what is measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipetune.bench import Say
from pipetune.core.accuracy import Claim
from pipetune.measure import known_costs, profiler
from pipetune.measure.differencing import measure_costs
from pipetune.pipelines import live

WAIT_SECONDS = 0.002

QUICK = ("works, parallelism 1, batched", "one after another, parallelism 2", "works, inside interleave at 1")
"""The cases of the short form."""

WANTED_ERROR = 0.10

_PROFILE_SECONDS, _COST_SECONDS = 0.4, 6.0  # the latter as with the default budget


@dataclass(frozen=True)
class Row:
    """One operator whose cost is known; seconds per element it puts out."""

    case: str
    operator: str
    known: str  # what it does: "works", "waits", "python", "sleeps"
    true_cpu_seconds: float
    cpu_seconds: float
    true_waiting_seconds: float
    waiting_seconds: float
    model_cpu_seconds: float | None  # what the runtime's model says

    @property
    def error(self) -> float:
        """Share of the truth: of the CPU time of an operator that works, of the wait of one that waits."""
        if self.true_waiting_seconds > self.true_cpu_seconds:
            return abs(self.waiting_seconds / self.true_waiting_seconds - 1)
        return abs(self.cpu_seconds / self.true_cpu_seconds - 1)

    @property
    def recognised(self) -> bool:
        """Whether waiting is told as waiting, and work as work."""
        waits = self.true_waiting_seconds > self.true_cpu_seconds
        return (self.waiting_seconds > self.cpu_seconds) == waits


@dataclass(frozen=True)
class Attribution:
    """All cases. Errors are fractions of the truth."""

    cases: int
    mean_error: float
    max_error: float
    recognised: int  # rows in which waiting is told as waiting and work as work
    rows: tuple[Row, ...]


def measure(*, quick: bool, seed: int, say: Say) -> Attribution:
    """Every case; of the short form those of `QUICK`."""
    return attribute(QUICK if quick else None, seed=seed, say=say)


def attribute(names: Sequence[str] | None, *, seed: int, say: Say) -> Attribution:
    """The cases of these names, or all.

    The truth is measured in the same rounds as the prefixes: a machine that changes its speed changes both.
    """
    functions = (
        known_costs.sorting_function(6),
        known_costs.sleeping_function(WAIT_SECONDS),
        known_costs.python_function(20_000),
    )
    known = {one.name: one for one in functions}
    cases = known_costs.cases(known, wait_seconds=WAIT_SECONDS)
    chosen = [case for case in cases if names is None or case.name in names]
    rows: list[Row] = []
    for number, case in enumerate(chosen, 1):
        say(f"attributing costs, {number} of {len(chosen)}: {case.name}")
        alone = {name: known_costs.IsolatedCalls(known[name]) for name in case.expected.values() if name}
        source = live.read(case.dataset)
        model = {one.node: one for one in profiler.profile_input(source, seconds=_PROFILE_SECONDS).operators}
        take = partial(_measure_windows, tuple(alone.values()))
        costs = measure_costs(source, model, seconds=_COST_SECONDS, seed=seed, each_round=take).costs
        for position, name in case.expected.items():
            node = source.pipeline.nodes[position]
            truth = alone[name].true_cost if name else known_costs.TrueCost(0.0, WAIT_SECONDS)
            row = Row(
                case=case.name,
                operator=node.title,
                known=name or "sleeps",
                true_cpu_seconds=truth.cpu_seconds,
                cpu_seconds=costs[node.id].cpu.median,
                true_waiting_seconds=truth.waiting_seconds,
                waiting_seconds=costs[node.id].waiting.median,
                model_cpu_seconds=model[node.id].cpu_seconds,
            )
            rows.append(row)
    errors = [row.error for row in rows]
    return Attribution(
        cases=len(chosen),
        mean_error=statistics.fmean(errors),
        max_error=max(errors),
        recognised=sum(row.recognised for row in rows),
        rows=tuple(rows),
    )


def claims(found: Attribution, *, quick: bool) -> Sequence[Claim]:
    """The short form promises no figure: it runs on machines that do other things as well."""
    wanted = f"at most {WANTED_ERROR:.0%}"
    right = found.recognised == len(found.rows)
    return (
        Claim("mean error", f"{found.mean_error:.1%}", wanted, None if quick else found.mean_error <= WANTED_ERROR),
        Claim("largest error", f"{found.max_error:.1%}", wanted, None if quick else found.max_error <= WANTED_ERROR),
        Claim("waiting distinguished from work", f"{found.recognised} of {len(found.rows)}", "all", right),
    )


def _measure_windows(alone: Sequence[known_costs.IsolatedCalls]) -> None:
    for one in alone:
        one.measure_window()
