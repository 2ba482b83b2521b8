"""`python -m benchmarks.rivals JOB`: measures workloads, each in processes of its own.

One generates the data, one runs `pipetune analyze` on the unmodified script as a user would, one measures the rates of
all contenders, and for each rival a new one measures its peak memory (`measuring`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import ProgressCallback
from benchmarks.measuring_process import run_job
from benchmarks.processes import Analysis, analyze, run_process
from benchmarks.rivals.process_files import RATES_FILE, PeakMemory, RatesMeasurement, memory_file, read_value
from benchmarks.rivals.results import PIPETUNE, WorkloadResult
from benchmarks.rivals.workloads import Workload, find_workloads
from pipetune.core import files
from pipetune.core.codec import Json
from pipetune.core.edits import Plan, inserted_caches
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import Job, write_job
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.profile import Verdict
from pipetune.core.session import Session
from pipetune.core.summary import summary

LOG_FILE = "bench.log"
QUICK_PEAKS = ("defaults", PIPETUNE)
"""The rivals whose peak memory is measured in a quick run."""

QUICK_SECONDS = 300.0
QUICK_OPTIONS = ("--quick", "--budget", "20")


def measure(name: str, job: Job, progress: ProgressCallback) -> tuple[WorkloadResult, Machine]:
    """Measures one workload.

    Args:
        name: of the workload.
        job: the job of the whole run.
        progress: called with each activity.

    Raises:
        RunFailed: a process failed, or its results cannot be read; `LOG_FILE` has its output.
    """
    folder = Path(job.out) / "benchmarks" / name
    log = folder / LOG_FILE
    folder.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    try:
        return run_workload(find_workloads()[name], folder, job, progress)
    except (RunFailed, PipetuneError, OSError, ValueError) as error:
        raise RunFailed(f"{error}\nMore is in {log}.") from error


def run_workload(
    workload: Workload, folder: Path, job: Job, progress: ProgressCallback
) -> tuple[WorkloadResult, Machine]:
    """Runs the processes of one workload, which write their files to `folder`, and combines their results."""
    log = folder / LOG_FILE
    if workload.data_script is not None:  # does nothing if the data exists
        command = (sys.executable, str(workload.data_script))
        run_process(command, activity="generating its data", log=log, progress=progress)
    quick = job.settings.quick
    analysis = _analyze(workload, folder, job, log=log, progress=progress, options=QUICK_OPTIONS if quick else ())
    uncached, notes = _analyze_without_caches(workload, analysis, folder / "without-cache", job, progress)
    uncached_plan = str(folder / "without-cache" / PLAN_FILE) if uncached else ""
    workload_job = replace(job, out=str(folder), plan=str(folder / PLAN_FILE))
    rates_file = folder / RATES_FILE
    rates_file.unlink(missing_ok=True)
    rates_job = replace(workload_job, arguments=("rates", workload.name, uncached_plan))
    _run_measuring(rates_job, activity="measuring rates", log=log, progress=progress)
    measurement = read_value(RatesMeasurement, rates_file)
    rivals = dict(measurement.result.rivals)
    for rival in [name for name in rivals if not quick or name in QUICK_PEAKS]:
        rival_job = replace(workload_job, arguments=("memory", workload.name, rival))
        try:
            _run_measuring(rival_job, activity=f"peak memory of {rival}", log=log, progress=progress)
            peak = read_value(PeakMemory, folder / memory_file(rival)).mib
            rivals[rival] = replace(rivals[rival], peak_rss_mib=peak)
        except RunFailed as failure:
            notes.append(str(failure))
    measured = replace(measurement.result, rivals=rivals)
    return combine_results(workload, measured, analysis, uncached=uncached, notes=tuple(notes)), measurement.machine


def _analyze(
    workload: Workload, out: Path, job: Job, *, log: Path, progress: ProgressCallback, options: Sequence[str]
) -> Analysis:
    seed = job.settings.seed
    return analyze(workload.script, workload.arguments, out, seed=seed, log=log, progress=progress, options=options)


def _analyze_without_caches(
    workload: Workload, analysis: Analysis, out: Path, job: Job, progress: ProgressCallback
) -> tuple[Analysis | None, list[str]]:
    """Analyzes a workload again, without the rules that inserted caches in the first analysis.

    Taking the cache out of the plan is not enough: its other rewrites were chosen to help in addition to the cache, and
    without it a different plan may be best.

    Returns:
        The second analysis, and notes. The analysis is None if the plan has no cache, in quick runs, and on failure.
    """
    plan = analysis.session.plan or Plan("")
    rules = {rewrite.rule for rewrite in plan.rewrites if inserted_caches(rewrite.edits)}
    if not rules or job.settings.quick:
        return None, []
    log = out.parent / LOG_FILE
    options = ("--without", ",".join(sorted(rules)))
    try:
        return _analyze(workload, out, job, log=log, progress=progress, options=options), []
    except (RunFailed, PipetuneError) as error:
        return None, [f"The plan of pipetune is measured without its cache, since no other one was found: {error}"]


def _run_measuring(job: Job, *, activity: str, log: Path, progress: ProgressCallback) -> None:
    """Runs `measuring` with a job. It reports progress to the supervisor itself."""
    with files.temporary_folder("bench") as folder:
        path = Path(folder) / "job.json"
        write_job(job, path)
        command = (sys.executable, "-P", "-m", "benchmarks.rivals.measuring", str(path))
        run_process(command, activity=activity, log=log, progress=progress, descriptor=job.message_descriptor)


def combine_results(
    workload: Workload,
    measured: WorkloadResult,
    analysis: Analysis,
    *,
    uncached: Analysis | None,
    notes: tuple[str, ...],
) -> WorkloadResult:
    """Combines the results of all processes of a workload.

    If pipetune's cache does not count, rewrites and training step are those of the plan without caches.

    Args:
        workload: what was measured.
        measured: the rates that were measured.
        analysis: the analysis with caches.
        uncached: the analysis without caches, if there was one.
        notes: what went wrong.
    """
    use = measured.caches.get(PIPETUNE)
    cache_ignored = use is not None and not use.counts
    session = uncached.session if uncached is not None and cache_ignored else analysis.session
    training, answer = session.training, summary(session)
    rules = _rules(session)
    if not rules or (cache_ignored and uncached is None):
        training = None
    return replace(
        measured,
        end_to_end=training.speedup if training else None,
        plan_seconds=round(analysis.seconds, 1),
        rewrites=rules,
        rewrites_without_cache=_rules(uncached.session) if uncached else (),
        equality=_equality(answer),
        title=workload.title,
        end_to_end_over_autotune=training.speedup_over_autotune if training else None,
        verdict=str(answer["verdict"]),
        why="" if rules else _no_plan_reason(session),
        analysis_seconds=dict(session.seconds),
        notes=notes,
    )


def _rules(session: Session) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rewrite.rule for rewrite in session.plan.rewrites)) if session.plan else ()


def _equality(answer: dict[str, Json]) -> dict[str, object] | None:
    datasets = answer["datasets"]
    equality = datasets[0]["equality"] if isinstance(datasets, list) and datasets else None
    return dict(equality) if isinstance(equality, dict) else None


def _no_plan_reason(session: Session) -> str:
    """Explains why there is no plan: by the diagnosis if nothing was tried, else by the last measurements or notes."""
    dataset = session.main_dataset
    diagnosis = dataset.diagnosis if dataset is not None else None
    if diagnosis is not None and diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        return f"no plan: {diagnosis.sentence}"
    proofs = [trial.why for trial in session.trials if trial.kind in ("confirmation", "verification")]
    reason = session.status_detail or " ".join(proofs[-1:] or session.notes[-2:])
    return f"no plan: {reason}" if reason else "no plan"


if __name__ == "__main__":
    sys.exit(run_job(measure, quick_seconds=QUICK_SECONDS))
