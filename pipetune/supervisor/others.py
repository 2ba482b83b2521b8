"""The peers of the chief: monitored together with it; if one of them is lost, all workers have to be ended."""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pipetune.core.messages import Message
from pipetune.supervisor.conversation import Conversation, Lines, describe_exit
from pipetune.supervisor.process import WorkerProcess

_TAIL_BYTES, _TAIL_LINES = 8192, 6
_IN_PASSING = re.compile(
    r"[IW]\d{4} \d\d:\d\d:|\d{4}-\d\d-\d\d [\d:.]+ [IW] |WARNING: All log messages before absl::"
)  # absl messages of level INFO and WARNING, in both formats


class Beside(Protocol):
    """A worker other than the chief, on this or another machine."""

    conversation: Conversation

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait for."""

    def hear(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Process what arrived. Returns whether the worker is lost.

        Args:
            ready: readable descriptors.
            selector: holds `descriptors`; those at end of file are unregistered.
        """


class Other:
    """A worker on this machine, and everything received from it."""

    def __init__(
        self,
        worker: int,
        running: WorkerProcess,
        *,
        log: Path,
        task: str = "",
        on_message: Callable[[Message], None] = lambda _message: None,
    ) -> None:
        self.conversation = Conversation(worker=worker, task=task)
        self._running, self._log = running, log
        self._lines = Lines(self.conversation, on_message)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait for: its messages and its exit."""
        return self._running.messages, self._running.ended

    def hear(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Process its messages and its exit. Returns whether it is lost: exited, failed, or no longer in lockstep."""
        messages, ended = self._running.messages, self._running.ended
        if messages in ready and self._lines.read(messages) == 0:
            selector.unregister(messages)
        if ended in ready:
            selector.unregister(ended)
            while self._lines.read(messages) > 0:
                pass
            self.conversation.status = self._running.process.wait()
        why = why_lost(self.conversation)
        if why:
            self.conversation.why, self.conversation.last_lines = why, last_lines(self._log)
        return bool(why)


def why_lost(said: Conversation) -> str:
    """Why its peers cannot continue with a worker in this state; "" if they can."""
    if said.out_of_step:
        return f"fell out of step: {said.out_of_step}"
    if said.script_failed:  # its process is still running, but takes no steps
        return "could not go on: its script raised"
    if said.finished:
        return f"ended with exit status {said.finished.exit_code}" if said.finished.exit_code else ""
    return "" if said.status is None else describe_exit(said.status)


def last_lines(log: Path, *, count: int = _TAIL_LINES) -> str:
    """The end of a log, without information and warnings of TensorFlow's runtime; "" if there is nothing."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    said = [line for line in text.splitlines() if line.strip() and not _IN_PASSING.match(line)]
    return "\n".join(said[-count:])
