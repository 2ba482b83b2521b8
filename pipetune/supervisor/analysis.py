"""`pipetune analyze` on the command's side: runs the worker, restarts it, verifies the patch, writes the files."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core import files, session_file
from pipetune.core.messages import Job, LogLine, Message, Mode, SessionSaved
from pipetune.core.session import Session
from pipetune.core.settings import Command
from pipetune.core.time_plan import SLOW_START_SECONDS
from pipetune.core.version import VERSION
from pipetune.supervisor import local_cluster, remote_cluster
from pipetune.supervisor.display import TimeLeft, log_shown, show
from pipetune.supervisor.held_scripts import ScriptStarter
from pipetune.supervisor.local_cluster import RunningWorkers, local_workers, log_tail, workers_with_servers
from pipetune.supervisor.monitoring import Interrupts, WorkerMonitor
from pipetune.supervisor.remote_cluster import RemoteCluster
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult, make_job
from pipetune.supervisor.results_folder import ResultsFolder
from pipetune.supervisor.session_ending import (
    interrupted_before_proof,
    with_earlier_trials,
    with_ending,
    with_input_skew,
    with_validation,
    with_verification,
)
from pipetune.supervisor.user_files import UserFiles
from pipetune.supervisor.worker_state import Ending, WorkerState

if TYPE_CHECKING:
    from pipetune.report.console import Progress as Screen

_SCRIPT_FAILED = 3  # exit code
_LAST_LINES = 10  # a usage message, or the end of a traceback that a library printed itself
_NOT_INFORMED = (
    "Epochs, growth of memory and the other datasets were not measured, and no distributed form was written: the "
    "script would have had to be run once more."
)


def analyze(request: AnalysisRequest, *, screen: Screen) -> AnalysisResult:
    """Runs the script, measures it, verifies the patch, writes all result files and returns the result.

    Raises:
        PipetuneError: results cannot be written, or no worker can be started.
    """
    results = request.results.with_new_run()
    request = replace(request, results=results, settings=replace(request.settings, out=str(results.folder)))
    workers, gpus = request.settings.workers, len(local_cluster.visible_gpus(os.environ))
    if 0 < gpus < workers:
        screen.warn(f"{workers} workers cannot share {gpus} GPU{'s' * (gpus > 1)}: they train on the CPU.")
    if request.place is not None and not request.place.is_coordinator:  # the first task must not gather an old session
        ResultsFolder(results.root).unpublish()
    with (
        Interrupts() as interrupts,
        files.temporary_folder("session") as private,
        log_shown(request.results.log, screen) if request.verbose else contextlib.nullcontext(),
    ):

        def run(tasks: RemoteCluster | None = None, notes: tuple[str, ...] = ()) -> AnalysisResult:
            return _Run(request, screen, interrupts, Path(private), tasks, notes).analyze()

        if request.place is None:
            return run()
        return remote_cluster.analyze(request, screen, interrupts, Path(private), run=run)


class _Run:
    """A running analysis; holds the session as it grows."""

    def __init__(
        self,
        request: AnalysisRequest,
        screen: Screen,
        interrupts: Interrupts,
        private: Path,
        tasks: RemoteCluster | None,  # the other tasks of an existing cluster, if all have connected
        notes: tuple[str, ...],  # for the report, in addition to those of the worker
    ) -> None:
        self._request, self._screen, self._interrupts = request, screen, interrupts
        self._tasks, self._notes = tasks, notes
        self._private = private / session_file.SESSION_FILE  # never redacted; deleted at the end
        self._started, self._began = time.monotonic(), time.time()
        self._session = Session(version=VERSION, command=self._command)
        self._files = UserFiles(screen, request.results.folder)
        self._time_left = TimeLeft(request.settings.budget_seconds)

    def analyze(self) -> AnalysisResult:
        conversation = self._measure()
        self._session = with_ending(self._session, conversation)
        self._session = replace(self._session, notes=(*self._session.notes, *self._notes))
        exit_code = conversation.exit_code
        if exit_code == 0:
            exit_code = self._verify()
        else:
            self._session = with_validation(self._session, None)
        results, place = self._request.results, self._request.place
        if exit_code == 0 and place is not None and place.is_coordinator and self._tasks is None:
            self._screen.update("report", "waiting for the sessions of the other tasks")
            self._session = with_input_skew(self._session, results.root, place, self._interrupts)
        self._session = replace(
            self._session,
            notes=(*self._session.notes, *self._files.notes),
            side_effects={**self._session.side_effects, **self._files.side_effects},
            seconds={**self._session.seconds, "total": time.monotonic() - self._started},
        )
        if invalid := conversation.invalid_lines:
            self._screen.warn(f"{invalid} lines from the worker were not valid messages and were ignored.")
        if exit_code == 0:  # else the step in which it ended would be ticked off
            self._screen.update("report", "writing the report")
        unknown = results.write_all(self._session)
        if unknown:
            self._screen.warn(
                f"{', '.join(unknown)} in {results.root} was not written by pipetune and is kept; this run's "
                f"file is in {results.folder}."
            )
        cause = conversation.deciding_worker
        return AnalysisResult(
            results.redacted_if_confidential(self._session),
            exit_code,
            results,
            traceback=cause.script_failed.traceback if cause.script_failed else "",
            failure=cause.failure,
            log_tail=cause.log_tail or self._last_lines(exit_code, cause),
        )

    def _last_lines(self, exit_code: int, cause: WorkerState) -> str:
        """Returns the end of the log where it has the reason: the script exited by itself, or nothing even began."""
        exited = exit_code == _SCRIPT_FAILED and not cause.script_failed
        never_began = cause.ending is Ending.DIED and not cause.message_count
        if not (exited or never_began) or self._request.verbose:
            return ""
        return log_tail(self._request.results.log, count=_LAST_LINES)

    def _measure(self) -> WorkerState:
        job = self._job(Mode.ANALYZE)
        first = self._run_worker(job, self._save_session)
        trial, why = first.trial, first.exit_reason
        if trial is None or first.ending not in (Ending.DIED, Ending.HUNG):
            return first
        if self._tasks is not None and not self._tasks.all_connected:  # an exited agent cannot restart its worker
            return first
        self._screen.warn(
            f"While trying {trial.title}, the process {why}. That plan is recorded as failed; restarting without it."
        )
        before = self._session
        session_file.save(before, self._private)
        again = replace(job, skipped_plans=(trial.key,), skip_reason=why, session=str(self._private), attempt=2)

        def keep_both(session: Session) -> None:
            if session.profiled_datasets or not before.profiled_datasets:
                self._save_session(with_earlier_trials(before, session, trial, why))

        second = self._run_worker(again, keep_both)
        for what, count in first.suppressed.items():
            second.suppressed[what] = second.suppressed.get(what, 0) + count
        second.invalid_lines += first.invalid_lines
        second.session = second.session or first.session
        return second

    def _verify(self) -> int:
        """Measures the patched script against the original one and returns the exit status."""
        patch = self._session.patch_to_verify
        if patch is None or not patch.diff:
            return 0
        if not self._can_verify:
            assert self._session.patch is not None
            why = "Not verified: the script trains together with the other tasks of the cluster."
            self._session = replace(self._session, patch=replace(self._session.patch, verification=why))
            return 0
        from pipetune.supervisor import verification  # imports SciPy (0.5 s): only if there is a patch

        begun = time.monotonic()
        to_first_step = self._session.seconds.get("capture", 0.0)
        if to_first_step >= SLOW_START_SECONDS:
            self._screen.say(
                "The patch is measured next, in two new processes that first run the script to its first training "
                f"step: about {to_first_step:.0f} s, which do not count towards --budget. "
                "Ctrl-C ends with an unproven patch."
            )
        session_file.save(self._session, self._private)
        settings = self._request.settings
        processes = settings.workers + (settings.parameter_servers + 1 if settings.parameter_servers else 0)
        on_gpu = self._session.machine is not None and self._session.machine.device == "gpu"
        in_parallel = self._tasks is None and verification.fit_in_memory_together(
            self._session, processes=processes, free_gpu_mib=local_cluster.free_gpu_mib() if on_gpu else None
        )
        self._time_left.in_turn = not in_parallel
        found = verification.verify(
            self._session,
            ScriptStarter(
                replace(self._job(Mode.VERIFY), session=str(self._private), shares_gpu=in_parallel and on_gpu),
                self._processes,
                self._files.restored_on_exit,
                self._request.limits,
                self._interrupts,
                lambda message: show(message, self._screen) if isinstance(message, LogLine) else None,
            ),
            settings=settings,
            in_parallel=in_parallel,
            on_progress=self._show_verification_progress,
        )
        verifying = time.monotonic() - begun - found.start_seconds - found.seconds_after_proof
        notes = () if found.interrupted_worker is not None else (_NOT_INFORMED,)
        informed = found.informed or replace(self._session, notes=(*self._session.notes, *notes))
        known = {**self._session.seconds, "total": math.inf, "budget": math.inf}
        in_phases = sum(max(0.0, spent - known.get(name, 0.0)) for name, spent in informed.seconds.items())
        seconds = {
            **informed.seconds,
            "verification_starts": round(found.start_seconds, 3),
            "verification": round(verifying, 3),
            "after_proof": round(max(0.0, found.seconds_after_proof - in_phases), 3),  # what no phase counts
            "budget": round(self._session.seconds.get("budget", 0.0) + verifying, 3),
        }
        self._session = replace(informed, seconds=seconds)
        if found.interrupted_worker is not None:
            self._session = with_ending(self._session, found.interrupted_worker)
        if found.interrupted_worker is None or found.verified or found.decided:
            self._session = with_verification(self._session, found)
        else:
            self._session = interrupted_before_proof(self._session)
        self._session = with_validation(self._session, found)
        self._request.results.save(self._session)
        return 0 if found.interrupted_worker is None else 130

    @property
    def _can_verify(self) -> bool:
        """Whether a patch can be verified: a single task of a cluster would block until its peers start."""
        return self._request.place is None or self._tasks is not None

    def _show_verification_progress(
        self, doing: str, *, pairs: int = 0, proven: str = "", decided: bool = False
    ) -> None:
        if proven:
            self._screen.conclude(proven)
        left = self._time_left.verifying(pairs=pairs, proven=bool(proven))
        self._screen.update("steps" if decided else "verification", doing, left)

    def _save_session(self, session: Session) -> None:
        self._session = replace(session, command=self._command)
        self._request.results.save(self._session)

    def _run_worker(self, job: Job, keep: Callable[[Session], None]) -> WorkerState:
        def on_message(message: Message) -> None:
            if isinstance(message, SessionSaved):
                keep(message.session)
            else:
                show(message, self._screen, self._time_left)

        limits, interrupts = self._request.limits, self._interrupts
        with self._files.restored_on_exit() as undo, self._processes(replace(job, undo=undo)) as running:
            watched = WorkerMonitor(
                running.chief, limits=limits, interrupts=interrupts, on_message=on_message, peers=running.peers
            )
            return watched.wait_and_end()

    def _processes(self, job: Job) -> contextlib.AbstractContextManager[RunningWorkers]:
        settings, logs, command = self._request.settings, self._request.results.logs, self._request.worker_command
        workers, servers = settings.workers, settings.parameter_servers
        if self._tasks is not None:
            return self._tasks.workers(job, log=logs[0], command=command)
        if servers:
            return workers_with_servers(job, workers=workers, servers=servers, logs=logs, command=command)
        return local_workers(job, workers=workers, logs=logs, command=command)

    def _job(self, mode: Mode) -> Job:
        job = make_job(self._request, mode)
        return replace(job, command=self._command, verified_separately=self._can_verify, began=self._began)

    @functools.cached_property
    def _command(self) -> Command:
        target, settings = self._request.target, self._request.settings
        return Command(
            script=target.script,
            module=target.module,
            arguments=target.arguments,
            directory=target.directory,
            out=self._request.results.folder_from(target.directory),
            options=settings,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            resumed=self._request.resumptions,
        )
