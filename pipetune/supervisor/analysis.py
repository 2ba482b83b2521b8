"""`pipetune analyze` on the command's side: runs the worker, restarts it, verifies the patch, writes the files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pipetune.core import scratch, sessionfile
from pipetune.core.codec import encode
from pipetune.core.messages import Job, Log, Message, Mode, SessionSaved
from pipetune.core.session import Session
from pipetune.core.version import VERSION
from pipetune.supervisor import accelerators, in_cluster
from pipetune.supervisor.cluster import Cluster, started
from pipetune.supervisor.conversation import Conversation, Ending
from pipetune.supervisor.display import Screen, Tail, show
from pipetune.supervisor.elsewhere import Tasks
from pipetune.supervisor.gathering import gathered
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.others import last_lines
from pipetune.supervisor.outcome import carried_over, concluded, with_verification, withheld
from pipetune.supervisor.request import Analysis, Request, job_of
from pipetune.supervisor.runs import ResultsFolder
from pipetune.supervisor.servers import started_with_servers
from pipetune.supervisor.user_files import UserFiles
from pipetune.supervisor.watch import watch

_SCRIPT_FAILED = 3  # exit status
_LAST_LINES = 10  # a usage message, or the end of a traceback that a library printed itself


def analyze(request: Request, *, screen: Screen) -> Analysis:
    """Run the script, measure it, verify the patch, and write all result files.

    Raises:
        PipetuneError: results cannot be written, or no worker can be started.
    """
    results = request.results.begun()
    request = replace(request, results=results, settings=replace(request.settings, out=str(results.folder)))
    workers, gpus = request.settings.workers, len(accelerators.gpus(os.environ))
    if 0 < gpus < workers:
        screen.warn(f"{workers} workers cannot share {gpus} GPU{'s' * (gpus > 1)}: they train on processors.")
    if request.place is not None and not request.place.first:  # the first task must not gather an old session
        ResultsFolder(results.root).withdraw()
    with (
        Interrupts() as interrupts,
        scratch.folder("session") as private,
        _tail(request, screen),
    ):

        def run(tasks: Tasks | None = None, notes: tuple[str, ...] = ()) -> Analysis:
            return _Run(request, screen, interrupts, Path(private), tasks, notes).analyze()

        if request.place is None:
            return run()
        return in_cluster.analyze(request, screen, interrupts, Path(private), run=run)


def _tail(request: Request, screen: Screen) -> contextlib.AbstractContextManager[object]:
    return Tail(request.results.log, screen) if request.verbose else contextlib.nullcontext()


class _Run:
    """A running analysis; holds the session as it grows."""

    def __init__(
        self,
        request: Request,
        screen: Screen,
        interrupts: Interrupts,
        private: Path,
        tasks: Tasks | None = None,  # the other tasks of an existing cluster, if all have connected
        notes: tuple[str, ...] = (),  # for the report, in addition to those of the worker
    ) -> None:
        self._request, self._tasks, self._notes = request, tasks, notes
        self._screen = screen
        self._interrupts = interrupts
        self._private = private / sessionfile.SESSION_FILE  # never redacted; deleted at the end
        self._started = time.monotonic()
        self._session = Session(version=VERSION, command=self._command())
        self._files = UserFiles(screen, request.results.folder)

    def analyze(self) -> Analysis:
        conversation = self._measure()
        self._session = concluded(self._session, conversation)
        self._session = replace(self._session, notes=(*self._session.notes, *self._notes))
        exit_code = conversation.exit_code
        if exit_code == 0:
            exit_code = self._verify()
        if exit_code == 0:
            self._gather()
        self._session = replace(
            self._session,
            notes=(*self._session.notes, *self._files.notes),
            side_effects={**self._session.side_effects, **self._files.side_effects},
            seconds={**self._session.seconds, "total": time.monotonic() - self._started},
        )
        if conversation.garbled:
            self._screen.warn(f"{conversation.garbled} lines from the worker were no messages; ignored.")
        self._screen.update("report", "writing the report", elapsed=self._session.seconds["total"])
        foreign = self._request.results.write_all(self._session)
        if foreign:
            results = self._request.results
            self._screen.warn(
                f"{', '.join(foreign)} in {results.root} was not written by pipetune and stays as it is; this run's is "
                f"in {results.folder}."
            )
        cause = conversation.cause
        return Analysis(
            self._request.results.shown(self._session),
            exit_code,
            self._request.results,
            traceback=cause.script_failed.traceback if cause.script_failed else "",
            failed=cause.failed,
            last_lines=cause.last_lines or self._last_lines(exit_code, cause),
        )

    def _last_lines(self, exit_code: int, cause: Conversation) -> str:
        """The end of the log if the script exited by itself: it has the usage message or the reason. Otherwise ""."""
        if exit_code != _SCRIPT_FAILED or cause.script_failed or self._request.verbose:
            return ""
        return last_lines(self._request.results.log, count=_LAST_LINES)

    def _measure(self) -> Conversation:
        job = self._job(Mode.ANALYZE)
        first = self._converse(job, self._keep)
        trial = first.trial
        if trial is None or first.ending not in (Ending.DIED, Ending.HUNG):
            return first
        if self._tasks is not None and not self._tasks.whole:  # an exited agent cannot restart its worker
            return first
        self._screen.warn(
            f"While trying {trial.plan} the process {first.why}. That plan counts as failed; "
            "starting once more, without it."
        )
        before = self._session
        sessionfile.save(before, self._private)
        again = replace(job, skip=(trial.plan,), skip_reason=first.why, session=str(self._private), attempt=2)

        def keep_both(session: Session) -> None:
            if session.studied or not before.studied:
                self._keep(carried_over(before, session, trial, first.why))

        second = self._converse(again, keep_both)
        for what, count in first.suppressed.items():
            second.suppressed[what] = second.suppressed.get(what, 0) + count
        second.garbled += first.garbled
        second.session = second.session or first.session
        return second

    def _verify(self) -> int:
        """Measure the patched script against the original one. Returns the exit status."""
        patch = self._session.patch
        if patch is None or not patch.diff:
            return 0
        if not self._verifies:
            self._leave_unverified()
            return 0
        from pipetune.supervisor import verification  # imports SciPy (0.5 s): only if there is a patch

        begun = time.monotonic()
        sessionfile.save(self._session, self._private)
        settings = self._request.settings
        processes = settings.workers + (settings.parameter_servers + 1 if settings.parameter_servers else 0)
        found = verification.verify(
            self._session,
            verification.Starter(
                replace(self._job(Mode.VERIFY), session=str(self._private)),
                self._processes,
                self._files.kept,
                self._request.limits,
                self._interrupts,
                lambda message: show(message, self._screen) if isinstance(message, Log) else None,
            ),
            settings=settings,
            together=self._tasks is None and verification.fits_twice(self._session, processes=processes),
            told=self._tell_verification,
        )
        seconds = {
            **self._session.seconds,
            "verification_starts": round(found.start_seconds, 3),
            "verification": round(time.monotonic() - begun - found.start_seconds, 3),
        }
        self._session = replace(self._session, seconds=seconds)
        if found.interrupted is not None:
            self._session = concluded(self._session, found.interrupted)
        if found.interrupted is None or found.verified:
            self._session = with_verification(self._session, found)
        else:
            self._session = withheld(self._session, "It was not measured: the run was interrupted.", verified=None)
        self._request.results.save(self._session)
        return 0 if found.interrupted is None else 130

    @property
    def _verifies(self) -> bool:
        """Whether a patch can be verified: a single task of a cluster would block until its peers start."""
        return self._request.place is None or self._tasks is not None

    def _tell_verification(self, doing: str) -> None:
        self._screen.update("verification", doing, elapsed=time.monotonic() - self._started)

    def _leave_unverified(self) -> None:
        patch = self._session.patch
        assert patch is not None
        why = "It trains together with the other tasks of the cluster."
        self._session = replace(self._session, patch=replace(patch, verification=why))

    def _gather(self) -> None:
        place = self._request.place
        if place is not None and place.first and self._tasks is None:
            elapsed = time.monotonic() - self._started
            self._screen.update("report", "waiting for the sessions of the other tasks", elapsed=elapsed)
            self._session = gathered(self._session, self._request.results.root, place, self._interrupts)

    def _keep(self, session: Session) -> None:
        self._session = replace(session, command={**self._command(), **session.command})
        self._request.results.save(self._session)

    def _converse(self, job: Job, keep: Callable[[Session], None]) -> Conversation:
        def on_message(message: Message) -> None:
            if isinstance(message, SessionSaved):
                keep(message.session)
            else:
                show(message, self._screen)

        request = self._request
        with self._files.kept() as undo, self._processes(replace(job, undo=undo)) as running:
            return watch(
                running.chief,
                limits=request.limits,
                interrupts=self._interrupts,
                on_message=on_message,
                others=running.others,
            )

    def _processes(self, job: Job) -> contextlib.AbstractContextManager[Cluster]:
        settings, logs, command = self._request.settings, self._request.results.logs, self._request.worker_command
        workers, servers = settings.workers, settings.parameter_servers
        if self._tasks is not None:
            return self._tasks.started(job, log=logs[0], command=command)
        if servers:
            return started_with_servers(job, workers=workers, servers=servers, logs=logs, command=command)
        return started(job, workers=workers, logs=logs, command=command)

    def _job(self, mode: Mode) -> Job:
        return replace(job_of(self._request, mode), command=self._command(), verifies=self._verifies)

    def _command(self) -> dict[str, object]:
        target, settings = self._request.target, self._request.settings
        named = {"script": target.script} if target.script else {"module": target.module}
        return {
            **named,
            "arguments": list(target.arguments),
            "directory": target.directory,
            "out": self._request.results.typed_folder(target.directory),
            "options": encode(settings),
            "seed": settings.seed,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
