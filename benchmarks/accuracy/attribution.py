"""The accuracy of costs per operator: measured costs compared with the true ones on pipelines of known cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import ProgressCallback, known_costs
from benchmarks.claims import Claim
from benchmarks.known_costs import CostCase, KnownFunction
from benchmarks.resumable import ResumableResults
from pipetune.measure import profiler
from pipetune.measure.differencing import measure_costs
from pipetune.pipelines import live

WAIT_SECONDS = 0.002

QUICK = ("works, parallelism 1, batched", "one after another, parallelism 2", "works, inside interleave at 1")
"""The cases of a quick run."""

TARGET_ERROR = 0.10

_PROFILE_SECONDS, _COST_SECONDS = 0.4, 6.0  # the second as with the default budget


@dataclass(frozen=True)
class Row:
    """One operator of known cost; all times are per element of its output."""

    case: str
    operator: str
    known: str  # its kind: "works", "waits", "python", "sleeps"
    true_cpu_seconds: float
    cpu_seconds: float
    true_waiting_seconds: float
    waiting_seconds: float
    model_cpu_seconds: float | None  # as estimated by the runtime's model

    @property
    def error(self) -> float:
        """Relative error: of the CPU time of an operator that works, of the waiting time of one that waits."""
        if self._waits:
            return abs(self.waiting_seconds / self.true_waiting_seconds - 1)
        return abs(self.cpu_seconds / self.true_cpu_seconds - 1)

    @property
    def recognised(self) -> bool:
        """Whether an operator that waits was measured to wait, and one that works to work."""
        return (self.waiting_seconds > self.cpu_seconds) == self._waits

    @property
    def _waits(self) -> bool:
        return self.true_waiting_seconds > self.true_cpu_seconds


@dataclass(frozen=True)
class Attribution:
    """The figure. Errors are relative: 0.1 is 10 %."""

    cases: int
    mean_error: float
    max_error: float
    recognised: int
    rows: tuple[Row, ...]


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> Attribution:
    """Measures all cases, or with `quick` those in `QUICK`."""
    functions = (
        known_costs.sorting_function(6),
        known_costs.sleeping_function(WAIT_SECONDS),
        known_costs.python_function(20_000),
    )
    by_name = {function.name: function for function in functions}
    cases = [case for case in known_costs.cases(by_name, wait_seconds=WAIT_SECONDS) if not quick or case.name in QUICK]
    rows: list[Row] = []
    for number, case in enumerate(cases, 1):
        progress(f"attributing costs, {number} of {len(cases)}: {case.name}")
        rows += saved.get(tuple[Row, ...], case.name, partial(attribute, case, by_name, seed=seed))
    errors = [row.error for row in rows]
    return Attribution(
        cases=len(cases),
        mean_error=statistics.fmean(errors),
        max_error=max(errors),
        recognised=sum(row.recognised for row in rows),
        rows=tuple(rows),
    )


def attribute(case: CostCase, functions: Mapping[str, KnownFunction], *, seed: int) -> tuple[Row, ...]:
    """Measures the operators of a case, which are made of these functions by name.

    True costs are measured in the same rounds as the prefixes, so that changes of the machine's speed affect both.
    """
    isolated = {name: known_costs.IsolatedCalls(functions[name]) for name in case.expected.values() if name}
    source = live.read(case.dataset)
    model = {one.node: one for one in profiler.profile_input(source, seconds=_PROFILE_SECONDS).operators}
    each_round = partial(_measure_windows, tuple(isolated.values()))
    costs = measure_costs(source, model, seconds=_COST_SECONDS, seed=seed, each_round=each_round).costs
    rows = []
    for position, name in case.expected.items():
        node = source.pipeline.nodes[position]
        truth = isolated[name].true_cost if name else known_costs.TrueCost(0.0, WAIT_SECONDS)
        rows.append(
            Row(
                case=case.name,
                operator=node.title,
                known=name or "sleeps",
                true_cpu_seconds=truth.cpu_seconds,
                cpu_seconds=costs[node.id].cpu.median,
                true_waiting_seconds=truth.waiting_seconds,
                waiting_seconds=costs[node.id].waiting.median,
                model_cpu_seconds=model[node.id].cpu_seconds,
            )
        )
    return tuple(rows)


def claims(result: Attribution, *, quick: bool) -> Sequence[Claim]:
    """Returns the errors; quick runs have no targets for them, as they run on machines that are busy otherwise."""
    target = f"at most {TARGET_ERROR:.0%}"
    complete = result.recognised == len(result.rows)
    return (
        Claim("mean error", f"{result.mean_error:.1%}", target, None if quick else result.mean_error <= TARGET_ERROR),
        Claim("largest error", f"{result.max_error:.1%}", target, None if quick else result.max_error <= TARGET_ERROR),
        Claim("waiting distinguished from work", f"{result.recognised} of {len(result.rows)}", "all", complete),
    )


def _measure_windows(isolated: Sequence[known_costs.IsolatedCalls]) -> None:
    for calls in isolated:
        calls.measure_window()
