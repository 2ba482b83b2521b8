"""What a worker has said so far, and how it ended."""

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

    FINISHED = "finished"  # it said so
    DIED = "died"  # without a last word
    HUNG = "hung"  # it was silent too long, and was killed
    INTERRUPTED = "interrupted"  # the user wanted it to stop


@dataclass
class Conversation:
    """Everything heard from one worker."""

    session: Session | None = None
    verdict: VerdictKnown | None = None
    script_failed: ScriptFailed | None = None
    script_exited: ScriptExited | None = None
    failed: Failed | None = None
    finished: Finished | None = None
    suppressed: dict[str, int] = field(default_factory=dict)
    trial: TrialStarted | None = None  # the plan being tried now
    phase: str = ""
    heard: int = 0
    garbled: int = 0  # lines that were no message
    ending: Ending = Ending.DIED
    status: int | None = None  # of the process, as `subprocess.Popen.returncode`
    why: str = ""  # how it ended, in words, where it did not finish
    worker: int = 0  # which of several that train in step
    task: str = ""  # what to call it, where it is none of them
    out_of_step: str = ""  # why they cannot go on together
    lost: Conversation | None = None  # with another worker, for whose end this one was ended too
    last_lines: str = ""  # of its log, where it was lost

    @property
    def name(self) -> str:
        """What to call its process among several."""
        return self.task or f"worker {self.worker}"

    @property
    def cause(self) -> Conversation:
        """With the worker whose end it all ended with."""
        return self.lost or self

    def hear(self, message: Message) -> None:
        """Take note of one message."""
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
        """The command's exit status as far as this worker decides it (README, "Exit codes")."""
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
            return 1  # the worker itself could not start, or go on
        if self.session is None or not self.session.studied:
            # Only the script itself ran so far: it ended its process, or was ended. Status 0 is no failure.
            return 4 if self.status == 0 else 3
        return 1


class Lines:
    """Cuts what comes out of the pipe into messages; what is none is counted, never obeyed."""

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
        """Take what is there: how many bytes; 0 at the end, -1 when there is nothing now."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return -1
        self.feed(data)
        return len(data)


def describe_exit(status: int, *, out_of_memory: bool = False) -> str:
    """How a process ended, in words, from `subprocess.Popen.returncode`."""
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
