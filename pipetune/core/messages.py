"""What the worker and the supervisor say to each other.

The supervisor hands the worker one `Job`, as a JSON file whose path is the worker's argument. The worker
answers with messages, one JSON object per line, over a pipe it inherits (`Job.message_descriptor`), so that
nothing the user's script prints can be taken for one.
"""

from __future__ import annotations

import enum
import json
import os
import threading
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipetune.core.accuracy import Figure
from pipetune.core.benchmarks import WorkloadResult
from pipetune.core.cluster import Task
from pipetune.core.codec import decode, decode_union, encode
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.session import Session
from pipetune.core.settings import Settings


class Mode(enum.StrEnum):
    """What a worker is started for."""

    ANALYZE = "analyze"  # capture, profile, try, confirm
    VERIFY = "verify"  # run the script, patched or as it is, to its first training step, and measure when asked to
    SERVE = "serve"  # run the script of a task that takes steps from another process, and measure nothing
    RUN = "run"  # run the script with a plan applied
    MACHINE = "machine"  # read the machine as TensorFlow sees it, into a session
    DOCTOR = "doctor"  # the same, and what is wrong with it
    BENCH = "bench"  # measure the figures, or the workloads, named by `Job.arguments` into `Job.out`


@dataclass(frozen=True)
class Job:
    """One task for a worker. Every path is absolute."""

    mode: Mode
    message_descriptor: int
    settings: Settings = field(default_factory=Settings)
    script: str = ""  # the path; empty where `module` is given
    module: str = ""  # as after `python -m`
    arguments: tuple[str, ...] = ()  # the script's own
    directory: str = ""  # the working directory it runs in
    out: str = ""  # where results go
    undo: str = ""  # the folder for undo journals of the script's files; "": there is none, and no loop is measured
    session: str = ""  # path of the session.json whose patch "verify" is about, or that a dead worker left
    verifies: bool = True  # "analyze": a patch is verified afterwards, in processes of their own
    patched: bool = False  # "verify": with the patch
    checks: bool = False  # "verify": compare the elements with those of the plan, and look at the memory
    orders: int = -1  # "verify": descriptor of the socket that orders come over
    plan: str = ""  # "run": path of plan.json
    overlay: Mapping[str, str] = field(default_factory=dict)  # "verify": text to compile for each file
    skip: tuple[str, ...] = ()  # keys of plans that ended a worker before: `Failed`, not tried again
    skip_reason: str = ""  # how it ended: "killed by signal 9 (out of memory?)"
    attempt: int = 1  # 2 after a restart
    command: Mapping[str, object] = field(default_factory=dict)  # for `Session.command`
    limit_seconds: float | None = None  # for the whole job
    task: Task | None = None  # which of several processes that train in step; None: it trains alone


@dataclass(frozen=True)
class Started:
    """The worker runs; `sentence` says what will happen to the user's script."""

    sentence: str


@dataclass(frozen=True)
class Progress:
    """What is being done now. Counts as a sign of life."""

    phase: str  # "capture", "profile", "trials", "confirmation", "verification", "windows"
    doing: str
    best: str = ""  # the best plan so far, in words; not a result before it is confirmed
    elapsed_seconds: float = 0.0
    left_seconds: float | None = None


@dataclass(frozen=True)
class TrialStarted:
    """The plan with this key is being tried; if the worker dies before `TrialEnded`, it was the plan."""

    plan: str  # `Plan.key`
    details: Plan | None = None


@dataclass(frozen=True)
class TrialEnded:
    plan: str


@dataclass(frozen=True)
class VerdictKnown:
    """Whether the input holds training back; sent before any trial."""

    sentence: str
    verdict: str = ""


@dataclass(frozen=True)
class SessionSaved:
    """Everything measured so far; the supervisor writes it to session.json."""

    session: Session


@dataclass(frozen=True)
class Suppressed:
    """Something of the user's that was kept from happening: `count` times so far."""

    what: str  # "saves_suppressed", "summaries_suppressed": as in `Session.side_effects`
    count: int


@dataclass(frozen=True)
class ScriptFailed:
    """The user's script raised; the traceback is its own, pipetune's frames left out."""

    traceback: str
    exit_code: int = 3


@dataclass(frozen=True)
class ScriptExited:
    """The user's script ended the process by itself (`sys.exit`)."""

    code: int
    detail: str = ""


@dataclass(frozen=True)
class Failed:
    """pipetune cannot go on: an error for the user to read."""

    message: str
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class OutOfStep:
    """Workers that train together no longer take the same steps: all of them have to be ended."""

    why: str
    traceback: str = ""  # the user's own, where a step or its input raised


@dataclass(frozen=True)
class Log:
    """One line for the user, above the progress display."""

    text: str


@dataclass(frozen=True)
class FigureMeasured:
    """One figure of `pipetune bench --accuracy`, by its name in accuracy.json."""

    name: str
    figure: Figure


@dataclass(frozen=True)
class WorkloadMeasured:
    """One workload of `pipetune bench`, and the machine it was measured on."""

    result: WorkloadResult
    machine: Machine


@dataclass(frozen=True)
class Finished:
    """The worker's last word."""

    exit_code: int


Message = (
    Started
    | Progress
    | TrialStarted
    | TrialEnded
    | VerdictKnown
    | SessionSaved
    | Suppressed
    | ScriptFailed
    | ScriptExited
    | Failed
    | OutOfStep
    | Log
    | FigureMeasured
    | WorkloadMeasured
    | Finished
)


class MessageWriter:
    """The worker's end of the pipe; any thread may send.

    A supervisor that is gone is no error: the user's script runs on, and the worker learns of it by its
    signals.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._owner = os.getpid()
        os.set_inheritable(descriptor, False)  # a process the script starts must not hold the pipe open

    def send(self, message: Message) -> None:
        """Write one message; does nothing in a forked child of the worker."""
        if os.getpid() != self._owner:
            return
        line = memoryview(to_line(message))
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                pass


def to_line(message: Message) -> bytes:
    """One message as one line."""
    return json.dumps(encode(message, Message), allow_nan=False).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """The message in one line.

    Raises:
        PipetuneError: it is not one.
    """
    try:
        data = json.loads(line)
    except ValueError as error:
        raise PipetuneError(f"The worker said something that is not a message: {line[:80]!r}.") from error
    return typing.cast(Message, decode_union(typing.cast(typing.Any, Message), data))


def write_job(job: Job, path: Path) -> None:
    path.write_text(json.dumps(encode(job), allow_nan=False), encoding="utf-8")


def read_job(path: Path) -> Job:
    """The job in a file `write_job` wrote."""
    return decode(Job, json.loads(path.read_text(encoding="utf-8")))
