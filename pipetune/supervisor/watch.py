"""Monitors a worker until it exits or hangs, one of its peers is lost, or the user interrupts."""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pipetune.core.messages import Message
from pipetune.supervisor.conversation import Conversation, Ending, Lines, describe_exit
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.limits import Limits
from pipetune.supervisor.others import Beside
from pipetune.supervisor.process import WorkerProcess

_CAUSE_SECONDS = 2.0
_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


class Watch:
    """Monitors one worker, from its start on."""

    def __init__(
        self,
        running: WorkerProcess,
        *,
        limits: Limits,
        interrupts: Interrupts,
        on_message: Callable[[Message], None],
        phase: str = "",
        others: Sequence[Beside] = (),
    ) -> None:
        """Create this right after starting the worker: kills for lack of memory are counted from here on.

        Args:
            running: the worker.
            limits: how long it may send nothing.
            interrupts: Ctrl-C and other signals, as something to wait for.
            on_message: called with each message, after `conversation` was updated from it.
            phase: whose limit applies until the worker reports a phase.
            others: the peers that train in lockstep with it; if one of them is lost, the worker is ended.
        """
        self.conversation = Conversation(phase=phase)
        self._running, self._limits, self._interrupts, self._others = running, limits, interrupts, others
        self._lines = Lines(self.conversation, on_message)
        self._killed_before = _memory_kills()
        self._speaks = True  # its message pipe is open

    def wait(self, answer: int | None = None, *, seconds: float | None = None) -> bool:
        """Process messages until `answer` is readable; False once the worker has exited or must be ended.

        Call `end` after False, or to stop waiting.

        Args:
            answer: a descriptor; None to wait until the worker exits.
            seconds: how long it may send nothing; None for the limit of its current phase.
        """
        running, said = self._running, self.conversation
        with selectors.DefaultSelector() as selector:
            theirs = (descriptor for other in self._others for descriptor in other.descriptors)
            own = (running.messages,) if self._speaks else ()
            wanted = (answer,) if answer is not None else ()
            for descriptor in (*own, running.ended, self._interrupts.descriptor, *wanted, *theirs):
                selector.register(descriptor, selectors.EVENT_READ)
            deadline = time.monotonic() + (self._silence() if seconds is None else seconds)
            stopping = False
            while True:
                ready = {key.fd for key, _ in selector.select(_seconds_until(deadline))}
                if running.messages in ready:
                    heard = said.heard
                    if self._lines.read(running.messages) == 0:
                        self._speaks = False
                        selector.unregister(running.messages)
                    if said.heard > heard and not stopping:
                        deadline = time.monotonic() + self._silence()
                if running.ended in ready:
                    return False
                lost = [other for other in self._others if other.hear(ready, selector)]
                if said.out_of_step and not lost:
                    lost = _ended_meanwhile(self._others)
                if (lost or said.out_of_step) and not said.finished and not stopping:
                    said.lost = lost[0].conversation if lost else None
                    return False
                if self._interrupts.descriptor in ready:
                    self._interrupts.take()
                    if running.attached:  # the terminal sent it the signal too; how it reacts is up to it
                        continue
                    said.ending = Ending.INTERRUPTED
                    if stopping:  # the second interrupt: end it at once
                        return False
                    stopping = True
                    deadline = time.monotonic() + self._limits.grace
                    running.ask_to_stop()
                elif answer in ready and not stopping:
                    return True
                elif time.monotonic() >= deadline:
                    if not stopping and not said.finished:
                        said.ending = Ending.HUNG
                    return False

    def end(self) -> Conversation:
        """End the worker, unless it has exited. Returns its final state."""
        self._running.kill()
        self._running.process.wait()
        while self._lines.read(self._running.messages) > 0:
            pass
        out_of_memory = _memory_kills() > self._killed_before
        return _ended(self.conversation, self._running, limits=self._limits, out_of_memory=out_of_memory)

    def _silence(self) -> float:
        return self._limits.ending if self.conversation.finished else self._limits.silence(self.conversation.phase)


def watch(
    running: WorkerProcess,
    *,
    limits: Limits,
    interrupts: Interrupts,
    on_message: Callable[[Message], None],
    phase: str = "",
    others: Sequence[Beside] = (),
) -> Conversation:
    """Monitor the worker until it has exited, ending it if needed. The arguments are those of `Watch`."""
    watched = Watch(
        running, limits=limits, interrupts=interrupts, on_message=on_message, phase=phase, others=others
    )
    watched.wait()
    return watched.end()


def _ended_meanwhile(others: Sequence[Beside]) -> list[Beside]:
    """Peers that exit within `_CAUSE_SECONDS`: a failed step may be reported before the exit that caused it."""
    end = time.monotonic() + _CAUSE_SECONDS
    with selectors.DefaultSelector() as selector:
        for descriptor in (descriptor for other in others for descriptor in other.descriptors):
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            ready = {key.fd for key, _ in selector.select(_seconds_until(end))}
            lost = [other for other in others if other.hear(ready, selector)]
            gone = [other for other in lost if other.conversation.status is not None]
            if gone:
                return gone
    return []


def _seconds_until(deadline: float) -> float | None:
    return None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())


def _ended(
    conversation: Conversation, running: WorkerProcess, *, limits: Limits, out_of_memory: bool
) -> Conversation:
    conversation.status = running.process.returncode
    if conversation.ending is Ending.INTERRUPTED:
        conversation.why = "was interrupted"
    elif conversation.ending is Ending.HUNG:
        seconds = limits.silence(conversation.phase)
        conversation.why = f"gave no sign of life for {seconds:.0f} s and was ended"
    elif conversation.lost:
        conversation.why = f"lost {conversation.lost.name}, which {conversation.lost.why}"
    elif conversation.out_of_step:
        conversation.why = f"fell out of step with the other workers: {conversation.out_of_step}"
    elif conversation.finished:
        conversation.ending = Ending.FINISHED
    else:
        conversation.why = describe_exit(running.process.returncode, out_of_memory=out_of_memory)
    return conversation


def _memory_kills() -> int:
    """How many processes the cgroup memory limit has killed (cgroup v2); 0 if unknown."""
    try:
        rows = dict(line.split() for line in _MEMORY_EVENTS.read_text().splitlines())
        return int(rows.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0
