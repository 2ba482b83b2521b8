"""The files that one run leaves behind."""

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

    Of several processes each has its own log, worker-0.log and so on, in place of script.log.

    Args:
        root: the results folder, which shows the last finished run.
        run: the name of the run's folder; empty until it is begun.
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
        """What the script printed, process by process: the one that is analysed first."""
        if self.parameter_servers:
            _, *others = with_servers(workers=self.workers, servers=self.parameter_servers)
            return (self.folder / "chief.log", *(self.folder / f"{kind}-{index}.log" for kind, index in others))
        if self.workers == 1:
            return (self.folder / "script.log",)
        return tuple(self.folder / f"worker-{worker}.log" for worker in range(self.workers))

    @property
    def log(self) -> Path:
        """What the script printed where it was analysed."""
        return self.logs[0]

    @property
    def session(self) -> Path:
        return self.folder / sessionfile.SESSION_FILE

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    def typed_folder(self, directory: str) -> str:
        """The run's folder as someone in `directory` would type it."""
        inside = os.path.relpath(self.folder, directory or ".")
        return str(self.folder) if inside.startswith("..") else inside

    def begun(self) -> Results:
        """These results in a folder of their own, with empty logs in it, before anything runs.

        Raises:
            PipetuneError: it cannot be written to.
        """
        try:
            results = replace(self, run=ResultsFolder(self.root).new_run().name)
            for log in results.logs:
                log.write_bytes(b"")
        except OSError as error:
            raise cannot_write(self.root, error) from error
        return results

    def show(self) -> tuple[str, ...]:
        """Lets the results folder show this run; names there that are the user's own, and stay.

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
        """The session as it may leave this process."""
        return redact(session) if self.confidential else session

    def save(self, session: Session) -> None:
        """Write session.json as far as it got. A results folder that shows nothing yet shows it."""
        sessionfile.save(self.shown(session), self.session)
        if not ResultsFolder(self.root).shows_session:
            self.show()

    def write_all(self, session: Session) -> tuple[str, ...]:
        """Write every file. The results folder shows them, unless it shows a finished run and this is none.

        Returns:
            Names in the results folder that are the user's own, and stay.
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
    """What is said where results cannot be written, before anything was run."""
    return PipetuneError(
        f"Results cannot be written to {folder}: {error.strerror or error}.",
        hint="Name a folder you may write to with --out DIR. Nothing was run.",
    )
