"""The processes of one workload in order: generating data, analyzing, measuring rates, measuring peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.bench import ProgressCallback
from pipetune.bench.rivals.contenders import inserted_caches
from pipetune.bench.rivals.process_files import RATES_FILE, PeakMemory, RatesMeasurement, memory_file, read_value
from pipetune.core import files
from pipetune.core.benchmarks import PIPETUNE, Workload, WorkloadResult
from pipetune.core.codec import Json
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, write_job
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.profile import Verdict
from pipetune.core.results import Rate, RunFailed
from pipetune.core.session import Session
from pipetune.core.session_file import load
from pipetune.core.summary import summary

LOG_FILE = "bench.log"
QUICK_PEAKS = ("defaults", PIPETUNE)
"""The rivals whose peak memory is measured in a quick run."""

ANALYZE_COMMAND = (sys.executable, "-P", "-m", "pipetune", "analyze", "--quiet")
QUICK_BUDGET_SECONDS = 20.0

_PROGRESS_SECONDS = 5.0  # time between reports of progress
_SHOWN_LINES = 4  # of the log, in an error message


@dataclass(frozen=True)
class Analysis:
    """The session of a run of `pipetune analyze`, and the time that the whole command took."""

    session: Session
    seconds: float


def run_workload(
    workload: Workload, folder: Path, job: Job, progress: ProgressCallback
) -> tuple[RatesMeasurement, WorkloadResult]:
    """Measures one workload.

    Args:
        workload: what to measure.
        folder: where the processes write their files and their output (`LOG_FILE`).
        job: the job of the whole run.
        progress: called with each activity.

    Returns:
        The measured rates, and the complete result.

    Raises:
        RunFailed, PipetuneError, OSError, ValueError: a process failed, or its results cannot be read.
    """
    log = folder / LOG_FILE
    make_data(workload, log=log, progress=progress)
    quick, seed = job.settings.quick, job.settings.seed
    analysis = analyze(workload, folder, quick=quick, seed=seed, log=log, progress=progress)
    uncached, notes = _analyze_without_caches(workload, analysis, folder / "without-cache", job, progress)
    uncached_plan = str(folder / "without-cache" / PLAN_FILE) if uncached else ""
    workload_job = replace(
        job,
        arguments=(workload.name,),
        out=str(folder),
        plan=str(folder / PLAN_FILE),
        workload=replace(job.workload, plan_without_cache=uncached_plan),
    )
    rates_file = folder / RATES_FILE
    rates_file.unlink(missing_ok=True)
    _run_module("rates_process", workload_job, activity="measuring rates", log=log, progress=progress)
    measurement = read_value(RatesMeasurement, rates_file)
    rates = measurement.compared.rates
    peaks = {}
    for rival in [name for name in rates if not quick or name in QUICK_PEAKS]:
        rival_job = replace(workload_job, arguments=(workload.name, rival))
        try:
            _run_module("memory_process", rival_job, activity=f"peak memory of {rival}", log=log, progress=progress)
            peaks[rival] = read_value(PeakMemory, folder / memory_file(rival)).mib
        except RunFailed as failure:
            notes.append(str(failure))
    rivals = {name: replace(rate, peak_rss_mib=peaks.get(name)) for name, rate in rates.items()}
    return measurement, combine_results(workload, measurement, analysis, rivals, uncached=uncached, notes=tuple(notes))


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
    rules = {rewrite.rule for rewrite in plan.rewrites if inserted_caches(Plan("", (rewrite,)))}
    if not rules or job.settings.quick:
        return None, []
    log = out.parent / LOG_FILE
    try:
        uncached = analyze(
            workload, out, quick=False, seed=job.settings.seed, log=log, progress=progress, without=sorted(rules)
        )
        return uncached, []
    except (RunFailed, PipetuneError) as error:
        return None, [f"The plan of pipetune is measured without its cache, since no other one was found: {error}"]


def _run_module(module: str, job: Job, *, activity: str, log: Path, progress: ProgressCallback) -> None:
    """Runs a module of this package with a job. It reports progress to the supervisor itself."""
    with files.temporary_folder("bench") as folder:
        path = Path(folder) / "job.json"
        write_job(job, path)
        command = (sys.executable, "-P", "-m", f"{__package__}.{module}", str(path))
        run_process(command, activity=activity, log=log, progress=progress, descriptor=job.message_descriptor)


def make_data(workload: Workload, *, log: Path, progress: ProgressCallback) -> None:
    """Runs the workload's `make_data.py`, which does nothing if the data exists.

    Raises:
        RunFailed: the script failed.
    """
    if workload.data_script is not None:
        command = (sys.executable, str(workload.data_script))
        run_process(command, activity="generating its data", log=log, progress=progress)


def analyze(
    workload: Workload,
    out: Path,
    *,
    quick: bool,
    seed: int,
    log: Path,
    progress: ProgressCallback,
    without: Sequence[str] = (),
) -> Analysis:
    """Runs `pipetune analyze` on the unmodified script with the default consent.

    Args:
        workload: has the script.
        out: folder for the results of the command.
        quick: use a small budget and a short profile.
        seed: seed of the command.
        log: file for the output of the command.
        progress: called with each activity.
        without: names of rules that the command leaves out.

    Raises:
        RunFailed: the command failed.
        PipetuneError: there is no session that can be read.
    """
    options = ("--quick", "--budget", f"{QUICK_BUDGET_SECONDS:g}") if quick else ()
    excluded = ("--without", ",".join(without)) if without else ()
    command = (*ANALYZE_COMMAND, "--seed", str(seed), "--out", str(out), *options, *excluded, str(workload.script))
    activity = " ".join(("pipetune analyze", *excluded))
    seconds = run_process((*command, *workload.arguments), activity=activity, log=log, progress=progress)
    return Analysis(load(out), seconds)


def run_process(
    command: Sequence[str], *, activity: str, log: Path, progress: ProgressCallback, descriptor: int | None = None
) -> float:
    """Runs a process until it exits, and returns the seconds that it took.

    Args:
        command: the command line.
        activity: what the process does, in words.
        log: file to which the output of the process is appended.
        progress: called with the activity, and then every few seconds with the elapsed time as well.
        descriptor: of a pipe to which the process itself reports progress; `progress` is then called only once.

    Raises:
        RunFailed: the exit status is not 0; the message contains the last lines of the output.
    """
    started = time.monotonic()
    progress(activity)
    with log.open("ab") as stream:
        offset = stream.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            pass_fds=() if descriptor is None else (descriptor,),
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")},
        )
        try:
            while process.poll() is None:
                try:
                    process.wait(_PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    if descriptor is None:
                        progress(f"{activity}, {time.monotonic() - started:.0f} s")
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        raise RunFailed(f"{activity} failed with exit status {process.returncode}: {_last_lines(log, offset)}")
    return time.monotonic() - started


def _last_lines(log: Path, offset: int) -> str:
    with log.open("rb") as stream:
        stream.seek(offset)
        lines = stream.read().decode(errors="replace").split("\n")
    return " / ".join([line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]) or "no output"


def combine_results(
    workload: Workload,
    measurement: RatesMeasurement,
    analysis: Analysis,
    rivals: dict[str, Rate],
    *,
    uncached: Analysis | None,
    notes: tuple[str, ...],
) -> WorkloadResult:
    """Combines the results of all processes of a workload.

    If pipetune's cache does not count, rewrites and training step are those of the plan without caches.

    Args:
        workload: what was measured.
        measurement: the rates that were measured.
        analysis: the analysis with caches.
        rivals: rates with peak memory.
        uncached: the analysis without caches, if there was one.
        notes: what went wrong.
    """
    use = measurement.caches.get(PIPETUNE)
    cache_ignored = use is not None and not use.counts
    session = uncached.session if uncached is not None and cache_ignored else analysis.session
    compared = measurement.compared
    training, answer = session.training, summary(session)
    rules = _rules(session)
    has_training = training is not None and bool(rules) and not (cache_ignored and uncached is None)
    return WorkloadResult(
        name=workload.name,
        rivals=rivals,
        ratio_over=compared.ratio_over,
        without_cache=compared.without_cache,
        end_to_end=training.speedup if training and has_training else None,
        plan_seconds=round(analysis.seconds, 1),
        rewrites=rules,
        rewrites_without_cache=_rules(uncached.session) if uncached else (),
        equality=_equality(answer),
        title=workload.title,
        end_to_end_over_autotune=training.speedup_over_autotune if training and has_training else None,
        over_defaults=compared.over_defaults,
        caches=measurement.caches,
        plans=measurement.plan_texts,
        failed=measurement.failed,
        verdict=str(answer["verdict"]),
        why="" if rules else _no_plan_reason(session),
        analysis_seconds=dict(session.seconds),
        date=time.strftime("%Y-%m-%d %H:%M"),
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
