"""Going through the workloads: each is sent when it is there, a failing one spoils no other, the short form ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.bench import Say
from pipetune.bench.rivals import __main__ as rivals
from pipetune.bench.rivals import one_workload
from pipetune.bench.rivals.exchange import Measured
from pipetune.bench.rivals.one_workload import Analysis, joined
from pipetune.core.benchmarks import PIPETUNE, CacheUse, Workload, WorkloadResult
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.messages import (
    Job,
    LogLine,
    Message,
    Mode,
    Progress,
    WorkerFinished,
    WorkloadJob,
    WorkloadMeasured,
)
from pipetune.core.results import RunFailed
from pipetune.core.settings import Settings
from tests.bench.jobs import messages_of
from tests.core.invented_benchmarks import interval, result
from tests.core.sessions import MACHINE, session

MEASURED = Measured(
    machine=MACHINE,
    rivals=result("a", 2.0).rivals,
    ratio_over={"defaults": interval(2.0)},
    without_cache={"defaults": interval(1.5)},
    over_defaults={"off": interval(0.9)},
    plans={},
    sets={"off": "options"},
)


def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str, quick: bool = False) -> list[Message]:
    """What the process says that goes through these workloads, in this process."""
    for name in names:
        (tmp_path / "examples" / name).mkdir(parents=True)
        (tmp_path / "examples" / name / "workload.toml").write_text("")
    workload = WorkloadJob(examples=str(tmp_path / "examples"))
    messages, code = messages_of(
        rivals.main, tmp_path, monkeypatch, settings=Settings(quick=quick), arguments=names, workload=workload
    )
    assert messages[-1] == WorkerFinished(code)
    return messages


def measures(workload: Workload, folder: Path, job: Job, say: Say) -> tuple[Measured, WorkloadResult]:
    say("measuring")
    if workload.name == "broken":
        raise RunFailed("no such op")
    return MEASURED, result(workload.name, 2.0)


def test_each_is_sent_and_a_failing_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "measured_workload", measures)
    messages = told(tmp_path, monkeypatch, "table", "broken", "digits")
    assert [one.result.name for one in messages if isinstance(one, WorkloadMeasured)] == ["table", "digits"]
    (log,) = [one.text for one in messages if isinstance(one, LogLine)]
    assert "broken could not be measured: no such op" in log and "bench.log" in log
    assert messages[-1] == WorkerFinished(1)
    said = [one.activity for one in messages if isinstance(one, Progress)]
    assert said == [
        "table (1 of 3): measuring", "broken (2 of 3): measuring", "digits (3 of 3): measuring",
    ]  # fmt: skip


def test_the_short_form_begins_nothing_it_has_no_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 60))  # each look at it takes a minute
    monkeypatch.setattr(rivals, "measured_workload", measures)
    monkeypatch.setattr(rivals.time, "monotonic", lambda: float(next(clock)))
    messages = told(tmp_path, monkeypatch, "table", "series", "digits", quick=True)
    assert [one.result.name for one in messages if isinstance(one, WorkloadMeasured)] == ["table"]
    (log,) = [one.text for one in messages if isinstance(one, LogLine)]
    assert "series, digits" in log
    assert messages[-1] == WorkerFinished(0)


def test_what_the_processes_leave_is_put_together(tmp_path: Path) -> None:
    whole = session()
    digits, rates = Workload("digits", tmp_path, title="Digits"), dict(MEASURED.rivals)
    found = joined(digits, MEASURED, Analysis(whole, 61.24), rates, bare=None, notes=("a note",))
    assert whole.training is not None and whole.plan is not None
    assert found.end_to_end == whole.training.speedup and found.plan_seconds == 61.2
    assert found.rewrites == tuple(dict.fromkeys(one.rule for one in whole.plan.rewrites)) and not found.why
    assert found.equality is not None and found.equality["equal"] is True
    assert found.ratio_over == MEASURED.ratio_over and found.rivals[PIPETUNE].examples_per_second
    assert found.verdict and found.notes == ("a note",)


def analysed(*rewrites: Rewrite) -> Analysis:
    whole = session()
    dataset = replace(whole.datasets[0], plan=Plan("dataset", rewrites))
    return Analysis(replace(whole, datasets=(dataset, *whole.datasets[1:])), 60.0)


@pytest.mark.parametrize(
    ("quick", "cached", "again"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_a_plan_with_a_cache_is_looked_for_again_without(
    quick: bool, cached: bool, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def analyse(workload: Workload, out: Path, **options: object) -> Analysis:
        asked.append((out, options["without"]))
        return analysed()

    monkeypatch.setattr(one_workload, "analyse", analyse)
    cache = Rewrite("cache", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1"),), "")
    prefetch = Rewrite("prefetch", "n1", Safety.EXACT, (Insert("n1", "prefetch", "prefetch@n1"),), "")
    first = analysed(cache, prefetch) if cached else analysed(prefetch)
    job = Job(Mode.BENCH, -1, Settings(quick=quick))
    small = Workload("a", tmp_path)
    found, notes = one_workload._without_caches(small, first, tmp_path / "bare", job, lambda doing: None)
    assert (found is not None) is again and notes == []
    assert asked == ([(tmp_path / "bare", ["cache"])] if again else [])


@pytest.mark.parametrize(("counts", "second"), [(True, True), (False, True), (False, False)])
def test_where_a_cache_does_not_count_the_plan_without_it_is_the_result(
    counts: bool, second: bool, tmp_path: Path
) -> None:
    cache = Rewrite("cache", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1"),), "")
    prefetch = Rewrite("prefetch", "n1", Safety.EXACT, (Insert("n1", "prefetch", "prefetch@n1"),), "")
    first, bare = analysed(cache), analysed(prefetch) if second else None
    measured = replace(MEASURED, caches={PIPETUNE: CacheUse(1.0, 1.0, 1e12, counts, "")})
    found = joined(Workload("a", tmp_path), measured, first, {}, bare=bare, notes=())
    assert found.rewrites == (("cache",) if counts or not second else ("prefetch",))
    assert (found.end_to_end is None) is (not counts and not second)
    assert found.rewrites_without_cache == (("prefetch",) if second else ())
