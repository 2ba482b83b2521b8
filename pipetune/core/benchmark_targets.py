"""Targets of `pipetune bench` on two cores, compared with the measurements; a miss is reported with its reason."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pipetune.core.accuracy import Claim
from pipetune.core.benchmarks import BASELINES, Benchmarks, WorkloadResult, geometric_mean_over

KEEPS_UP = 0.97
"""A rival is ahead if the whole interval of pipetune's ratio over it lies below this value."""

LEAST_WITHOUT_CACHE, LEAST_WITH_CACHE = 2.0, 4.0
PLAN_SECONDS = 60.0
CORES = 2


def claims(benchmarks: Benchmarks) -> tuple[Claim, ...]:
    """Returns the targets and the measured values; only the complete suite on two cores is checked against them.

    If workloads have not been measured yet, the first claim lists them.
    """
    workloads = benchmarks.workloads
    machine = benchmarks.machine
    missing = benchmarks.missing
    held = not (benchmarks.quick or missing) and machine is not None and round(machine.cores_granted) == CORES
    means = geometric_mean_over(workloads)
    found = [
        _least(f"geometric mean over {name}, {words}", means[part][name], least, held=held)
        for part, words, least in (
            ("without_cache", "no caches", LEAST_WITHOUT_CACHE),
            ("all", "with caches", LEAST_WITH_CACHE),
        )
        for name in BASELINES
    ]
    if missing:
        words = f"{len(workloads)} of {len(workloads) + len(missing)} (not yet {', '.join(missing)})"
        found.insert(0, Claim("workloads measured", words, "all", None))
    for name in BASELINES:
        mean = means["end_to_end"][name]
        if mean is not None:
            found.append(Claim(f"geometric mean over {name}, training step{_counted(name, workloads)}", _ratio(mean)))
    found.append(_behind(workloads, held=held))
    found.append(_plan_seconds(workloads, held=held))
    return tuple(found)


def _counted(name: str, workloads: Sequence[WorkloadResult]) -> str:
    """Returns how many workloads the mean covers: the step is compared with AUTOTUNE only if there is a plan."""
    measured = sum(one.end_to_end_over_autotune is not None for one in workloads)
    return f", the {measured} with a plan" if name == "autotune" and measured < len(workloads) else ""


def reasons(benchmarks: Benchmarks) -> tuple[str, ...]:
    """Returns one sentence for each workload that has no plan or is slower than a rival."""
    found = []
    for one in benchmarks.workloads:
        if one.why:
            found.append(f"{one.name}: {one.why}")
        ahead = min(behind(one), key=lambda name: one.ratio_over[name].median, default=None)
        if ahead is not None:
            ratio, sets = one.ratio_over[ahead], one.plans.get(ahead, "")
            found.append(
                f"{one.name}: {ahead} is ahead, {_ratio(ratio.median)} ({_ratio(ratio.low)} to "
                f"{_ratio(ratio.high)})" + (f"; it sets {sets}" if sets else "")
            )
    return tuple(found)


def behind(workload: WorkloadResult) -> tuple[str, ...]:
    """Returns the rivals that are certainly faster (the whole interval is below `KEEPS_UP`)."""
    return tuple(name for name, ratio in workload.ratio_over.items() if ratio.high < KEEPS_UP)


def _least(what: str, mean: float | None, least: float, *, held: bool) -> Claim:
    measured = "not measured" if mean is None else _ratio(mean)
    return Claim(what, measured, f"at least {least:g}x", None if mean is None or not held else mean >= least)


def _behind(workloads: Sequence[WorkloadResult], *, held: bool) -> Claim:
    names = [one.name for one in workloads if behind(one)]
    measured = f"{len(names)} of {len(workloads)}" + (f" ({', '.join(names)})" if names else "")
    return Claim(f"workloads where a rival is surely ahead (below {KEEPS_UP:g})", measured, "none",
                 not names if held and workloads else None)  # fmt: skip


def _plan_seconds(workloads: Sequence[WorkloadResult], *, held: bool) -> Claim:
    known = [one.plan_seconds for one in workloads if one.plan_seconds is not None]
    mean = statistics.fmean(known) if known else None
    return Claim(
        "seconds to the plan, on average",
        "not measured" if mean is None else f"{mean:.0f} s",
        f"at most {PLAN_SECONDS:.0f} s",
        None if mean is None or not held else mean <= PLAN_SECONDS,
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}x"
