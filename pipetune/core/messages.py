"""Messages between the supervisor and the worker.

The supervisor passes one `Job` to the worker, as a JSON file whose path is the worker's argument. The worker
sends messages, one JSON object per line, over an inherited pipe (`Job.message_descriptor`), so that nothing
the user's script prints can be mistaken for a message.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipetune.core.cluster import LockstepRole
from pipetune.core.codec import decode, decode_union, encode
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.session import Session
from pipetune.core.settings import Command, Settings


class Mode(enum.StrEnum):
    """What a worker is started to do."""

    ANALYZE = "analyze"  # capture, profile, try, confirm
    VERIFY = "verify"  # run the script, patched or original, to its first training step, and measure on request
    SERVE = "serve"  # run the script of a task that executes steps of another process; no measurements
    RUN = "run"  # run the script with a plan applied
    DOCTOR = "doctor"  # read what the machine has
    BENCH = "bench"  # measure the figures named by `Job.arguments`; files go to `Job.out`


@dataclass(frozen=True)
class Job:
    """One task for a worker. Every path is absolute."""

    mode: Mode
    message_descriptor: int
    settings: Settings = field(default_factory=Settings)
    script: str = ""  # the path; "" if `module` is given
    module: str = ""  # module name, as after `python -m`
    arguments: tuple[str, ...] = ()  # of the script
    directory: str = ""  # working directory of the script
    out: str = ""  # folder for results
    began: float = 0.0  # when the analysis began, in seconds since the epoch; 0: unknown
    undo: str = ""  # folder for undo journals of the script's files; "": none, so no training loop is measured
    session: str = ""  # path of session.json: with the patch to verify, or left by a worker that died
    resumed: str = ""  # "analyze": path of the session.json whose race goes on; "": a new analysis
    verified_separately: bool = True  # "analyze": the patch is verified afterwards, in separate processes
    patched: bool = False  # "verify": apply the patch
    check_elements: bool = False  # "verify": compare elements with those of the plan, and measure memory
    request_descriptor: int = -1  # "verify": descriptor of the socket for requests
    shares_gpu: bool = False  # "verify": TensorFlow leaves GPU memory to another process instead of taking all of it
    plan: str = ""  # "run": path of plan.json
    overlay: Mapping[str, str] = field(default_factory=dict)  # "verify": file -> source text to compile instead
    skipped_plans: tuple[str, ...] = ()  # keys of plans that crashed a worker before: recorded as failed, not tried
    skip_reason: str = ""  # how the worker that ran them ended: "killed by signal 9 (out of memory?)"
    attempt: int = 1  # 2 after a restart
    command: Command = field(default_factory=Command)  # for `Session.command`
    label: str = ""  # "bench": the figure, in reports of progress
    lockstep_role: LockstepRole | None = None  # among the processes that train in lockstep; None: trains alone


@dataclass(frozen=True)
class WorkerStarted:
    """The worker is running; `sentence` says what will happen to the user's script."""

    sentence: str


@dataclass(frozen=True)
class Progress:
    """The current activity. Also serves as a heartbeat."""

    phase: str  # "capture", "profile", "trials", "confirmation", "verification", "windows"
    activity: str
    best: str = ""  # the best plan so far, in words; not a result until it is confirmed
    left_seconds: float | None = None


@dataclass(frozen=True)
class TrialStarted:
    """This plan is being tried; if the worker dies before `TrialEnded`, it is blamed."""

    plan: Plan


@dataclass(frozen=True)
class TrialEnded:
    """The trial of the plan with this key has ended."""

    plan: str


@dataclass(frozen=True)
class VerdictKnown:
    """Whether the input slows training down; sent before any trial."""

    sentence: str
    verdict: str = ""


@dataclass(frozen=True)
class SessionSaved:
    """Everything measured so far; the supervisor writes it to session.json."""

    session: Session


@dataclass(frozen=True)
class ActionSuppressed:
    """An action of the user's script was suppressed, `count` times so far."""

    what: str  # "saves_suppressed", "summaries_suppressed": as in `Session.side_effects`
    count: int


@dataclass(frozen=True)
class ScriptFailed:
    """The user's script raised; the traceback does not contain pipetune's frames."""

    traceback: str
    exit_code: int = 3


@dataclass(frozen=True)
class ScriptExited:
    """The user's script exited (`sys.exit`)."""

    code: int
    detail: str = ""


@dataclass(frozen=True)
class AnalysisFailed:
    """The analysis cannot continue; an error message for the user."""

    message: str
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class LockstepLost:
    """Workers that train in lockstep no longer take the same steps: all of them must be terminated."""

    why: str
    traceback: str = ""  # of the user's code, if a step or its input raised


@dataclass(frozen=True)
class LogLine:
    """One line for the user, above the progress display."""

    text: str


@dataclass(frozen=True)
class FigureMeasured:
    """One figure of `pipetune bench` with this name, and the machine that it was measured on."""

    name: str
    figure: Mapping[str, object]  # the encoded `Results.figure_type` of its suite
    machine: Machine | None


@dataclass(frozen=True)
class WorkerFinished:
    """The last message of a worker."""

    exit_code: int


Message = (
    WorkerStarted
    | Progress
    | TrialStarted
    | TrialEnded
    | VerdictKnown
    | SessionSaved
    | ActionSuppressed
    | ScriptFailed
    | ScriptExited
    | AnalysisFailed
    | LockstepLost
    | LogLine
    | FigureMeasured
    | WorkerFinished
)


class MessageWriter:
    """The worker's end of the pipe; any thread may send.

    A supervisor that has exited is not an error here: the user's script continues, and the worker learns of it
    through signals.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._owner = os.getpid()
        os.set_inheritable(descriptor, False)  # a process the script starts must not hold the pipe open

    def send(self, message: Message) -> None:
        """Writes one message; does nothing in a forked child of the worker."""
        if os.getpid() != self._owner:
            return
        line = memoryview(to_line(message))
        with self._lock, contextlib.suppress(OSError):
            while line:
                line = line[os.write(self._descriptor, line) :]


def to_line(message: Message) -> bytes:
    """Returns a message encoded as one line of JSON."""
    return json.dumps(encode(message, Message), allow_nan=False).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """Returns the message in a line.

    Raises:
        PipetuneError: the line is not a message.
    """
    try:
        data = json.loads(line)
    except ValueError as error:
        raise PipetuneError(f"The worker sent an invalid message: {line[:80]!r}.") from error
    message: Message = decode_union(Message, data)
    return message


def write_job(job: Job, path: Path) -> None:
    path.write_text(json.dumps(encode(job), allow_nan=False), encoding="utf-8")


def read_job(path: Path) -> Job:
    return decode(Job, json.loads(path.read_text(encoding="utf-8")))
