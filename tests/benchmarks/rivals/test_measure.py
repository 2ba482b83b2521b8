"""Measuring workloads: each is sent when it is measured, errors do not affect others, and quick runs end in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ProgressCallback, measuring_process
from benchmarks.processes import Analysis
from benchmarks.rivals import __main__ as rivals
from benchmarks.rivals.__main__ import combine_results
from benchmarks.rivals.results import PIPETUNE, CacheUse, WorkloadResult
from benchmarks.rivals.workloads import Workload
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.machine import Machine
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import FigureMeasured, Job, LogLine, Message, Mode, Progress, WorkerFinished
from pipetune.core.settings import Settings
from tests.benchmarks.jobs import messages_of
from tests.benchmarks.rivals.invented import examples, interval, result
from tests.core.sessions import MACHINE, session

MEASURED = WorkloadResult("a", result("a", 2.0).rivals, {"defaults": interval(2.0)}, {"defaults": interval(1.5)})
CACHE, PREFETCH = (Rewrite(op, "n1", Safety.EXACT, (Insert("n1", op, f"{op}@n1"),), "") for op in ("cache", "prefetch"))


def messages_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str, quick: bool = False) -> list[Message]:
    """The messages of the process that measures these workloads, run in this process."""
    examples(tmp_path, monkeypatch, *names)
    job: dict[str, Any] = {"settings": Settings(quick=quick), "arguments": names}
    messages, code = messages_of(rivals.measure, tmp_path, monkeypatch, rivals.QUICK_SECONDS, **job)
    assert messages[-1] == WorkerFinished(code)
    return messages


def measures(workload: Workload, folder: Path, job: Job, progress: ProgressCallback) -> tuple[WorkloadResult, Machine]:
    progress("measuring")
    if workload.name == "broken":
        raise RunFailed("no such op")
    return result(workload.name, 2.0), MACHINE


def test_each_workload_is_sent_and_failure_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "run_workload", measures)
    messages = messages_for(tmp_path, monkeypatch, "table", "broken", "digits")
    assert [one.name for one in messages if isinstance(one, FigureMeasured)] == ["table", "digits"]
    (log,) = [one.text for one in messages if isinstance(one, LogLine)]
    assert "broken could not be measured: no such op" in log and "bench.log" in log
    assert messages[-1] == WorkerFinished(1)
    activities = [one.activity for one in messages if isinstance(one, Progress)]
    places = ("table (1 of 3)", "broken (2 of 3)", "digits (3 of 3)")
    assert [one for one in activities if not one.endswith(": beginning")] == [f"{one}: measuring" for one in places]


def test_quick_run_starts_nothing_that_it_has_no_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 60))  # each look at it takes a minute
    monkeypatch.setattr(rivals, "run_workload", measures)
    monkeypatch.setattr(measuring_process.time, "monotonic", lambda: float(next(clock)))
    messages = messages_for(tmp_path, monkeypatch, "table", "series", "digits", quick=True)
    assert [one.name for one in messages if isinstance(one, FigureMeasured)] == ["table"]
    (log,) = [one.text for one in messages if isinstance(one, LogLine)]
    assert "series, digits" in log
    assert messages[-1] == WorkerFinished(0)


def test_results_of_all_processes_are_combined(tmp_path: Path) -> None:
    whole = session()
    digits = Workload("digits", tmp_path, title="Digits")
    combined = combine_results(digits, MEASURED, Analysis(whole, 61.24), uncached=None, notes=("a note",))
    assert whole.training is not None and whole.plan is not None
    assert combined.end_to_end == whole.training.speedup and combined.plan_seconds == 61.2
    assert combined.rewrites == tuple(dict.fromkeys(one.rule for one in whole.plan.rewrites)) and not combined.why
    assert combined.equality is not None and combined.equality["equal"] is True
    assert combined.ratio_over == MEASURED.ratio_over and combined.rivals[PIPETUNE].examples_per_second
    assert combined.verdict and combined.notes == ("a note",)


def analysis_with(*rewrites: Rewrite) -> Analysis:
    whole = session()
    dataset = replace(whole.datasets[0], plan=Plan("dataset", rewrites))
    return Analysis(replace(whole, datasets=(dataset, *whole.datasets[1:])), 60.0)


@pytest.mark.parametrize(
    ("quick", "cached", "again"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_plan_with_a_cache_is_followed_by_an_analysis_without_caches(
    quick: bool, cached: bool, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[object] = []

    def analyze(script: Path, arguments: tuple[str, ...], out: Path, **given: object) -> Analysis:
        requests.append((out, given["options"]))
        return analysis_with()

    monkeypatch.setattr(rivals, "analyze", analyze)
    first = analysis_with(CACHE, PREFETCH) if cached else analysis_with(PREFETCH)
    given = Workload("a", tmp_path), first, tmp_path / "bare", Job(Mode.BENCH, -1, Settings(quick=quick))
    uncached, notes = rivals._analyze_without_caches(*given, lambda activity: None)
    assert (uncached is not None) is again and notes == []
    assert requests == ([(tmp_path / "bare", ("--without", "cache"))] if again else [])


@pytest.mark.parametrize(("counts", "second"), [(True, True), (False, True), (False, False)])
def test_result_is_the_plan_without_cache_if_the_cache_does_not_count(counts, second, tmp_path) -> None:
    first, bare = analysis_with(CACHE), analysis_with(PREFETCH) if second else None
    measured = replace(MEASURED, caches={PIPETUNE: CacheUse(1.0, 1.0, 1e12, counts, "")})
    combined = combine_results(Workload("a", tmp_path), measured, first, uncached=bare, notes=())
    assert combined.rewrites == (("cache",) if counts or not second else ("prefetch",))
    assert (combined.end_to_end is None) is (not counts and not second)
    assert combined.rewrites_without_cache == (("prefetch",) if second else ())
