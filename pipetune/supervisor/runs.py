"""The results folder: it has a subfolder per run, and shows the files of the last finished run.

    DIR/runs/2026-03-01-141500/   session.json, report.html, ... of one run; never changed by another run
    DIR/latest                    a symbolic link to the run that is shown
    DIR/session.json, ...         symbolic links to latest/session.json, ...
    DIR/applied.json, originals/  written only by `pipetune apply`

Only `latest` is replaced, atomically: at any moment all files of DIR come from one run, and a file that is open in a
reader does not change. Where links are not supported (FAT, some network drives) the files are copied, session.json
last; each copy is atomic, and session.json alone has all that the other commands read. No run is ever deleted: a run
takes about a megabyte, and only the user knows which ones are still needed.
"""

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
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.files import write_text
from pipetune.core.planfile import PLAN_FILE
from pipetune.core.sessionfile import SESSION_FILE
from pipetune.supervisor.target import Target

RUNS, LATEST = "runs", "latest"
LOGS = ("script.log", "chief.log", "worker-[0-9]*.log", "ps-[0-9]*.log")
FINISHED, _UNFINISHED = "done", ("failed", "interrupted", "no-dataset")  # of `Session.status`
_LOCK, _COPIED, _SCRIPT = ".lock", ".copied.json", ".script"
_EARLIER_RELEASE = (SESSION_FILE, PLAN_FILE, "report.html", "tuned.patch", "convert_to_tfrecord.py", *LOGS)
"""The files of releases that had one run per folder; in addition to the module that the session names."""


@dataclass(frozen=True)
class ResultsFolder:
    """The folder given by `--out`."""

    path: Path

    def new_run(self) -> Path:
        """Create an empty folder for a run that starts now.

        Raises:
            OSError: the folder cannot be created.
        """
        runs = self.path / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        return _new_folder(runs, time.time())

    @property
    def status(self) -> str:
        """The status of the run that the folder shows; "" if none. A session without a readable status is "done"."""
        return str(_read(self.path / SESSION_FILE).get("status", FINISHED)) if self.shows_session else ""

    @property
    def shows_session(self) -> bool:
        """Whether the folder shows a session.json."""
        return (self.path / SESSION_FILE).is_file()

    def show(self, run: Path) -> tuple[str, ...]:
        """Make the folder show the files of `run`, and no others.

        Args:
            run: a folder created by `new_run`.

        Returns:
            Names of files in the folder that pipetune did not write. They are kept, and the run's are not shown.

        Raises:
            OSError: the folder cannot be written to.
        """
        with self.locked():
            self._move_earlier_release()
            return self._show(run)

    def withdraw(self) -> None:
        """Show no session until a run is shown again; the run's own copy of it stays."""
        if self.path.is_dir():
            with self.locked():
                self._move_earlier_release()
                if SESSION_FILE in self._own_names():
                    (self.path / SESSION_FILE).unlink(missing_ok=True)

    def unfinished_since(self) -> Path | None:
        """The last unfinished run whose session is newer than the one shown; None if there is none."""
        try:
            shown = (self.path / SESSION_FILE).stat().st_mtime_ns
        except OSError:
            return None
        later = [
            (written, session.parent)
            for session in self.path.glob(f"{RUNS}/*/{SESSION_FILE}")
            if (written := session.stat().st_mtime_ns) > shown and _read(session).get("status") in _UNFINISHED
        ]
        return max(later)[1] if later else None

    def _show(self, run: Path) -> tuple[str, ...]:
        names = {entry.name for entry in run.iterdir() if entry.is_file() and not entry.name.startswith(".")}
        own = self._own_names()
        foreign = {name for name in names - own if os.path.lexists(self.path / name)}
        names -= foreign
        try:
            for name in names:
                if not self._is_link(name):
                    _link(f"{LATEST}/{name}", self.path / name)
            _link(f"{RUNS}/{run.name}", self.path / LATEST)
            copied = False
        except OSError:  # no links on this file system, or the user has a folder `latest`
            self._copy(run, names, own)
            copied = True
        for name in own - names:
            (self.path / name).unlink(missing_ok=True)
        self._note_copies(names if copied else set())
        return tuple(sorted(foreign))

    def _copy(self, run: Path, names: set[str], own: set[str]) -> None:
        self._note_copies(names | own)
        for name in sorted(names, key=lambda name: name == SESSION_FILE):
            handle, copy = tempfile.mkstemp(prefix=".pipetune-", dir=self.path)
            os.close(handle)
            shutil.copy(run / name, copy)
            os.replace(copy, self.path / name)
        if os.path.islink(self.path / LATEST):
            (self.path / LATEST).unlink()

    def _own_names(self) -> set[str]:
        """The names in the folder that pipetune put there to show a run."""
        links = {entry.name for entry in self.path.iterdir() if self._is_link(entry.name)}
        try:
            copied = json.loads((self.path / RUNS / _COPIED).read_text())
        except (OSError, ValueError):
            copied = []
        return links | {name for name in copied if (self.path / name).is_file()}

    def _is_link(self, name: str) -> bool:
        path = self.path / name
        return path.is_symlink() and os.readlink(path) == f"{LATEST}/{name}"

    def _note_copies(self, names: set[str]) -> None:
        note = self.path / RUNS / _COPIED
        if names:
            write_text(note, json.dumps(sorted(names)))
        else:
            note.unlink(missing_ok=True)

    def _move_earlier_release(self) -> None:
        """Convert the files of a release that had one run per folder into a run."""
        session = self.path / SESSION_FILE
        data = _read(session)
        if not {"schema", "pipetune"} <= set(data) or SESSION_FILE in self._own_names():
            return
        run = _new_folder(self.path / RUNS, session.stat().st_mtime)
        names = {file.name for pattern in (*_EARLIER_RELEASE, *_named(data)) for file in self.path.glob(pattern)}
        for name in names:
            shutil.copy2(self.path / name, run / name)
        try:
            _link(f"{RUNS}/{run.name}", self.path / LATEST)
            for name in names:
                _link(f"{LATEST}/{name}", self.path / name)
        except OSError:
            self._note_copies(names)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock: only one command at a time may change what the folder shows."""
        runs = self.path / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        with open(runs / _LOCK, "ab") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def results_folder_of(session: Path) -> Path:
    """The results folder to which a session belongs.

    Args:
        session: a session.json, or the folder with it: that of a run, or the results folder itself.
    """
    folder = session if session.is_dir() else session.parent
    real = folder.resolve()
    return real.parent.parent if real.parent.name == RUNS else folder.absolute()


def default_results_folder(target: Target, reports: Path) -> Path:
    """The folder in `reports` for this script only, the same one each time.

    It has the script's name; if that folder belongs to another script, prefixed with the name of the script's folder.

    Raises:
        OSError: the folder cannot be created.
    """
    identity = _identity(target, reports)
    names = _names(target, identity)
    owners = {name: _owner(reports / name, reports) for name in names}
    for name in names:
        if owners[name] == identity:
            return reports / name
    for name in names:
        if owners[name] == "" and _claim(ResultsFolder(reports / name), identity):
            return reports / name
    return reports / names[-1]


def _names(target: Target, identity: str) -> list[str]:
    path = Path(target.script).with_suffix("") if target.script else Path(*target.module.split("."))
    parts = [part for part in path.parts if part != path.anchor]
    return [*("-".join(parts[-count:]) for count in range(1, min(len(parts), 3) + 1)), f"{target.name}-{identity[:12]}"]


def _identity(target: Target, reports: Path) -> str:
    """A hash that distinguishes scripts.

    Of the path relative to the project, which may be moved; hashed, as the folder may be shared with others.
    """
    where = os.path.relpath(target.script, reports.absolute().parent) if target.script else f"-m {target.module}"
    return hashlib.sha256(os.fsencode(where)).hexdigest()


def _owner(folder: Path, reports: Path) -> str:
    """The identity of the script to which a results folder belongs; "" for none, "?" if unknown."""
    with contextlib.suppress(OSError):
        return (folder / RUNS / _SCRIPT).read_text().strip()
    if not folder.exists():
        return ""
    command = _read(folder / SESSION_FILE).get("command")
    if isinstance(command, dict) and (command.get("script") or command.get("module")):
        script, module = str(command.get("script") or ""), str(command.get("module") or "")
        return _identity(Target(script=script, module=module), reports)
    return "?" if any(folder.iterdir()) else ""


def _claim(folder: ResultsFolder, identity: str) -> bool:
    """Record that the folder belongs to this script. False if another script was faster."""
    with folder.locked():
        try:
            with open(folder.path / RUNS / _SCRIPT, "x") as file:
                file.write(identity)
            return True
        except FileExistsError:
            return (folder.path / RUNS / _SCRIPT).read_text().strip() == identity


def _named(session: dict[str, object]) -> list[str]:
    """The file names of the distributed module and its companions, according to the session."""
    distributed = session.get("distributed")
    found = distributed if isinstance(distributed, dict) else {}
    companions = found.get("companions")
    return [Path(str(file)).name for file in (found.get("file"), *(companions or ())) if file]


def _read(session: Path) -> dict[str, object]:
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
    """Replace the file or link `path` by a symbolic link to `to`, atomically."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    os.symlink(to, new)
    try:
        os.replace(new, path)
    except OSError:
        new.unlink()
        raise
