"""The result files of one run."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core import planfile, sessionfile
from pipetune.core.cluster import with_servers
from pipetune.core.confidential import redact
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.session import Session
from pipetune.supervisor.runs import FINISHED, RUNS, ResultsFolder


@dataclass(frozen=True)
class Results:
    """The files of one run, in a folder of its own: session.json, report.html, tuned.patch, plan.json, script.log.

    With several processes, each has its own log (worker-0.log and so on) instead of script.log.

    Args:
        root: the results folder, which shows the last finished run.
        confidential: redact source text, paths and arguments.
        workers: number of local workers.
        parameter_servers: number of local parameter servers.
        run: the name of the run's folder; empty until `begun`.
    """

    root: Path
    confidential: bool = False
    workers: int = 1
    parameter_servers: int = 0
    run: str = ""

    @property
    def folder(self) -> Path:
        """Where this run's files are."""
        return self.root / RUNS / self.run if self.run else self.root

    @property
    def logs(self) -> tuple[Path, ...]:
        """The log of each process; that of the analyzed process is the first."""
        if self.parameter_servers:
            _, *others = with_servers(workers=self.workers, servers=self.parameter_servers)
            return (self.folder / "chief.log", *(self.folder / f"{kind}-{index}.log" for kind, index in others))
        if self.workers == 1:
            return (self.folder / "script.log",)
        return tuple(self.folder / f"worker-{worker}.log" for worker in range(self.workers))

    @property
    def log(self) -> Path:
        """The log of the analyzed process."""
        return self.logs[0]

    @property
    def session(self) -> Path:
        return self.folder / sessionfile.SESSION_FILE

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    def typed_folder(self, directory: str) -> str:
        """The path of the run's folder, relative to `directory` if it is inside."""
        inside = os.path.relpath(self.folder, directory or ".")
        return str(self.folder) if inside.startswith("..") else inside

    def begun(self) -> Results:
        """These results with a new run folder that has empty logs; called before anything runs.

        Raises:
            PipetuneError: the folder cannot be written to.
        """
        try:
            results = replace(self, run=ResultsFolder(self.root).new_run().name)
            for log in results.logs:
                log.write_bytes(b"")
        except OSError as error:
            raise cannot_write(self.root, error) from error
        return results

    def show(self) -> tuple[str, ...]:
        """Make the results folder show this run.

        Returns:
            Names in the results folder that are the user's own files; they are kept.

        Raises:
            PipetuneError: the folder cannot be written to.
        """
        try:
            return ResultsFolder(self.root).show(self.folder)
        except OSError as error:
            raise PipetuneError(
                f"{self.root} cannot show this run: {error.strerror or error}.", hint=f"It is in {self.folder}."
            ) from error

    def shown(self, session: Session) -> Session:
        """The session as it may be written or shown: redacted if `confidential`."""
        return redact(session) if self.confidential else session

    def save(self, session: Session) -> None:
        """Write the current session.json. A results folder that shows no session yet will show this run."""
        sessionfile.save(self.shown(session), self.session)
        if not ResultsFolder(self.root).shows_session:
            self.show()

    def write_all(self, session: Session) -> tuple[str, ...]:
        """Write every file. The results folder shows them, except that an unfinished run never replaces a finished one.

        Returns:
            Names in the results folder that are the user's own files; they are kept.
        """
        from pipetune.report.render import render

        self.save(session)
        write_text(self.folder / "tuned.patch", session.patch.diff if session.patch else "")
        plan = planfile.plan_file(session)
        if plan is not None:
            planfile.save_plan(plan, self.folder / planfile.PLAN_FILE)
        if session.distributed and session.distributed.module:
            write_text(self.folder / Path(session.distributed.file).name, session.distributed.module)
        render(self.shown(session), "html", self.report)
        shows_finished = ResultsFolder(self.root).status == FINISHED
        return () if shows_finished and session.status != FINISHED else self.show()


def cannot_write(folder: Path, error: OSError) -> PipetuneError:
    """The error for a results folder that cannot be written to, raised before anything has run."""
    return PipetuneError(
        f"Results cannot be written to {folder}: {error.strerror or error}.",
        hint="Name a folder you may write to with --out DIR. Nothing was run.",
    )
