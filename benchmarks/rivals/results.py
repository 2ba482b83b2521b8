"""The results of `pipetune bench`: speed compared with rivals, and the targets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.claims import Claim
from benchmarks.figures import Results
from benchmarks.rivals.workloads import find_workloads
from pipetune.core.codec import Json, encode
from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, Rate

PIPETUNE, EXPERT = "pipetune", "expert"

RIVALS = ("off", "defaults", "autotune", "stage_based", "plumber", EXPERT, PIPETUNE)
"""All measured variants, by their names in benchmarks.json and in its order. The expert is a person: `expert.py`."""

BASELINES = ("defaults", "autotune")
"""The rivals for which a geometric mean of the training step is computed as well."""

MAX_CACHED_BYTES = 64e9
"""A cache counts if the published data would fit into this many bytes."""


@dataclass(frozen=True)
class CacheUse:
    """The bytes a plan caches of the example data, and an estimate for the published data."""

    held_bytes: float  # of the example data
    bytes_ratio: float | None  # cached bytes over the bytes of the source; None: unknown
    published_bytes: float | None  # size of the published source; None: the workload represents only itself
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
class Benchmarks(Results):
    """All benchmark results measured so far."""

    workloads: tuple[WorkloadResult, ...] = ()
    suite: tuple[str, ...] = ()  # names of all workloads to measure; empty: exactly `workloads`

    figure_type = WorkloadResult

    @property
    def missing(self) -> tuple[str, ...]:
        """Workloads of the suite that have not been measured yet."""
        return tuple(name for name in self.suite if name not in self.measured)

    @property
    def measured(self) -> Mapping[str, WorkloadResult]:
        return {workload.name: workload for workload in self.workloads}

    @property
    def seconds(self) -> float:
        """Time spent on all measured workloads in total."""
        return sum(workload.seconds for workload in self.workloads)

    def with_figure(self, name: str, figure: WorkloadResult, machine: Machine | None) -> Benchmarks:
        """Returns a copy with this workload added, or replaced if the name exists; sorted by name."""
        ordered = sorted({**self.measured, name: figure}.values(), key=lambda one: one.name)
        return replace(self, workloads=tuple(ordered), date=figure.date or self.date, machine=machine)

    def updated(self) -> Benchmarks:
        """Returns a copy with the present suite; a quick run has no other workloads than those measured."""
        return replace(self, suite=() if self.quick else tuple(find_workloads()))

    def data(self) -> dict[str, Json]:
        return {
            **super().data(),
            "seconds": round(self.seconds, 1),
            "workloads": encode(self.workloads),
            "geometric_mean_over": encode(geometric_mean_over(self.workloads)),
            "quick": self.quick,
            "seed": self.seed,
            "suite": encode(self.suite),
        }


def geometric_mean_over(workloads: Iterable[WorkloadResult]) -> dict[str, dict[str, float | None]]:
    """Returns the geometric means of pipetune's ratios over `BASELINES`, and for the input alone also over the expert.

    A mean is None if nothing was measured. If no plan was found, the script stays unchanged, so its training step
    counts with a ratio of 1.
    """
    results = tuple(workloads)

    def of_ratios(ratios: Callable[[WorkloadResult], Mapping[str, Interval]]) -> dict[str, float | None]:
        return {name: _mean(ratios(one).get(name) for one in results) for name in (*BASELINES, EXPERT)}

    return {
        "all": of_ratios(lambda one: one.ratio_over),
        "without_cache": of_ratios(lambda one: one.without_cache),
        "end_to_end": {
            "defaults": _mean(one.end_to_end or (None if one.rewrites else _UNCHANGED) for one in results),
            "autotune": _mean(one.end_to_end_over_autotune for one in results),
        },
    }


_UNCHANGED = Interval(1.0, 1.0, 1.0, 0, "unchanged")


def _mean(intervals: Iterable[Interval | None]) -> float | None:
    known = [math.log(interval.median) for interval in intervals if interval is not None]
    return math.exp(statistics.fmean(known)) if known else None


RIVAL_AHEAD_BELOW = 0.97
"""A rival is ahead if the whole interval of pipetune's ratio over it lies below this value."""

EXPERT_REACHED = 0.95  # target for pipetune's ratio over the expert's script, on every workload
TARGET_WITHOUT_CACHE, TARGET_WITH_CACHE = 2.0, 4.0  # targets for the geometric mean of pipetune's ratio over a baseline
TARGET_PLAN_SECONDS = 60.0  # target for the mean time to a plan: a goal, see docs/accuracy.md
TARGET_CORES = 2  # cores granted to the machine that the targets are set for; on others they are not checked


def claims(benchmarks: Benchmarks) -> tuple[Claim, ...]:
    """Returns the targets and the measured values; only the complete suite on two cores is checked against them.

    If workloads have not been measured yet, the first claim lists them.
    """
    workloads, machine, missing = benchmarks.workloads, benchmarks.machine, benchmarks.missing
    means = geometric_mean_over(workloads)
    result = [
        _minimum_claim(f"geometric mean over {name}, {condition}", means[part][name], target)
        for part, condition, target in (
            ("without_cache", "no caches", TARGET_WITHOUT_CACHE),
            ("all", "with caches", TARGET_WITH_CACHE),
        )
        for name in BASELINES
    ]
    if missing:
        measured = f"{len(workloads)} of {len(workloads) + len(missing)} (missing: {', '.join(missing)})"
        result.insert(0, Claim("workloads measured", measured, "all"))
    for name in BASELINES:
        mean = means["end_to_end"][name]
        if mean is not None:
            what = f"geometric mean over {name}, training step{_coverage_note(name, workloads)}"
            result.append(Claim(what, _ratio(mean)))
    result += [_expert_claim(workloads), _faster_rivals_claim(workloads), _plan_seconds_claim(workloads)]
    complete = not (benchmarks.quick or missing)
    if complete and machine is not None and round(machine.cores_granted) == TARGET_CORES:
        return tuple(result)
    return tuple(replace(claim, met=None) for claim in result)


def _coverage_note(name: str, workloads: Sequence[WorkloadResult]) -> str:
    """Returns how many workloads the mean covers: the step is compared with AUTOTUNE only if there is a plan."""
    measured = sum(one.end_to_end_over_autotune is not None for one in workloads)
    return f", the {measured} with a plan" if name == "autotune" and measured < len(workloads) else ""


def _minimum_claim(what: str, mean: float | None, target: float) -> Claim:
    measured = "not measured" if mean is None else _ratio(mean)
    return Claim(what, measured, f"at least {target:g}x", None if mean is None else mean >= target)


def _faster_rivals_claim(workloads: Sequence[WorkloadResult]) -> Claim:
    names = [one.name for one in workloads if faster_rivals(one)]
    measured = f"{len(names)} of {len(workloads)}" + (f" ({', '.join(names)})" if names else "")
    what = f"workloads with a certainly faster rival (ratio below {RIVAL_AHEAD_BELOW:g})"
    return Claim(what, measured, "none", not names if workloads else None)


def _expert_claim(workloads: Sequence[WorkloadResult]) -> Claim:
    what = f"workloads at {EXPERT_REACHED:g} of the expert's script or better"
    compared = [one for one in workloads if EXPERT in one.ratio_over]
    if not compared:
        return Claim(what, "not measured", "all")
    slower = [one.name for one in compared if one.ratio_over[EXPERT].median < EXPERT_REACHED]
    measured = f"{len(compared) - len(slower)} of {len(compared)}" + (f" (not: {', '.join(slower)})" if slower else "")
    return Claim(what, measured, "all", not slower)


def _plan_seconds_claim(workloads: Sequence[WorkloadResult]) -> Claim:
    what, target = "mean time to a plan", f"at most {TARGET_PLAN_SECONDS:.0f} s"
    known = [one.plan_seconds for one in workloads if one.plan_seconds is not None]
    if not known:
        return Claim(what, "not measured", target)
    mean = statistics.fmean(known)
    return Claim(what, f"{mean:.0f} s", target, mean <= TARGET_PLAN_SECONDS)


def shortfall_reasons(benchmarks: Benchmarks) -> tuple[str, ...]:
    """Returns one sentence for each workload that has no plan or is slower than a rival."""
    reasons = []
    for one in benchmarks.workloads:
        if one.why:
            reasons.append(f"{one.name}: {one.why}")
        ahead = min(faster_rivals(one), key=lambda name: one.ratio_over[name].median, default=None)
        if ahead is not None:
            ratio, sets = one.ratio_over[ahead], one.plans.get(ahead, "")
            reasons.append(
                f"{one.name}: {ahead} is faster, pipetune's ratio over it is {_ratio(ratio.median)} ("
                f"{_ratio(ratio.low)} to {_ratio(ratio.high)})" + (f"; it sets {sets}" if sets else "")
            )
    return tuple(reasons)


def faster_rivals(workload: WorkloadResult) -> tuple[str, ...]:
    """Returns the rivals that are certainly faster (the whole interval is below `RIVAL_AHEAD_BELOW`)."""
    return tuple(name for name, ratio in workload.ratio_over.items() if ratio.high < RIVAL_AHEAD_BELOW)


def _ratio(value: float) -> str:
    return f"{value:.2f}x"
