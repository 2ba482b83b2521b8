"""Everything that is received from a worker, and how its process ended."""

from __future__ import annotations

import enum
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError, first_message_line
from pipetune.core.messages import (
    ActionSuppressed,
    AnalysisFailed,
    LockstepLost,
    Message,
    Progress,
    ScriptExited,
    ScriptFailed,
    SessionSaved,
    TrialEnded,
    TrialStarted,
    WorkerFinished,
    WorkerStarted,
    from_line,
)
from pipetune.core.session import Session

_CHUNK = 1 << 16  # bytes per read: the default capacity of a pipe on Linux, which one read can empty


class Ending(enum.StrEnum):
    """How a worker ended."""

    FINISHED = "finished"  # it sent `WorkerFinished`
    DIED = "died"  # without `WorkerFinished`
    HUNG = "hung"  # no message within the time limit; it was killed
    INTERRUPTED = "interrupted"  # by the user


@dataclass
class WorkerState:
    """Everything received from one worker, and how it ended."""

    session: Session | None = None
    script_failed: ScriptFailed | None = None
    script_exited: ScriptExited | None = None
    failure: AnalysisFailed | None = None
    finished: WorkerFinished | None = None
    suppressed: dict[str, int] = field(default_factory=dict)
    trial: Plan | None = None  # the plan being tried now
    phase: str = ""
    message_count: int = 0  # messages
    invalid_lines: int = 0  # lines that are not valid messages
    ending: Ending = Ending.DIED
    exit_status: int | None = None  # exit status of the process, as `subprocess.Popen.returncode`; None: it runs
    exit_reason: str = ""  # how it ended, in words; "" if it finished
    worker_index: int = 0  # index among the workers that train in lockstep
    task_name: str = ""  # display name of a process that is not one of these workers
    lockstep_failure: str = ""  # why the workers cannot continue in lockstep
    lost_peer: WorkerState | None = None  # the lost peer because of which this worker was ended
    log_tail: str = ""  # end of its log, if it was lost

    @property
    def name(self) -> str:
        """The display name of its process, where there are several."""
        return self.task_name or f"worker {self.worker_index}"

    @property
    def deciding_worker(self) -> WorkerState:
        """The state of the worker whose exit decided the outcome: a lost peer, else this one."""
        return self.lost_peer or self

    def update(self, message: Message) -> None:
        """Updates the state from one message."""
        self.message_count += 1
        match message:
            case SessionSaved(session=session):
                self.session = session
            case ScriptFailed():
                self.script_failed = message
            case ScriptExited():
                self.script_exited = message
            case AnalysisFailed():
                self.failure = message
            case WorkerFinished():
                self.finished = message
            case ActionSuppressed(what=what, count=count):
                self.suppressed[what] = max(count, self.suppressed.get(what, 0))
            case TrialStarted(plan=plan):
                self.trial = plan
            case TrialEnded():
                self.trial = None
            case WorkerStarted():
                self.phase = "capture"
            case Progress(phase=phase):
                self.phase = phase
            case LockstepLost(why=why, traceback=traceback):
                self.lockstep_failure = self.lockstep_failure or why
                if traceback and self.script_failed is None:
                    self.script_failed = ScriptFailed(traceback)

    @property
    def exit_code(self) -> int:
        """The command's exit status, as far as this worker determines it (README, "Exit codes")."""
        if self.ending is Ending.INTERRUPTED:
            return 130
        if self.finished:
            return self.finished.exit_code
        if self.script_failed:
            return self.script_failed.exit_code
        if self.failure:
            return self.failure.exit_code
        lost = self.lost_peer
        if lost and (lost.script_failed or lost.failure or self.session is None or not self.session.profiled_datasets):
            return lost.exit_code
        if not self.message_count or self.lockstep_failure:
            return 1  # the worker itself failed to start or to continue
        if self.session is None or not self.session.profiled_datasets:
            # Only the script has run so far: it exited, or was killed. Status 0 is not a failure.
            return 4 if self.exit_status == 0 else 3
        return 1


class MessageReader:
    """Splits the bytes of the pipe into messages; invalid lines are counted and ignored."""

    def __init__(self, conversation: WorkerState, on_message: Callable[[Message], None]) -> None:
        self._conversation, self._on_message, self._rest = conversation, on_message, b""

    def read(self, descriptor: int) -> int:
        """Reads what is available; every message that it completes updates the state and is passed on.

        Returns:
            The number of bytes, 0 at end of file, -1 if nothing can be read yet.
        """
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return -1
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                message = from_line(line)
            except PipetuneError:
                self._conversation.invalid_lines += 1
                continue
            self._conversation.update(message)
            self._on_message(message)
        return len(data)


def describe_exit(status: int, *, out_of_memory: bool = False) -> str:
    """Returns how a process ended, in words.

    Args:
        status: as `subprocess.Popen.returncode`.
        out_of_memory: the cgroup memory limit killed a process meanwhile.
    """
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    if out_of_memory:
        return f"was killed ({name}): the memory limit of the container was reached"
    if -status == signal.SIGKILL:
        return f"was killed ({name}), possibly because the system ran out of memory"
    return f"crashed ({name})"


_TRACEBACK = "Traceback (most recent call last):"
_CONVERTED = ": in user code:"
_IN_GRAPH = ": Graph execution error:"


def exception_line(traceback: str) -> str:
    """Returns the line of a traceback that names the exception: the first one after the frames.

    TensorFlow's messages continue for several lines after it, and may quote another traceback (whose header is followed
    by a blank line). What AutoGraph raises says "in user code:" there, and names the exception below frames of its own;
    what a graph raises says "Graph execution error:", and why below.
    """
    lines = traceback.strip().splitlines()
    starts = [number for number, line in enumerate(lines[:-1]) if line == _TRACEBACK and lines[number + 1]]
    behind = lines[starts[-1] + 1 :] if starts else lines
    named = next((line for line in behind if line and not line[0].isspace()), "")
    if named.endswith(_CONVERTED):
        below = behind[behind.index(named) + 1 :]
        return next((line[4:] for line in below if re.match(r" {4}(?!File )\S", line)), named)
    if named.endswith(_IN_GRAPH):
        why = first_message_line("\n".join(behind[behind.index(named) + 1 :]))
        return f"{named.removesuffix(_IN_GRAPH)}: {why}" if why else named
    return named
