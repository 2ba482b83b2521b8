"""Runs the processes of a benchmark, and `pipetune analyze` as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ProgressCallback
from pipetune.core.measurement import RunFailed
from pipetune.core.session import Session
from pipetune.core.session_file import load

PIPETUNE_COMMAND = (sys.executable, "-P", "-m", "pipetune")

_PROGRESS_SECONDS = 5.0  # time between reports of progress
_SHOWN_LINES = 4  # of the log, in an error message


@dataclass(frozen=True)
class Analysis:
    """The session of a run of `pipetune analyze`, and the time that the whole command took."""

    session: Session
    seconds: float


def analyze(
    script: Path,
    arguments: Sequence[str],
    out: Path,
    *,
    seed: int,
    log: Path,
    progress: ProgressCallback,
    options: Sequence[str] = (),
    timeout_seconds: float | None = None,
) -> Analysis:
    """Runs `pipetune analyze` on a script with the default consent.

    Args:
        script: the script.
        arguments: those of the script.
        out: folder for the results of the command.
        seed: seed of the command.
        log: file for the output of the command.
        progress: called with each activity.
        options: further options of the command.
        timeout_seconds: after which it is given up; None: never.

    Raises:
        RunFailed: the command failed.
        PipetuneError: there is no session that can be read.
    """
    command = (*PIPETUNE_COMMAND, "analyze", "--quiet", "--seed", str(seed), "--out", str(out), *options, str(script))
    activity = " ".join(("pipetune analyze", *options))
    seconds = run_process(
        (*command, *arguments), activity=activity, log=log, progress=progress, timeout_seconds=timeout_seconds
    )
    return Analysis(load(out), seconds)


def run_process(
    command: Sequence[str],
    *,
    activity: str,
    log: Path,
    progress: ProgressCallback,
    descriptor: int | None = None,
    timeout_seconds: float | None = None,
) -> float:
    """Runs a process until it exits, and returns the seconds that it took.

    Args:
        command: the command line.
        activity: what the process does, in words.
        log: file to which the output of the process is appended.
        progress: called with the activity, and then every few seconds with the elapsed time as well.
        descriptor: of a pipe to which the process itself reports progress; `progress` is then called only once.
        timeout_seconds: after which the process is killed; None: never.

    Raises:
        RunFailed: the process took too long, or its exit status is not 0; the message contains the last lines of the
            output.
    """
    started = time.monotonic()
    progress(activity)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        offset = stream.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            pass_fds=() if descriptor is None else (descriptor,),
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")},
        )
        try:
            while process.poll() is None:
                try:
                    process.wait(_PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    if timeout_seconds is not None and time.monotonic() - started > timeout_seconds:
                        raise RunFailed(f"{activity} took more than {timeout_seconds:.0f} s; see {log}") from None
                    if descriptor is None:
                        progress(f"{activity}, {time.monotonic() - started:.0f} s")
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        raise RunFailed(f"{activity} failed with exit status {process.returncode}: {_last_lines(log, offset)}")
    return time.monotonic() - started


def _last_lines(log: Path, offset: int) -> str:
    with log.open("rb") as stream:
        stream.seek(offset)
        lines = stream.read().decode(errors="replace").split("\n")
    return " / ".join([line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]) or "no output"
