"""Speed of pipetune's plans compared with its rivals: the results of `pipetune bench`, and benchmarks.json."""

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
"""All measured variants, by their names in benchmarks.json and in its order."""

BASELINES = ("defaults", "autotune")
"""The rivals for which a geometric mean is computed."""

MOST_CACHED_BYTES = 64e9
"""A cache counts if the published data would fit into this many bytes."""


@dataclass(frozen=True)
class CacheUse:
    """The bytes a plan caches of the example data, and an estimate for the published data."""

    held_bytes: float  # of the example data
    bytes_ratio: float | None  # cached bytes over the bytes of the source; None: unknown
    published_bytes: float | None  # size of the published source; None: the workload stands only for itself
    counts: bool
    why: str


@dataclass(frozen=True)
class WorkloadResult:
    """Results of one workload. A ratio is pipetune's rate over the rival's, for the input alone."""

    name: str
    rivals: Mapping[str, Rate]  # only rivals that could be run
    ratio_over: Mapping[str, Interval]  # including the caches that count
    without_cache: Mapping[str, Interval]  # neither side adds a cache that the script does not have
    end_to_end: Interval | None = None  # speedup of the training step over the original script
    plan_seconds: float | None = None  # of the whole `pipetune analyze` run
    rewrites: tuple[str, ...] = ()  # rules of the plan
    equality: Mapping[str, object] | None = None  # as in a session's summary
    title: str = ""
    rewrites_without_cache: tuple[str, ...] = ()  # of the plan without caches, if the other plan has one
    end_to_end_over_autotune: Interval | None = None
    over_defaults: Mapping[str, Interval] = field(default_factory=dict)  # rate of each rival over that of `defaults`
    caches: Mapping[str, CacheUse] = field(default_factory=dict)  # by rival
    plans: Mapping[str, str] = field(default_factory=dict)  # what each rival sets, in words
    failed: Mapping[str, str] = field(default_factory=dict)  # rivals that could not be run, and why
    verdict: str = ""
    why: str = ""  # why there is no plan
    analysis_seconds: Mapping[str, float] = field(default_factory=dict)  # `plan_seconds` by part, as in its session
    seconds: float = 0.0  # in total
    date: str = ""
    notes: tuple[str, ...] = ()

    @property
    def best_rival(self) -> str | None:
        """The rival over which pipetune's lead is smallest, including the caches that count."""
        return min(self.ratio_over, key=lambda name: self.ratio_over[name].median, default=None)


@dataclass(frozen=True)
class Benchmarks:
    """All benchmark results measured so far."""

    version: str
    machine: Machine | None = None
    date: str = ""
    quick: bool = False  # the short run: few workloads, short windows, a small budget
    seed: int = 0
    workloads: tuple[WorkloadResult, ...] = ()
    suite: tuple[str, ...] = ()  # names of all workloads to measure; empty: exactly `workloads`

    @property
    def missing(self) -> tuple[str, ...]:
        """Workloads of the suite that have not been measured yet."""
        return tuple(name for name in self.suite if name not in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(workload.name for workload in self.workloads)

    @property
    def seconds(self) -> float:
        return sum(workload.seconds for workload in self.workloads)

    def with_workload(self, result: WorkloadResult) -> Benchmarks:
        """Returns a copy with this workload added, or replaced if the name exists; sorted by name."""
        others = (one for one in self.workloads if one.name != result.name)
        ordered = sorted((*others, result), key=lambda one: one.name)
        return replace(self, workloads=tuple(ordered), date=result.date or self.date)


def geometric_mean_over(workloads: Iterable[WorkloadResult]) -> dict[str, dict[str, float | None]]:
    """Returns the geometric mean of pipetune's lead over each of `BASELINES`; None if nothing was measured.

    If no plan was found, the script stays unchanged, so its training step counts with a ratio of 1.
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
    """Returns the contents of benchmarks.json, the documented keys first."""
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
    """Writes benchmarks.json atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    write_json(path, benchmarks_data(benchmarks))


def load(path: Path) -> Benchmarks | None:
    """Reads the benchmarks.json at `path`; None if there is no such file.

    Raises:
        PipetuneError: the file is damaged, or was written by another release.
    """
    if not path.exists():
        return None
    data = read_json(path, kind="benchmarks", schema=SCHEMA)
    try:
        return decode(Benchmarks, {**data, "version": data.get("pipetune")})
    except Malformed as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error
