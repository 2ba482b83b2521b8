"""Listens to one worker until it ends, is silent too long, or the user interrupts; to those that train with it too."""

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


def watch(
    running: WorkerProcess,
    *,
    limits: Limits,
    interrupts: Interrupts,
    on_message: Callable[[Message], None],
    phase: str = "",
    others: Sequence[Beside] = (),
) -> Conversation:
    """Everything the worker says, until it has ended; it is stopped where that is needed.

    Args:
        running: the worker.
        limits: how long it may be silent.
        interrupts: where Ctrl-C is noticed.
        on_message: called with each message, after the conversation took note of it.
        phase: which limit holds until the worker names its phase.
        others: that train in step with it; when one of them is lost, the worker is ended.
    """
    conversation = Conversation(phase=phase)
    lines = Lines(conversation, on_message)
    killed_before = _memory_kills()
    with selectors.DefaultSelector() as selector:
        theirs = (descriptor for other in others for descriptor in other.descriptors)
        for descriptor in (running.messages, running.ended, interrupts.descriptor, *theirs):
            selector.register(descriptor, selectors.EVENT_READ)
        deadline = time.monotonic() + limits.silence(phase)
        stopping = False
        while True:
            ready = {key.fd for key, _ in selector.select(_seconds_until(deadline))}
            if running.messages in ready:
                heard = conversation.heard
                if lines.read(running.messages) == 0:
                    selector.unregister(running.messages)
                if conversation.heard > heard and not stopping:
                    ending = conversation.finished is not None
                    deadline = time.monotonic() + (
                        limits.ending if ending else limits.silence(conversation.phase)
                    )
            if running.ended in ready:
                break
            lost = [other for other in others if other.hear(ready, selector)]
            if conversation.out_of_step and not lost:
                lost = _ended_meanwhile(others)
            if (lost or conversation.out_of_step) and not conversation.finished and not stopping:
                conversation.lost = lost[0].conversation if lost else None
                break
            if interrupts.descriptor in ready:
                interrupts.take()
                if running.attached:  # the terminal told it already, and what it does then is its own affair
                    continue
                conversation.ending = Ending.INTERRUPTED
                if stopping:  # asked twice: at once
                    break
                stopping = True
                deadline = time.monotonic() + limits.grace
                running.ask_to_stop()
            elif time.monotonic() >= deadline:
                if not stopping and not conversation.finished:
                    conversation.ending = Ending.HUNG
                break
        _close(running, lines)
    return _ended(conversation, running, limits=limits, out_of_memory=_memory_kills() > killed_before)


def _ended_meanwhile(others: Sequence[Beside]) -> list[Beside]:
    """Of the workers, one that ends now: a step fails where another is gone, and may be heard of first."""
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


def _close(running: WorkerProcess, lines: Lines) -> None:
    """End the worker, and hear what it said last."""
    running.kill()
    running.process.wait()
    while lines.read(running.messages) > 0:
        pass


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
    """How often the container's memory limit ended a process (cgroup v2); 0 where that is not told."""
    try:
        rows = dict(line.split() for line in _MEMORY_EVENTS.read_text().splitlines())
        return int(rows.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0
