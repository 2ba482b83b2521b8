"""Example workloads with measured values, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rivals import workloads
from benchmarks.rivals.results import PIPETUNE, RIVALS, Benchmarks, CacheUse, WorkloadResult
from pipetune.core.measurement import Interval, Rate
from tests.core.sessions import MACHINE


def examples(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes a folder with workloads of these names, in place of the examples."""
    for name in names:
        (folder / "examples" / name).mkdir(parents=True)
        (folder / "examples" / name / "workload.toml").write_text("")
    monkeypatch.setattr(workloads, "EXAMPLES", folder / "examples")


def interval(median: float, spread: float = 0.05) -> Interval:
    return Interval(median, median * (1 - spread), median * (1 + spread), 10)


def result(
    name: str, over: float, *, bare: float = 0.0, best: float = 1.02, end_to_end: float | None = 1.5, why: str = ""
) -> WorkloadResult:
    """A workload that is `over` times as fast as `defaults`; `bare` times without its cache, if it has one."""
    others = {rival: interval(over) for rival in RIVALS if rival != PIPETUNE}
    ratios = {**others, "autotune": interval(max(over / 2, 1.0)), "plumber": interval(best)}
    kept = {**ratios, "defaults": interval(bare), "autotune": interval(bare / 2)} if bare else ratios
    cache = CacheUse(1e6, 10.0, 6.3e9, True, "It would hold 58.7 GiB of the published 5.9 GiB: that fits in 59.6 GiB.")
    return WorkloadResult(
        name,
        rivals={rival: Rate(1000.0 * (place + 1), 10.0, 12.5, 0.25, 100.0) for place, rival in enumerate(RIVALS)},
        ratio_over=ratios,
        without_cache=kept,
        end_to_end=interval(end_to_end) if end_to_end else None,
        plan_seconds=50.0,
        rewrites=() if why else ("cache", "prefetch"),
        equality={"class": "EXACT", "checks": [], "equal": True},
        title=f"The {name} of old",
        end_to_end_over_autotune=interval(1.2),
        over_defaults={rival: interval(0.5 + place / 4) for place, rival in enumerate(RIVALS) if rival != "defaults"},
        caches={PIPETUNE: cache} if bare else {},
        plans={"plumber": "map num_parallel_calls=2"},
        verdict="input-bound",
        why=why,
        seconds=120.0,
        date="2026-01-01 00:00",
    )


def benchmarks(*workloads: WorkloadResult, quick: bool = False) -> Benchmarks:
    found = Benchmarks("0.1.0", MACHINE, "2026-01-01 00:00", quick=quick)
    for one in workloads:
        found = found.with_figure(one.name, one, MACHINE)
    return found
