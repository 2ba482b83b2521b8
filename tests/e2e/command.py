"""Runs `pipetune` in separate processes, as a user does, and keeps the results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jsonschema

from tests.core.schemas import schema

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "scripts"
OWN = Path(__file__).resolve().parent / "scripts"
PRECIOUS = b"\x89HDF\0what the user trained for a week"
LIMIT_SECONDS = 280

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))},
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "80",
}


@dataclass(frozen=True)
class Case:
    """One run. In `script` and `arguments`, `{folder}` is a folder of its own, with `PRECIOUS` in model.keras."""

    script: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--no-trials", "--json")
    meanwhile: Callable[[subprocess.Popen[str], Path], None] | None = None  # called with the path of its stderr
    copied: str = ""  # a script that is copied to `{folder}` first
    quick: bool = True


class SessionParts:
    """Parts of the session that a run has left."""

    session: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        return dict(self.session["summary"])

    @property
    def first(self) -> dict[str, Any]:
        """The main dataset of the session, with all measurements."""
        return dict(self.session["datasets"][0])

    @property
    def operators(self) -> list[str]:
        return [node["op"] for node in self.first["pipeline"]["nodes"]]


@dataclass(frozen=True)
class Done(SessionParts):
    code: int
    out: str
    err: str
    results: Path  # --out
    folder: Path = field(default_factory=Path)  # `{folder}`

    @cached_property
    def session(self) -> dict[str, Any]:
        session = dict(json.loads((self.results / "session.json").read_text()))
        assert not any("which only inform, ended with an error" in note for note in session["notes"])
        return session

    @cached_property
    def plan(self) -> dict[str, Any]:
        plan = dict(json.loads((self.results / "plan.json").read_text()))
        jsonschema.validate(plan, schema("plan"))
        return plan

    @property
    def log(self) -> str:
        return (self.results / "script.log").read_text()

    @property
    def logs(self) -> list[str]:
        return [path.read_text() for path in sorted(self.results.glob("worker-*.log"))]

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.results.iterdir()} if self.results.is_dir() else set()

    @property
    def said(self) -> str:
        """The terminal output without line breaks."""
        return " ".join(self.err.split())


def python(*arguments: str | Path, cwd: Path = SCRIPTS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def pipetune(*arguments: str | Path, cwd: Path = SCRIPTS) -> subprocess.CompletedProcess[str]:
    """Runs a command that does not run a script."""
    return python("-m", "pipetune", *arguments, cwd=cwd)


def analyze(case: Case, base: Path) -> Done:
    """`pipetune analyze` on a case, in the folder of the scripts."""
    folder, results = base / "own", base / "out"
    folder.mkdir(parents=True)
    (folder / "model.keras").write_bytes(PRECIOUS)
    if case.copied:
        shutil.copy(OWN / case.copied, folder)
    command = [sys.executable, "-m", "pipetune", "analyze", "--out", str(results), *case.options]
    command += ["--quick"] if case.quick else []
    command += [word.format(folder=folder) for word in (*case.script.split(), *case.arguments)]
    with (base / "stdout").open("w") as out_file, (base / "stderr").open("w") as err_file:
        process = subprocess.Popen(command, cwd=SCRIPTS, env=ENVIRONMENT, stdout=out_file, stderr=err_file, text=True)
        try:
            if case.meanwhile:
                case.meanwhile(process, base / "stderr")
            code = process.wait(LIMIT_SECONDS)
        finally:
            process.kill()
            process.wait()
    texts = [(base / name).read_text() for name in ("stdout", "stderr")]
    return Done(code, *texts, results=results, folder=folder)


def wait_for(text: str, stderr: Path, process: subprocess.Popen[str]) -> None:
    """Returns once a running command has shown `text`, or has exited."""
    while process.poll() is None and text not in stderr.read_text():
        time.sleep(0.1)
