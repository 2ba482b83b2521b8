"""The state of a worker as known from its messages, and how it ended."""

from __future__ import annotations

import enum
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from pipetune.core.errors import PipetuneError
from pipetune.core.messages import (
    Failed,
    Finished,
    Message,
    OutOfStep,
    Progress,
    ScriptExited,
    ScriptFailed,
    SessionSaved,
    Started,
    Suppressed,
    TrialEnded,
    TrialStarted,
    VerdictKnown,
    from_line,
)
from pipetune.core.session import Session

_CHUNK = 1 << 16


class Ending(enum.StrEnum):
    """How a worker ended."""

    FINISHED = "finished"  # it sent `Finished`
    DIED = "died"  # without `Finished`
    HUNG = "hung"  # no message within the time limit; it was killed
    INTERRUPTED = "interrupted"  # by the user


@dataclass
class Conversation:
    """Everything received from one worker, and how it ended."""

    session: Session | None = None
    verdict: VerdictKnown | None = None
    script_failed: ScriptFailed | None = None
    script_exited: ScriptExited | None = None
    failed: Failed | None = None
    finished: Finished | None = None
    suppressed: dict[str, int] = field(default_factory=dict)
    trial: TrialStarted | None = None  # the plan being tried now
    phase: str = ""
    heard: int = 0  # messages
    garbled: int = 0  # lines that are not valid messages
    ending: Ending = Ending.DIED
    status: int | None = None  # exit status of the process, as `subprocess.Popen.returncode`; None: it runs
    why: str = ""  # how it ended, in words; "" if it finished
    worker: int = 0  # index among the workers that train in lockstep
    task: str = ""  # display name of a process that is not one of these workers
    out_of_step: str = ""  # why the workers cannot continue in lockstep
    lost: Conversation | None = None  # the lost peer because of which this worker was ended
    last_lines: str = ""  # end of its log, if it was lost

    @property
    def name(self) -> str:
        """The display name of its process, where there are several."""
        return self.task or f"worker {self.worker}"

    @property
    def cause(self) -> Conversation:
        """The state of the worker whose exit decided the outcome: a lost peer, else this one."""
        return self.lost or self

    def hear(self, message: Message) -> None:
        """Update the state from one message."""
        self.heard += 1
        match message:
            case SessionSaved(session=session):
                self.session = session
            case VerdictKnown():
                self.verdict = message
            case ScriptFailed():
                self.script_failed = message
            case ScriptExited():
                self.script_exited = message
            case Failed():
                self.failed = message
            case Finished():
                self.finished = message
            case Suppressed(what=what, count=count):
                self.suppressed[what] = max(count, self.suppressed.get(what, 0))
            case TrialStarted():
                self.trial = message
            case TrialEnded():
                self.trial = None
            case Started():
                self.phase = "capture"
            case Progress(phase=phase):
                self.phase = phase
            case OutOfStep(why=why, traceback=traceback):
                self.out_of_step = self.out_of_step or why
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
        if self.failed:
            return self.failed.exit_code
        lost = self.lost
        if lost and (lost.script_failed or lost.failed or self.session is None or not self.session.studied):
            return lost.exit_code
        if not self.heard or self.out_of_step:
            return 1  # the worker itself failed to start or to continue
        if self.session is None or not self.session.studied:
            # Only the script has run so far: it exited, or was killed. Status 0 is not a failure.
            return 4 if self.status == 0 else 3
        return 1


class Lines:
    """Splits the bytes of the pipe into messages; invalid lines are counted and ignored."""

    def __init__(self, conversation: Conversation, on_message: Callable[[Message], None]) -> None:
        self._conversation = conversation
        self._on_message = on_message
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                message = from_line(line)
            except PipetuneError:
                self._conversation.garbled += 1
                continue
            self._conversation.hear(message)
            self._on_message(message)

    def read(self, descriptor: int) -> int:
        """Read what is available. Returns the number of bytes; 0 at end of file, -1 if there is nothing to read yet."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return -1
        self.feed(data)
        return len(data)


def describe_exit(status: int, *, out_of_memory: bool = False) -> str:
    """How a process ended, in words.

    Args:
        status: as `subprocess.Popen.returncode`.
        out_of_memory: the cgroup memory limit killed a process meanwhile.
    """
    if status >= 0:
        return f"ended its process with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    if out_of_memory:
        return f"was killed ({name}): the memory the container grants was used up"
    if -status == signal.SIGKILL:
        return f"was killed ({name}), as a system out of memory does"
    return f"crashed ({name})"
