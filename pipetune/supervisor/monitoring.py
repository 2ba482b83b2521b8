"""Monitors a worker until it exits or hangs, one of its peers is lost, or the user interrupts."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from pipetune.core.messages import Message
from pipetune.supervisor.local_cluster import PeerWorker
from pipetune.supervisor.process import WorkerProcess
from pipetune.supervisor.worker_state import Ending, MessageReader, WorkerState, describe_exit

_PHASES = {
    "capture": 1800.0,  # the user's script builds its model and data, and may download first
    "profile": 300.0,
    "trials": 300.0,
    "confirmation": 300.0,
    "verification": 1800.0,  # runs the script again
    "windows": 300.0,  # applies to each window separately
}


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds: without a message, by the phase the worker last reported, and for ending."""

    start: float = 180.0  # until the first message: Python starts and imports TensorFlow
    phases: Mapping[str, float] = field(default_factory=lambda: dict(_PHASES))
    other_phases: float = 300.0
    shutdown: float = 60.0  # from `WorkerFinished` until the process must have exited
    grace: float = 10.0  # from the request to stop until the kill
    meeting: float = 60.0  # for the commands of an existing cluster to connect

    def for_phase(self, phase: str) -> float:
        """Returns the seconds without a message allowed in `phase`; "" means before the first message."""
        return self.phases.get(phase, self.other_phases) if phase else self.start

    @classmethod
    def unlimited(cls) -> Timeouts:
        """Returns timeouts that never expire, for a script that runs unsupervised."""
        return cls(start=math.inf, phases={}, other_phases=math.inf, shutdown=math.inf, grace=math.inf)

    @classmethod
    def for_analysis(cls, *, longest_seconds: float, script_seconds: float | None = None) -> Timeouts:
        """Returns the limits of an analysis.

        Args:
            longest_seconds: of the analysis; no single measurement takes longer.
            script_seconds: how long the script may run to its first training step; None for the default.
        """
        phases = {name: max(_PHASES[name], longest_seconds) for name in ("trials", "confirmation", "windows")}
        start = cls.start
        if script_seconds is not None:
            phases |= {"capture": script_seconds, "verification": script_seconds}
            start += script_seconds
        return cls(start=start, phases={**_PHASES, **phases})


FORCED_AFTER = 3  # from this many signals on, Ctrl-C raises `KeyboardInterrupt` again, in any state


class Interrupts:
    """A context manager that counts SIGINT, SIGTERM and SIGHUP and makes `descriptor` readable on each.

    Python delivers signals to the main thread only: in any other thread, nothing is ever counted.
    """

    def __init__(self) -> None:
        self.count, self.descriptor, self._write_end = 0, -1, -1
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` ignores it
                    self._previous[number] = signal.signal(number, self._count_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._write_end)

    def drain(self) -> None:
        """Drains `descriptor`, so that it becomes readable only at the next signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 1 << 10)

    def _count_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= FORCED_AFTER:
            raise KeyboardInterrupt
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"!")


_CAUSE_SECONDS = 2.0  # by judgement: less would blame the worker that fails second, more delays its report
_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


@dataclass
class WorkerMonitor:
    """Monitors one worker, from its start on.

    Create this right after starting the worker: kills for lack of memory are counted from here on.
    """

    running: WorkerProcess
    _: KW_ONLY
    limits: Timeouts  # how long it may send nothing
    interrupts: Interrupts  # Ctrl-C and other signals, as something to wait for
    on_message: Callable[[Message], None]  # called with each message, after `conversation` was updated from it
    phase: str = ""  # whose limit applies until the worker reports a phase
    peers: Sequence[PeerWorker] = ()  # that train in lockstep with it; if one of them is lost, the worker is ended

    def __post_init__(self) -> None:
        self.conversation = WorkerState(phase=self.phase)
        self._lines = MessageReader(self.conversation, self.on_message)
        self._killed_before = _out_of_memory_kills()
        self._pipe_open = True  # its message pipe is open
        self._silent_seconds = 0.0  # the limit that it exceeded

    def wait(self, answer: int | None = None, *, seconds: float | None = None) -> bool:
        """Processes messages until `answer` is readable; returns False if the worker has exited or must be ended.

        Call `end` after False, or to stop waiting.

        Args:
            answer: a descriptor; None to wait until the worker exits.
            seconds: how long it may send nothing; None for the limit of its current phase.
        """
        running, state = self.running, self.conversation
        with selectors.DefaultSelector() as selector:
            peer_descriptors = (descriptor for other in self.peers for descriptor in other.descriptors)
            own = (running.message_descriptor,) if self._pipe_open else ()
            awaited = (answer,) if answer is not None else ()
            for descriptor in (*own, running.exit_descriptor, self.interrupts.descriptor, *awaited, *peer_descriptors):
                selector.register(descriptor, selectors.EVENT_READ)
            limit = self._timeout() if seconds is None else seconds
            deadline = time.monotonic() + limit
            stopping = False
            while True:
                ready = {key.fd for key, _ in selector.select(_seconds_until(deadline))}
                if running.message_descriptor in ready:
                    message_count = state.message_count
                    if self._lines.read(running.message_descriptor) == 0:
                        self._pipe_open = False
                        selector.unregister(running.message_descriptor)
                    if state.message_count > message_count and not stopping:
                        limit = self._timeout()
                        deadline = time.monotonic() + limit
                if running.exit_descriptor in ready:
                    return False
                lost = [other for other in self.peers if other.receive(ready, selector)]
                if state.lockstep_failure and not lost:
                    lost = _peers_exiting_now(self.peers)
                if (lost or state.lockstep_failure) and not state.finished and not stopping:
                    state.lost_peer = lost[0].conversation if lost else None
                    return False
                if self.interrupts.descriptor in ready:
                    self.interrupts.drain()
                    if running.attached:  # the terminal sent it the signal too; how it reacts is up to it
                        continue
                    state.ending = Ending.INTERRUPTED
                    if stopping:  # the second interrupt: end it at once
                        return False
                    stopping = True
                    deadline = time.monotonic() + self.limits.grace
                    running.ask_to_stop()
                elif answer in ready and not stopping:
                    return True
                elif time.monotonic() >= deadline:
                    if not stopping and not state.finished:
                        state.ending, self._silent_seconds = Ending.HUNG, limit
                    return False

    def wait_and_end(self) -> WorkerState:
        """Waits until the worker has exited, ending it if needed, and returns its final state."""
        self.wait()
        return self.end()

    def end(self) -> WorkerState:
        """Ends the worker, unless it has exited, and returns its final state."""
        self.running.kill()
        status = self.running.process.wait()
        while self._lines.read(self.running.message_descriptor) > 0:
            pass
        state = self.conversation
        state.exit_status = status
        if state.ending is Ending.INTERRUPTED:
            state.exit_reason = "was interrupted"
        elif state.ending is Ending.HUNG:
            state.exit_reason = f"sent no message for {self._silent_seconds:.0f} s and was killed"
        elif state.lost_peer:
            state.exit_reason = f"lost {state.lost_peer.name}, which {state.lost_peer.exit_reason}"
        elif state.lockstep_failure:
            state.exit_reason = f"is no longer in lockstep with the other workers: {state.lockstep_failure}"
        elif state.finished:
            state.ending = Ending.FINISHED
        else:
            out_of_memory = _out_of_memory_kills() > self._killed_before
            state.exit_reason = describe_exit(status, out_of_memory=out_of_memory)
        return state

    def _timeout(self) -> float:
        return self.limits.shutdown if self.conversation.finished else self.limits.for_phase(self.conversation.phase)


def _peers_exiting_now(others: Sequence[PeerWorker]) -> list[PeerWorker]:
    """Peers that exit within `_CAUSE_SECONDS`: a failed step may be reported before the exit that caused it."""
    end = time.monotonic() + _CAUSE_SECONDS
    with selectors.DefaultSelector() as selector:
        for descriptor in (descriptor for other in others for descriptor in other.descriptors):
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            ready = {key.fd for key, _ in selector.select(_seconds_until(end))}
            lost = [other for other in others if other.receive(ready, selector)]
            exited = [other for other in lost if other.conversation.exit_status is not None]
            if exited:
                return exited
    return []


def _seconds_until(deadline: float) -> float | None:
    return None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())


def _out_of_memory_kills() -> int:
    """How many processes the cgroup memory limit has killed (cgroup v2); 0 if unknown."""
    try:
        rows = dict(line.split() for line in _MEMORY_EVENTS.read_text().splitlines())
        return int(rows.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0
