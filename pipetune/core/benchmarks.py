"""How fast pipetune's plans are beside its rivals': the values of `pipetune bench`, and benchmarks.json."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.core.codec import Json, Malformed, decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import read_json, write_json
from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, Rate

SCHEMA = 1

OURS = "pipetune"

RIVALS = ("off", "defaults", "autotune", "stage_based", "plumber", OURS)
"""Everything that is measured, by the names of benchmarks.json, in its order."""

BASELINES = ("defaults", "autotune")
"""The rivals that geometric means are over."""

MOST_CACHED_BYTES = 64e9
"""A cache counts where the published data would fit into this."""


@dataclass(frozen=True)
class CacheUse:
    """What a plan holds of the data, and what it would hold of the published data."""

    held_bytes: float  # of the data here
    bytes_ratio: float | None  # over the bytes of the source; None: nobody knows
    published_bytes: float | None  # of the published source; None: the workload stands for itself
    counts: bool
    why: str


@dataclass(frozen=True)
class WorkloadResult:
    """One workload as measured. A ratio is pipetune's rate over the rival's, the input alone."""

    name: str
    rivals: Mapping[str, Rate]  # those that could be run
    ratio_over: Mapping[str, Interval]  # with the caches that count
    without_cache: Mapping[str, Interval]  # neither side caches what the script does not
    end_to_end: Interval | None = None  # speedup of the training step over the script as written
    plan_seconds: float | None = None  # `pipetune analyze` from start to end
    rewrites: tuple[str, ...] = ()  # rules of the plan
    equality: Mapping[str, object] | None = None  # as in a session's summary
    title: str = ""
    rewrites_without_cache: tuple[str, ...] = ()  # of the plan where caches are left out, if the other has one
    end_to_end_over_autotune: Interval | None = None
    over_defaults: Mapping[str, Interval] = field(default_factory=dict)  # rate of each over that of `defaults`
    caches: Mapping[str, CacheUse] = field(default_factory=dict)  # by rival
    plans: Mapping[str, str] = field(default_factory=dict)  # what each rival sets, in words
    failed: Mapping[str, str] = field(default_factory=dict)  # rivals that could not be run, and why
    verdict: str = ""
    why: str = ""  # why there is no plan
    analysis_seconds: Mapping[str, float] = field(default_factory=dict)  # `plan_seconds` by part, as in its session
    seconds: float = 0.0  # all of it
    date: str = ""
    notes: tuple[str, ...] = ()

    @property
    def best_rival(self) -> str | None:
        """The rival that pipetune's lead over is smallest, caches that count included."""
        return min(self.ratio_over, key=lambda name: self.ratio_over[name].median, default=None)


@dataclass(frozen=True)
class Benchmarks:
    """Everything measured so far."""

    version: str
    machine: Machine | None = None
    date: str = ""
    quick: bool = False  # the short form: few workloads, short windows, a small budget
    seed: int = 0
    workloads: tuple[WorkloadResult, ...] = ()
    suite: tuple[str, ...] = ()  # names of all that are to be measured; empty: these

    @property
    def missing(self) -> tuple[str, ...]:
        """Workloads of the suite that nobody measured yet."""
        return tuple(name for name in self.suite if name not in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(workload.name for workload in self.workloads)

    @property
    def seconds(self) -> float:
        return sum(workload.seconds for workload in self.workloads)

    def with_workload(self, result: WorkloadResult) -> Benchmarks:
        """This and one workload more, in place of an earlier one, by name."""
        others = (one for one in self.workloads if one.name != result.name)
        ordered = sorted((*others, result), key=lambda one: one.name)
        return replace(self, workloads=tuple(ordered), date=result.date or self.date)


def geometric_mean_over(workloads: Iterable[WorkloadResult]) -> dict[str, dict[str, float | None]]:
    """The geometric mean of pipetune's lead over each of `BASELINES`; None where nothing was measured.

    A script for which no plan was found stays as it is: its training step counts as just as fast.
    """
    found = tuple(workloads)

    def of_ratios(ratios: Callable[[WorkloadResult], Mapping[str, Interval]]) -> dict[str, float | None]:
        return {name: _mean(ratios(one).get(name) for one in found) for name in BASELINES}

    return {
        "all": of_ratios(lambda one: one.ratio_over),
        "without_cache": of_ratios(lambda one: one.without_cache),
        "end_to_end": {
            "defaults": _mean(one.end_to_end or (None if one.rewrites else _UNCHANGED) for one in found),
            "autotune": _mean(one.end_to_end_over_autotune for one in found),
        },
    }


_UNCHANGED = Interval(1.0, 1.0, 1.0, 0, "unchanged")


def _mean(intervals: Iterable[Interval | None]) -> float | None:
    known = [math.log(interval.median) for interval in intervals if interval is not None]
    return math.exp(statistics.fmean(known)) if known else None


def benchmarks_data(benchmarks: Benchmarks) -> dict[str, Json]:
    """As benchmarks.json holds it, the documented keys first."""
    return {
        "schema": SCHEMA,
        "pipetune": benchmarks.version,
        "machine": encode(benchmarks.machine),
        "date": benchmarks.date,
        "seconds": round(benchmarks.seconds, 1),
        "workloads": encode(benchmarks.workloads),
        "geometric_mean_over": encode(geometric_mean_over(benchmarks.workloads)),
        "quick": benchmarks.quick,
        "seed": benchmarks.seed,
        "suite": encode(benchmarks.suite),
    }


def save(benchmarks: Benchmarks, path: Path) -> None:
    """Write benchmarks.json in one step.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    write_json(path, benchmarks_data(benchmarks))


def load(path: Path) -> Benchmarks | None:
    """What benchmarks.json at `path` holds; None where there is none.

    Raises:
        PipetuneError: it is damaged, or another release wrote it.
    """
    if not path.exists():
        return None
    data = read_json(path, kind="benchmarks", schema=SCHEMA)
    try:
        return decode(Benchmarks, {**data, "version": data.get("pipetune")})
    except Malformed as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error
