"""The files a run leaves behind."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipetune.core import planfile, sessionfile
from pipetune.core.cluster import with_servers
from pipetune.core.confidential import redact
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.session import Session


@dataclass(frozen=True)
class Results:
    """The folder that takes session.json, report.html, tuned.patch, plan.json, script.log.

    Of several processes each has its own log, worker-0.log and so on, in place of script.log.
    """

    folder: Path
    confidential: bool = False
    workers: int = 1
    parameter_servers: int = 0

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

    def shown_folder(self, directory: str) -> str:
        """The folder as someone in `directory` would type it."""
        inside = os.path.relpath(self.folder, directory or ".")
        return str(self.folder) if inside.startswith("..") else inside

    def prepare(self) -> None:
        """Make the folder, and empty logs in it, before anything runs; those of an earlier run go.

        Raises:
            PipetuneError: it cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            for pattern in ("script.log", "chief.log", "worker-*.log", "ps-*.log"):
                for earlier in self.folder.glob(pattern):
                    earlier.unlink(missing_ok=True)
            for log in self.logs:
                log.write_bytes(b"")
        except OSError as error:
            raise PipetuneError(
                f"Results cannot be written to {self.folder}: {error.strerror or error}.",
                hint="Name a folder you may write to with --out DIR. Nothing was run.",
            ) from error

    def leave_log_alone(self) -> None:
        """No results come here: what an earlier run left, other than logs, goes."""
        for name in (sessionfile.SESSION_FILE, planfile.PLAN_FILE, "tuned.patch", "report.html"):
            (self.folder / name).unlink(missing_ok=True)

    def shown(self, session: Session) -> Session:
        """The session as it may leave this process."""
        return redact(session) if self.confidential else session

    def save(self, session: Session) -> None:
        """Write session.json as far as it got."""
        sessionfile.save(self.shown(session), self.session)

    def write_all(self, session: Session) -> None:
        """Write every file; those of an earlier run never stay beside a newer session."""
        from pipetune.report.render import render

        self.save(session)
        write_text(self.folder / "tuned.patch", session.patch.diff if session.patch else "")
        plan = planfile.plan_file(session)
        plan_path = self.folder / planfile.PLAN_FILE
        if plan is None:
            plan_path.unlink(missing_ok=True)
        else:
            planfile.save_plan(plan, plan_path)
        if session.distributed and session.distributed.module:
            write_text(self.folder / Path(session.distributed.file).name, session.distributed.module)
        render(self.shown(session), "html", self.report)
