"""Many scripts in real workers, without a supervisor: what is captured, profiled and diagnosed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipetune.core.messages import AnalysisFailed, Job, Message, Mode, ScriptFailed, SessionSaved, from_line, write_job
from pipetune.core.session import Session
from pipetune.core.session_file import session_data
from pipetune.core.settings import Settings
from tests.e2e.command import ENVIRONMENT, LIMIT_SECONDS, ROOT, SCRIPTS, SessionParts
from tests.starting import search_path


@dataclass(frozen=True)
class Worked(SessionParts):
    folder: Path

    @cached_property
    def messages(self) -> list[Message]:
        lines = (self.folder / "messages.jsonl").read_bytes().splitlines()
        return [from_line(line) for line in lines]

    @property
    def code(self) -> int:
        return int((self.folder / "code").read_text())

    @property
    def log(self) -> str:
        return (self.folder / "script.log").read_text()

    @property
    def saved(self) -> Session:
        return [message.session for message in self.messages if isinstance(message, SessionSaved)][-1]

    @cached_property
    def session(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(session_data(self.saved))))

    @property
    def consumer(self) -> dict[str, Any]:
        return dict(self.first["profile"]["consumer"])

    @property
    def traceback(self) -> str:
        return "".join(one.traceback for one in self.messages if isinstance(one, ScriptFailed))

    @property
    def failure(self) -> str:
        return " ".join(f"{one.message} {one.hint}" for one in self.messages if isinstance(one, AnalysisFailed))


@dataclass(frozen=True)
class Script:
    """A script to run; in `arguments`, `{folder}` is a folder of its own, `{large}` a file there of 1.5 GB."""

    path: Path
    arguments: tuple[str, ...] = ()
    distribute: str | None = None
    device: str = "auto"
    step_time: float | None = None  # seconds


class Forked:
    """Workers on scripts, all started together when the first is requested."""

    def __init__(
        self, base: Path, scripts: Mapping[str, tuple[str, ...] | Script], *, variables: Mapping[str, str] | None = None
    ) -> None:
        """A tuple has the arguments of the script of `tests/scripts` with that name; `variables` is the environment."""
        self._base = base
        jobs = []
        for name, given in scripts.items():
            script = given if isinstance(given, Script) else Script(SCRIPTS / f"{name.partition('-')[0]}.py", given)
            folder = base / name
            (folder / "own").mkdir(parents=True)
            job = Job(
                mode=Mode.ANALYZE,
                message_descriptor=-1,
                settings=Settings(
                    quick=True,
                    trials=False,
                    out=str(folder),
                    distribute=script.distribute,
                    device=script.device,
                    step_time_seconds=script.step_time,
                ),
                script=str(script.path),
                arguments=tuple(_filled(word, folder / "own") for word in script.arguments),
                directory=str(folder / "own"),
                out=str(folder),
                undo=str(folder / "undo"),
            )
            (folder / "undo").mkdir()
            (folder / "job").mkdir()  # for the worker's own folders, without files of the script
            write_job(job, folder / "job" / "job.json")
            jobs.append(str(folder / "job" / "job.json"))
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("workers.py")), *jobs],
            env={**ENVIRONMENT, "PYTHONPATH": search_path(ROOT), **(variables or {})},
            cwd=base,
        )

    def __call__(self, name: str) -> Worked:
        """The result for one script, once its worker has exited."""
        code, end = self._base / name / "code", time.monotonic() + LIMIT_SECONDS
        while not code.exists() or not code.read_text():
            assert time.monotonic() < end, f"{name} did not end"
            if self._process.poll() is not None:
                assert code.exists(), f"{name}: its worker ended without a word"
            time.sleep(0.1)
        return Worked(self._base / name)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def _filled(word: str, own: Path) -> str:
    large = own / "large"
    if "{large}" in word:
        large.touch()
        os.truncate(large, 1_500_000_000)  # a sparse file, which takes no disk space
    return word.format(folder=own, large=large)
