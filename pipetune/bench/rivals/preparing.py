"""What goes before the windows of a workload: its data, and the plan of `pipetune analyze`, as a user gets it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.bench import Say
from pipetune.core.benchmarks import Workload
from pipetune.core.results import RunFailed
from pipetune.core.session import Session
from pipetune.core.session_file import load

ANALYZE_COMMAND = (sys.executable, "-P", "-m", "pipetune", "analyze", "--quiet")
QUICK_BUDGET_SECONDS = 20.0

_SIGN_SECONDS = 5.0
_SHOWN_LINES = 4


@dataclass(frozen=True)
class Analysis:
    """What `pipetune analyze` left, and how long it took from start to end."""

    session: Session
    seconds: float


def make_data(workload: Workload, *, log: Path, say: Say) -> None:
    """Runs the workload's `make_data.py`, which does nothing where the data is there.

    Raises:
        RunFailed: it failed.
    """
    if workload.data_script is not None:
        run((sys.executable, str(workload.data_script)), doing="making its data", log=log, say=say)


def analyse(
    workload: Workload,
    out: Path,
    *,
    quick: bool,
    seed: int,
    log: Path,
    say: Say,
    without: Sequence[str] = (),
) -> Analysis:
    """Analyses the unmodified script with default consent; the short form with a small budget and a short profile.

    Args:
        out: takes what the command writes.
        without: names of rules that it leaves out.

    Raises:
        RunFailed: it failed, or left no session.
    """
    options = ("--quick", "--budget", f"{QUICK_BUDGET_SECONDS:g}") if quick else ()
    if without:
        options = (*options, "--without", ",".join(without))
    command = (*ANALYZE_COMMAND, "--seed", str(seed), "--out", str(out), *options, str(workload.script))
    doing = " ".join(("pipetune analyze", *(("--without", ",".join(without)) if without else ())))
    seconds = run((*command, *workload.arguments), doing=doing, log=log, say=say)
    return Analysis(load(out), seconds)


def run(command: Sequence[str], *, doing: str, log: Path, say: Say, descriptor: int | None = None) -> float:
    """Runs a process to its end, what it prints into `log`; the seconds it took.

    Args:
        doing: what it does, in words; said every few seconds with the time it took so far.
        descriptor: of the pipe it may tell its progress to by itself; nothing is said then.

    Raises:
        RunFailed: it did not end with 0; the message has the last lines it printed.
    """
    started = time.monotonic()
    say(doing)
    with log.open("ab") as stream:
        begun = stream.tell()
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
                    process.wait(_SIGN_SECONDS)
                except subprocess.TimeoutExpired:
                    if descriptor is None:
                        say(f"{doing}, {time.monotonic() - started:.0f} s")
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        raise RunFailed(f"{doing} ended with {process.returncode}: {_last_lines(log, begun)}")
    return time.monotonic() - started


def _last_lines(log: Path, begun: int) -> str:
    with log.open("rb") as stream:
        stream.seek(begun)
        lines = stream.read().decode(errors="replace").split("\n")
    return " / ".join([line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]) or "it printed nothing"
