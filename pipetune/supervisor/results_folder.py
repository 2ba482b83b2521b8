"""The results folder: a subfolder per run with its files, and the files of the last finished run."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core import plan_file, session_file
from pipetune.core.cluster import parameter_server_tasks
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.session import Session
from pipetune.core.session_file import SESSION_FILE, redact
from pipetune.supervisor.target import Target


@dataclass(frozen=True)
class Results:
    """The files of one run, in a folder of its own: session.json, report.html, tuned.patch, plan.json, script.log.

    A plan that is not proven is in candidate.patch; tuned.patch is then empty.

    With several processes, each has its own log (worker-0.log and so on) instead of script.log.
    """

    root: Path  # the results folder, which shows the last finished run
    confidential: bool = False  # redact source text, paths and arguments
    workers: int = 1  # local ones
    parameter_servers: int = 0
    run: str = ""  # the name of the run's folder; empty until `with_new_run`

    @property
    def folder(self) -> Path:
        """Where this run's files are."""
        return self.root / RUNS / self.run if self.run else self.root

    @property
    def logs(self) -> tuple[Path, ...]:
        """The log of each process; that of the analyzed process is the first."""
        if self.parameter_servers:
            _, *others = parameter_server_tasks(workers=self.workers, servers=self.parameter_servers)
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
        """The run's session.json."""
        return self.folder / SESSION_FILE

    @property
    def report(self) -> Path:
        """The run's report.html."""
        return self.folder / "report.html"

    def folder_from(self, directory: str) -> str:
        """Returns the path of the run's folder, relative to `directory` if it is inside."""
        return _path_from(self.folder, directory)

    def with_shown_folder(self, session: Session) -> Session:
        """Returns the session with the folder to type: the results folder itself, as long as it shows this run."""
        if session.command.confidential or session.status != FINISHED:
            return session
        return replace(session, command=replace(session.command, out=_path_from(self.root, session.command.directory)))

    def with_new_run(self) -> Results:
        """Returns these results with a new run folder that has empty logs; called before anything runs.

        Raises:
            PipetuneError: the folder cannot be written to.
        """
        try:
            results = replace(self, run=ResultsFolder(self.root).new_run().name)
            for log in results.logs:
                log.write_bytes(b"")
        except OSError as error:
            raise write_error(self.root, error) from error
        return results

    def publish(self) -> tuple[str, ...]:
        """Makes the results folder show this run.

        Returns:
            Names in the results folder that are the user's own files; they are kept.

        Raises:
            PipetuneError: the folder cannot be written to.
        """
        try:
            return ResultsFolder(self.root).publish(self.folder)
        except OSError as error:
            raise PipetuneError(
                f"The results of this run cannot be shown in {self.root}: {error.strerror or error}.",
                hint=f"They are in {self.folder}.",
            ) from error

    def redacted_if_confidential(self, session: Session) -> Session:
        """Returns the session as it may be written or shown: redacted if `confidential`."""
        return redact(session) if self.confidential else session

    def save(self, session: Session) -> None:
        """Writes the current session.json. A results folder that shows no session yet then shows this run."""
        session_file.save(self.redacted_if_confidential(session), self.session)
        if not ResultsFolder(self.root).has_session:
            self.publish()

    def write_all(self, session: Session) -> tuple[str, ...]:
        """Writes all files. The results folder shows them, unless the run is unfinished and it shows a finished one.

        Returns:
            Names in the results folder that are the user's own files; they are kept.
        """
        from pipetune.report.render import render

        self.save(session)
        write_text(self.folder / "tuned.patch", session.patch.diff if session.patch else "")
        if session.candidate is not None and session.candidate.diff:
            write_text(self.folder / CANDIDATE_PATCH, session.candidate.diff)
        plan = plan_file.plan_file(session)
        if plan is not None:
            plan_file.save_plan(plan, self.folder / PLAN_FILE)
        if session.distributed and session.distributed.module:
            write_text(self.folder / Path(session.distributed.file).name, session.distributed.module)
        render(self.redacted_if_confidential(session), "html", self.report)
        shows_finished = ResultsFolder(self.root).status == FINISHED
        return () if shows_finished and session.status != FINISHED else self.publish()


def _path_from(path: Path, directory: str) -> str:
    inside = os.path.relpath(path, directory or ".")
    return str(path) if inside.startswith("..") else inside


def write_error(folder: Path, error: OSError) -> PipetuneError:
    """Returns the error for a results folder that cannot be written to, raised before anything has run."""
    return PipetuneError(
        f"Results cannot be written to {folder}: {error.strerror or error}.",
        hint="Choose a writable folder with --out DIR. Nothing was run.",
    )


CANDIDATE_PATCH = "candidate.patch"
RUNS, LATEST_LINK = "runs", "latest"
FINISHED, _UNFINISHED = "done", ("failed", "interrupted", "no-dataset")  # of `Session.status`
_LOCK_FILE, _COPIES_FILE, _OWNER_FILE = ".lock", ".copied.json", ".script"


@dataclass(frozen=True)
class ResultsFolder:
    """The folder given by `--out`."""

    path: Path

    def new_run(self) -> Path:
        """Creates an empty folder for a run that starts now and returns its path.

        Raises:
            OSError: the folder cannot be created.
        """
        runs = self.path / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        return _new_folder(runs, time.time())

    @property
    def status(self) -> str:
        """The status of the run that the folder shows; "" if none. A session without a readable status is "done"."""
        return str(_read_session(self.path / SESSION_FILE).get("status", FINISHED)) if self.has_session else ""

    @property
    def has_session(self) -> bool:
        """Whether the folder shows a session.json."""
        return (self.path / SESSION_FILE).is_file()

    def publish(self, run: Path) -> tuple[str, ...]:
        """Makes the folder show only the files of `run`.

        Args:
            run: a folder created by `new_run`.

        Returns:
            Names of files in the folder that pipetune did not write. They are kept, and the run's are not shown.

        Raises:
            OSError: the folder cannot be written to.
        """
        with self.locked():
            names = {entry.name for entry in run.iterdir() if entry.is_file() and not entry.name.startswith(".")}
            own = self._published_names()
            unknown = {name for name in names - own if os.path.lexists(self.path / name)}
            names -= unknown
            try:
                for name in names:
                    if not self._is_link(name):
                        _link(f"{LATEST_LINK}/{name}", self.path / name)
                self._link_latest(run)
                copied = False
            except OSError:  # no links on this file system, or the user has a file, folder or link `latest`
                self._copy(run, names, own)
                copied = True
            for name in own - names:
                (self.path / name).unlink(missing_ok=True)
            self._note_copies(names if copied else set())
            return tuple(sorted(unknown))

    def unpublish(self) -> None:
        """Shows no session until a run is shown again; the run's own copy of it stays."""
        if self.path.is_dir():
            with self.locked():
                if SESSION_FILE in self._published_names():
                    (self.path / SESSION_FILE).unlink(missing_ok=True)

    def newer_unfinished_run(self) -> Path | None:
        """Returns the last unfinished run whose session is newer than the one shown; None if there is none."""
        try:
            shown = (self.path / SESSION_FILE).stat().st_mtime_ns
        except OSError:
            return None
        later = [
            (written, session.parent)
            for session in self.path.glob(f"{RUNS}/*/{SESSION_FILE}")
            if (written := session.stat().st_mtime_ns) > shown and _read_session(session).get("status") in _UNFINISHED
        ]
        return max(later)[1] if later else None

    def _copy(self, run: Path, names: set[str], own: set[str]) -> None:
        self._note_copies(names | own)
        for name in sorted(names, key=lambda name: name == SESSION_FILE):
            handle, copy = tempfile.mkstemp(prefix=".pipetune-", dir=self.path)
            os.close(handle)
            shutil.copy(run / name, copy)
            os.replace(copy, self.path / name)
        if self._has_latest_link:
            (self.path / LATEST_LINK).unlink()

    def _link_latest(self, run: Path) -> None:
        """Makes `latest` a link to the run; raises OSError if the user has something of this name."""
        latest = self.path / LATEST_LINK
        if os.path.lexists(latest) and not self._has_latest_link:
            raise FileExistsError(latest)
        _link(f"{RUNS}/{run.name}", latest)

    @property
    def _has_latest_link(self) -> bool:
        latest = self.path / LATEST_LINK
        return latest.is_symlink() and os.readlink(latest).startswith(f"{RUNS}/")

    def _published_names(self) -> set[str]:
        """The names in the folder that pipetune put there to show a run."""
        links = {entry.name for entry in self.path.iterdir() if self._is_link(entry.name)}
        try:
            copied = json.loads((self.path / RUNS / _COPIES_FILE).read_text())
        except (OSError, ValueError):
            copied = []
        return links | {name for name in copied if (self.path / name).is_file()}

    def _is_link(self, name: str) -> bool:
        path = self.path / name
        return path.is_symlink() and os.readlink(path) == f"{LATEST_LINK}/{name}"

    def _note_copies(self, names: set[str]) -> None:
        note = self.path / RUNS / _COPIES_FILE
        if names:
            write_text(note, json.dumps(sorted(names)))
        else:
            note.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock while open: only one command at a time may change what the folder shows."""
        runs = self.path / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        with open(runs / _LOCK_FILE, "ab") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def results_folder_of(session: Path) -> Path:
    """Returns the results folder to which a session belongs.

    Args:
        session: a session.json, or the folder with it: that of a run, or the results folder itself.
    """
    folder = session if session.is_dir() else session.parent
    real = folder.resolve()
    return real.parent.parent if real.parent.name == RUNS else folder.absolute()


def default_results_folder(target: Target, reports: Path) -> Path:
    """Returns the folder in `reports` that belongs to this script, the same each time.

    It has the script's name; if that folder belongs to another script, prefixed with the name of the script's folder.

    Raises:
        OSError: the folder cannot be created.
    """
    identity = _identity(target, reports)
    names = _candidate_names(target, identity)
    owners = {name: _owner_identity(reports / name, reports) for name in names}
    for name in names:
        if owners[name] == identity:
            return reports / name
    for name in names:
        if owners[name] == "" and _claim(ResultsFolder(reports / name), identity):
            return reports / name
    return reports / names[-1]


def _candidate_names(target: Target, identity: str) -> list[str]:
    path = Path(target.script).with_suffix("") if target.script else Path(*target.module.split("."))
    parts = [part for part in path.parts if part != path.anchor]
    return [*("-".join(parts[-count:]) for count in range(1, min(len(parts), 3) + 1)), f"{target.name}-{identity[:12]}"]


def _identity(target: Target, reports: Path) -> str:
    """A hash that distinguishes scripts.

    Of the path relative to the project, which may be moved; hashed, as the folder may be shared with others.
    """
    where = os.path.relpath(target.script, reports.absolute().parent) if target.script else f"-m {target.module}"
    return hashlib.sha256(os.fsencode(where)).hexdigest()


def _owner_identity(folder: Path, reports: Path) -> str:
    """The identity of the script to which a results folder belongs; "" for none, "?" if unknown."""
    with contextlib.suppress(OSError):
        return (folder / RUNS / _OWNER_FILE).read_text().strip()
    if not folder.exists():
        return ""
    command = _read_session(folder / SESSION_FILE).get("command")
    if isinstance(command, dict) and (command.get("script") or command.get("module")):
        script, module = str(command.get("script") or ""), str(command.get("module") or "")
        return _identity(Target(script=script, module=module), reports)
    return "?" if any(folder.iterdir()) else ""


def _claim(folder: ResultsFolder, identity: str) -> bool:
    """Records that the folder belongs to this script; returns False if another script was faster."""
    with folder.locked():
        try:
            with open(folder.path / RUNS / _OWNER_FILE, "x") as file:
                file.write(identity)
            return True
        except FileExistsError:
            return (folder.path / RUNS / _OWNER_FILE).read_text().strip() == identity


def _read_session(session: Path) -> dict[str, object]:
    """The content of a session.json, not decoded, as another release may have written it; {} if unreadable."""
    try:
        data = json.loads(session.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _new_folder(parent: Path, seconds: float) -> Path:
    name = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(seconds))
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def _link(to: str, path: Path) -> None:
    """Replaces the file or link `path` by a symbolic link to `to`, atomically."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    os.symlink(to, new)
    try:
        os.replace(new, path)
    except OSError:
        new.unlink()
        raise
