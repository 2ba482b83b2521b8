"""One workload from start to end: its data, its analyses, the windows beside its rivals, the peaks of memory.

All by processes of their own; the plan is that of `pipetune analyze`, as a user gets it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.bench import Say
from pipetune.bench.rivals.contenders import added_caches
from pipetune.bench.rivals.exchange import MEASURED_FILE, Measured, Peak, peak_file, take
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
ANALYZE_COMMAND = (sys.executable, "-P", "-m", "pipetune", "analyze", "--quiet")
QUICK_BUDGET_SECONDS = 20.0

_SIGN_SECONDS = 5.0
_SHOWN_LINES = 4
_ABOUT_THE_MACHINE = "While measuring"


@dataclass(frozen=True)
class Analysis:
    """What `pipetune analyze` left, and how long it took from start to end."""

    session: Session
    seconds: float


def measured_workload(workload: Workload, folder: Path, job: Job, say: Say) -> tuple[Measured, WorkloadResult]:
    """What its processes measured and found, their files and what they print in `folder`.

    Raises:
        RunFailed, PipetuneError, OSError, ValueError: a process failed, or left nothing that can be read.
    """
    log = folder / LOG_FILE
    make_data(workload, log=log, say=say)
    quick, seed = job.settings.quick, job.settings.seed
    analysis = analyse(workload, folder, quick=quick, seed=seed, log=log, say=say)
    bare, notes = _without_caches(workload, analysis, folder / "without-cache", job, say)
    own = replace(
        job,
        arguments=(workload.name,),
        out=str(folder),
        plan=str(folder / PLAN_FILE),
        workload=replace(job.workload, plan_without_cache=str(folder / "without-cache" / PLAN_FILE) if bare else ""),
    )
    measured_file = folder / MEASURED_FILE
    measured_file.unlink(missing_ok=True)
    _start("measuring", own, doing="measuring it and its rivals", log=log, say=say)
    measured = take(Measured, measured_file)
    peaks = {}
    for rival in [name for name in measured.rivals if not quick or name in QUICK_PEAKS]:
        of_rival = replace(own, arguments=(workload.name, rival))
        say(f"peak memory of {rival}")
        try:
            _start("peaks", of_rival, doing=f"peak memory of {rival}", log=log, say=say)
            peaks[rival] = take(Peak, folder / peak_file(rival)).mib
        except RunFailed as failure:
            notes.append(str(failure))
    rivals = {name: replace(rate, peak_rss_mib=peaks.get(name)) for name, rate in measured.rivals.items()}
    return measured, joined(workload, measured, analysis, rivals, bare=bare, notes=tuple(notes))


def _without_caches(
    workload: Workload, analysis: Analysis, out: Path, job: Job, say: Say
) -> tuple[Analysis | None, list[str]]:
    """A second analysis that leaves out the rules of the caches in the plan; None where there are none, or in short.

    What a plan has beside a cache is what still helps behind it: without the cache another plan is the best.
    """
    plan = analysis.session.plan or Plan("")
    caching = {rewrite.rule for rewrite in plan.rewrites if added_caches(Plan("", (rewrite,)))}
    if not caching or job.settings.quick:
        return None, []
    log = out.parent / LOG_FILE
    try:
        found = analyse(workload, out, quick=False, seed=job.settings.seed, log=log, say=say, without=sorted(caching))
        return found, []
    except (RunFailed, PipetuneError) as error:
        return None, [f"Without its cache the plan of pipetune is measured, no other one was found: {error}"]


def _start(module: str, job: Job, *, doing: str, log: Path, say: Say) -> None:
    """Runs a module of this package on a job; it tells its progress to the same listener."""
    with files.temporary_folder("bench") as folder:
        path = Path(folder) / "job.json"
        write_job(job, path)
        command = (sys.executable, "-P", "-m", f"{__package__}.{module}", str(path))
        run(command, doing=doing, log=log, say=say, descriptor=job.message_descriptor)


def make_data(workload: Workload, *, log: Path, say: Say) -> None:
    """Runs the workload's `make_data.py`, which does nothing where the data is there.

    Raises:
        RunFailed: it failed.
    """
    if workload.data_script is not None:
        run((sys.executable, str(workload.data_script)), doing="making its data", log=log, say=say)


def analyse(
    workload: Workload,
    out: Path,
    *,
    quick: bool,
    seed: int,
    log: Path,
    say: Say,
    without: Sequence[str] = (),
) -> Analysis:
    """Analyses the unmodified script with default consent; the short form with a small budget and a short profile.

    Args:
        out: takes what the command writes.
        without: names of rules that it leaves out.

    Raises:
        RunFailed: it failed, or left no session.
    """
    options = ("--quick", "--budget", f"{QUICK_BUDGET_SECONDS:g}") if quick else ()
    if without:
        options = (*options, "--without", ",".join(without))
    command = (*ANALYZE_COMMAND, "--seed", str(seed), "--out", str(out), *options, str(workload.script))
    doing = " ".join(("pipetune analyze", *(("--without", ",".join(without)) if without else ())))
    seconds = run((*command, *workload.arguments), doing=doing, log=log, say=say)
    return Analysis(load(out), seconds)


def run(command: Sequence[str], *, doing: str, log: Path, say: Say, descriptor: int | None = None) -> float:
    """Runs a process to its end, what it prints into `log`; the seconds it took.

    Args:
        doing: what it does, in words; said every few seconds with the time it took so far.
        descriptor: of the pipe it may tell its progress to by itself; nothing is said then.

    Raises:
        RunFailed: it did not end with 0; the message has the last lines it printed.
    """
    started = time.monotonic()
    say(doing)
    with log.open("ab") as stream:
        begun = stream.tell()
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
                    process.wait(_SIGN_SECONDS)
                except subprocess.TimeoutExpired:
                    if descriptor is None:
                        say(f"{doing}, {time.monotonic() - started:.0f} s")
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        raise RunFailed(f"{doing} ended with {process.returncode}: {_last_lines(log, begun)}")
    return time.monotonic() - started


def _last_lines(log: Path, begun: int) -> str:
    with log.open("rb") as stream:
        stream.seek(begun)
        lines = stream.read().decode(errors="replace").split("\n")
    return " / ".join([line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]) or "it printed nothing"


def joined(
    workload: Workload,
    measured: Measured,
    analysis: Analysis,
    rivals: dict[str, Rate],
    *,
    bare: Analysis | None,
    notes: tuple[str, ...],
) -> WorkloadResult:
    """The result of a workload; where its cache does not count, that of the plan without it.

    Args:
        bare: the analysis that left caches out, where there was one.
    """
    use = measured.caches.get(PIPETUNE)
    uncounted = use is not None and not use.counts
    session = bare.session if bare is not None and uncounted else analysis.session
    training, answer = session.training, summary(session)
    rules = _rules(session)
    trains = training is not None and bool(rules) and not (uncounted and bare is None)
    return WorkloadResult(
        name=workload.name,
        rivals=rivals,
        ratio_over=measured.ratio_over,
        without_cache=measured.without_cache,
        end_to_end=training.speedup if training and trains else None,
        plan_seconds=round(analysis.seconds, 1),
        rewrites=rules,
        rewrites_without_cache=_rules(bare.session) if bare else (),
        equality=_equality(answer),
        title=workload.title,
        end_to_end_over_autotune=training.speedup_over_autotune if training and trains else None,
        over_defaults=measured.over_defaults,
        caches=measured.caches,
        plans=measured.sets,
        failed=measured.failed,
        verdict=str(answer["verdict"]),
        why="" if rules else _why_no_plan(session),
        analysis_seconds=dict(session.seconds),
        date=time.strftime("%Y-%m-%d %H:%M"),
        notes=notes,
    )


def _rules(session: Session) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rewrite.rule for rewrite in session.plan.rewrites)) if session.plan else ()


def _equality(answer: dict[str, Json]) -> dict[str, object] | None:
    datasets = answer["datasets"]
    found = datasets[0]["equality"] if isinstance(datasets, list) and datasets else None
    return dict(found) if isinstance(found, dict) else None


def _why_no_plan(session: Session) -> str:
    """The diagnosis where nothing was tried, else what the last measurement said, or the search last."""
    dataset = session.main_dataset
    diagnosis = dataset.diagnosis if dataset is not None else None
    if diagnosis is not None and diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        return f"no plan: {diagnosis.sentence}"
    proofs = [trial.why for trial in session.trials if trial.kind in ("confirmation", "verification")]
    notes = [note for note in session.notes if not note.startswith(_ABOUT_THE_MACHINE)]
    reason = session.status_detail or " ".join(proofs[-1:] or notes[-2:])
    return f"no plan: {reason}" if reason else "no plan"
