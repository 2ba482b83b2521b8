"""`python -m pipetune.bench.rivals JOB`: measures the workloads the job names, and sends each once it is there."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

from pipetune.bench import Say
from pipetune.bench.rivals.caches import added_caches
from pipetune.bench.rivals.exchange import (
    BARE_PLAN,
    MEASURED_FILE,
    Measured,
    Peak,
    peak_file,
    take,
    teller,
    workload_of,
)
from pipetune.bench.rivals.preparing import Analysis, analyse, make_data, run
from pipetune.core.benchmarks import OURS, WorkloadResult
from pipetune.core.codec import Json
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Rate, RunFailed
from pipetune.core.messages import (
    Failed,
    Finished,
    Job,
    Log,
    MessageWriter,
    WorkloadMeasured,
    read_job,
    write_job,
)
from pipetune.core.planfile import PLAN_FILE
from pipetune.core.profile import Verdict
from pipetune.core.session import Session
from pipetune.core.summary import summary
from pipetune.core.workloads import Workload

QUICK_PEAKS = ("defaults", OURS)
QUICK_SECONDS = 300.0
"""The short form begins no workload that would end later, to judge by those before."""

_LOG_FILE = "bench.log"
_ABOUT_THE_MACHINE = "While measuring"


def main() -> int:
    """Measures what the job named by the first argument asks for; 1 where a workload could not be measured."""
    job = read_job(Path(sys.argv[1]))
    writer = MessageWriter(job.message_descriptor)
    code = 0
    try:
        job = replace(job, command={**job.command, "started": time.monotonic()})
        code = _measure_all(job, writer)
    except Exception as error:
        writer.send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        code = 1
    writer.send(Finished(code))
    return code


def _measure_all(job: Job, writer: MessageWriter) -> int:
    """Every workload that the time of the form has room for; what is left out is told."""
    code, began, longest = 0, time.monotonic(), 0.0
    for number, name in enumerate(job.arguments):
        started = time.monotonic()
        if job.settings.quick and started - began + longest > QUICK_SECONDS:
            left = ", ".join(job.arguments[number:])
            writer.send(Log(f"No time was left in the short form for {left}: run it again to go on."))
            break
        label = f"{name} ({number + 1} of {len(job.arguments)})"
        own = replace(job, command={**job.command, "label": label})
        code = max(code, _measure(workload_of(job, name), own, writer))
        longest = max(longest, time.monotonic() - started)
    return code


def _measure(workload: Workload, job: Job, writer: MessageWriter) -> int:
    """One workload; an error in it is told, and the others go on."""
    started = time.monotonic()
    say = teller(job, writer)
    folder = Path(job.out) / "benchmarks" / workload.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _LOG_FILE).write_bytes(b"")
        measured, result = _result(workload, folder, job, say)
    except (RunFailed, PipetuneError, OSError, ValueError) as error:
        writer.send(Log(f"{workload.name} could not be measured: {error}\nMore is in {folder / _LOG_FILE}."))
        return 1
    seconds = round(time.monotonic() - started, 1)
    writer.send(WorkloadMeasured(replace(result, seconds=seconds), measured.machine))
    return 0


def _result(workload: Workload, folder: Path, job: Job, say: Say) -> tuple[Measured, WorkloadResult]:
    log = folder / _LOG_FILE
    make_data(workload, log=log, say=say)
    quick, seed = job.settings.quick, job.settings.seed
    analysis = analyse(workload, folder, quick=quick, seed=seed, log=log, say=say)
    bare, notes = _without_caches(workload, analysis, folder / "without-cache", job, say)
    own = replace(
        job,
        arguments=(workload.name,),
        out=str(folder),
        plan=str(folder / PLAN_FILE),
        command={**job.command, BARE_PLAN: str(folder / "without-cache" / PLAN_FILE) if bare else ""},
    )
    measured_file = folder / MEASURED_FILE
    measured_file.unlink(missing_ok=True)
    _start("measuring", own, doing="measuring it beside its rivals", log=log, say=say)
    measured = take(Measured, measured_file)
    peaks = {}
    for rival in [name for name in measured.rivals if not quick or name in QUICK_PEAKS]:
        asked = replace(own, arguments=(workload.name, rival))
        say(f"peak memory of {rival}")
        try:
            _start("peaks", asked, doing=f"peak memory of {rival}", log=log, say=say)
            peaks[rival] = take(Peak, folder / peak_file(rival)).mib
        except RunFailed as failure:
            notes.append(str(failure))
    rivals = {name: replace(rate, peak_rss_mib=peaks.get(name)) for name, rate in measured.rivals.items()}
    return measured, _joined(workload, measured, analysis, rivals, bare=bare, notes=tuple(notes))


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
    log = out.parent / _LOG_FILE
    try:
        found = analyse(workload, out, quick=False, seed=job.settings.seed, log=log, say=say, without=sorted(caching))
        return found, []
    except (RunFailed, PipetuneError) as error:
        return None, [f"Without its cache the plan of pipetune is measured, no other one was found: {error}"]


def _start(module: str, job: Job, *, doing: str, log: Path, say: Say) -> None:
    """Runs a module of this package on a job; it tells its progress to the same listener."""
    with tempfile.TemporaryDirectory(prefix="pipetune-bench-") as folder:
        path = Path(folder) / "job.json"
        write_job(job, path)
        command = (sys.executable, "-P", "-m", f"{__package__}.{module}", str(path))
        run(command, doing=doing, log=log, say=say, descriptor=job.message_descriptor)


def _joined(
    workload: Workload,
    measured: Measured,
    analysis: Analysis,
    rivals: dict[str, Rate],
    *,
    bare: Analysis | None,
    notes: tuple[str, ...],
) -> WorkloadResult:
    session = analysis.session
    training, told = session.training, summary(session)
    rules = _rules(session)
    return WorkloadResult(
        name=workload.name,
        rivals=rivals,
        ratio_over=measured.ratio_over,
        without_cache=measured.without_cache,
        end_to_end=training.speedup if training and rules else None,
        plan_seconds=round(analysis.seconds, 1),
        rewrites=rules,
        rewrites_without_cache=_rules(bare.session) if bare else (),
        equality=_equality(told),
        title=workload.title,
        end_to_end_over_autotune=training.speedup_over_autotune if training and rules else None,
        over_defaults=measured.over_defaults,
        caches=measured.caches,
        plans=measured.sets,
        failed=measured.failed,
        verdict=str(told["verdict"]),
        why="" if rules else _why_no_plan(session),
        analysis_seconds=dict(session.seconds),
        date=time.strftime("%Y-%m-%d %H:%M"),
        notes=notes,
    )


def _rules(session: Session) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rewrite.rule for rewrite in session.plan.rewrites)) if session.plan else ()


def _equality(told: dict[str, Json]) -> dict[str, object] | None:
    datasets = told["datasets"]
    found = datasets[0]["equality"] if isinstance(datasets, list) and datasets else None
    return dict(found) if isinstance(found, dict) else None


def _why_no_plan(session: Session) -> str:
    """The diagnosis where nothing was tried, else what the confirmation said, or the search last."""
    dataset = session.tuned_dataset
    diagnosis = dataset.diagnosis if dataset is not None else None
    if diagnosis is not None and diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        return f"no plan: {diagnosis.sentence}"
    proofs = [trial.why for trial in session.trials if trial.kind == "confirmation"]
    notes = [note for note in session.notes if not note.startswith(_ABOUT_THE_MACHINE)]
    said = session.status_detail or next(reversed(proofs or notes), "")
    return f"no plan: {said}" if said else "no plan"


if __name__ == "__main__":
    sys.exit(main())
