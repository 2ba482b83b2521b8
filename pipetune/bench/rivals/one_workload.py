"""One workload from start to end: its data, its analyses, the windows beside its rivals, the peaks of memory."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from pipetune.bench import Say
from pipetune.bench.rivals.caches import added_caches
from pipetune.bench.rivals.exchange import MEASURED_FILE, Measured, Peak, peak_file, take
from pipetune.bench.rivals.joining import joined
from pipetune.bench.rivals.preparing import Analysis, analyse, make_data, run
from pipetune.core import files
from pipetune.core.benchmarks import PIPETUNE, Workload, WorkloadResult
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, write_job
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.results import RunFailed

LOG_FILE = "bench.log"
QUICK_PEAKS = ("defaults", PIPETUNE)


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
