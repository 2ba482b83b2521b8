"""Scripts in processes of their own, each held at its first training step, where it measures on request."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipetune.core.edits import Plan
from pipetune.core.lockstep import (
    ConnectionLost,
    Inform,
    NoMoreRequests,
    PreparePipeline,
    RequestLink,
    RunToFirstStep,
    StepReply,
    StepRequest,
    WritePatch,
)
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.messages import Job, Message
from pipetune.core.session import PatchResult, Session
from pipetune.supervisor.local_cluster import RunningWorkers
from pipetune.supervisor.monitoring import Interrupts, Timeouts, WorkerMonitor
from pipetune.supervisor.worker_state import Ending, WorkerState, exception_line

ORIGINAL = Plan("defaults")
_ANSWER_SECONDS = 60.0  # for the rest of an answer that has begun to arrive


class ScriptEnded(Exception):
    """A script ended without an answer; `conversation` holds how its process ended."""

    def __init__(self, script: str, conversation: WorkerState) -> None:
        super().__init__(f"{script} {_describe_ending(conversation)}")
        self.conversation = conversation

    @property
    def interrupted_worker(self) -> WorkerState | None:
        """The worker, if the user interrupted it."""
        return self.conversation if self.conversation.ending is Ending.INTERRUPTED else None


class HeldScript:
    """A script held at its first training step, or about to run to it.

    Every order raises `ScriptEnded` where the process ended, or had to be ended.
    """

    def __init__(self, name: str, link: RequestLink, watch: WorkerMonitor, *, end_seconds: float) -> None:
        self.name, self._link, self._watched, self._end_seconds = name, link, watch, end_seconds
        self._prepared, self._over = ORIGINAL.name, False

    def run_to_first_step(self) -> StepReply:
        """Runs the script to its first training step and returns what it reports there."""
        return self._request(RunToFirstStep())

    def measure(self, plan: str, order: StepRequest) -> Window:
        """Returns a measured window of the pipeline that the script has built, or of a baseline of it.

        Args:
            plan: name of the baseline; "defaults" for the pipeline that the script has built.
            order: `MeasureInput` or `MeasureTraining`.

        Raises:
            RunFailed: no window could be measured.
        """
        if plan != self._prepared:
            self._request(PreparePipeline(Plan(plan)))
            self._prepared = plan
        return self.window(order)

    def window(self, order: StepRequest) -> Window:
        """Returns a measured window of what is prepared, or for `MeasurePass` one pass over the validation data.

        Raises:
            RunFailed: it could not be measured.
        """
        answer = self._request(order)
        if answer.window is None:
            raise RunFailed(answer.why or "no window was measured")
        return answer.window

    def write_patch(self, rewrites: tuple[str, ...]) -> PatchResult | None:
        """Returns a patch of only these rewrites, given by key; without any, that for validation alone.

        None if it cannot be written.
        """
        return self._request(WritePatch(rewrites)).patch

    def inform(self, plan: Plan | None, *, spent_seconds: float) -> Session | None:
        """Returns the session with what only informs, and the distributed form; None if that could not be measured.

        `plan` is the plan that was proven, if any; `spent_seconds` are of the budget.
        """
        return self._request(Inform(plan, spent_seconds)).session

    def release(self) -> None:
        """Lets the process exit, so that it releases its resources.

        Raises:
            ScriptEnded: the user interrupted meanwhile.
        """
        if self._over:
            return
        with contextlib.suppress(ConnectionLost):
            self._link.send_request(NoMoreRequests())
        self._watched.wait(seconds=self._end_seconds)
        stopped = ScriptEnded(self.name, self._watched.end())
        if stopped.interrupted_worker is not None:
            raise stopped

    def _request(self, order: StepRequest) -> StepReply:
        try:
            self._link.send_request(order)
            if self._watched.wait(self._link.fileno()):
                return self._link.receive_reply(_ANSWER_SECONDS)
        except ConnectionLost:  # it is exiting: wait for that
            self._watched.wait(seconds=self._end_seconds)
        self._over = True
        raise ScriptEnded(self.name, self._watched.end())


@dataclass(frozen=True)
class ScriptStarter:
    """Starts the processes of a script."""

    job: Job  # of mode VERIFY, for the original script
    processes: Callable[[Job], contextlib.AbstractContextManager[RunningWorkers]]
    files: Callable[[], contextlib.AbstractContextManager[str]]  # yields the folder for undo journals; restores on exit
    limits: Timeouts
    interrupts: Interrupts
    on_message: Callable[[Message], None]

    @contextlib.contextmanager
    def held_script(self, *, patched: bool, compare: bool = False, undo: str = "") -> Iterator[HeldScript]:
        """Yields a started process that waits for the order to run the script; on exit, it has ended.

        Args:
            patched: run the patched source.
            compare: compare the elements with those of the plan, and measure the memory.
            undo: folder yielded by `files`, at whose exit the files changed by the script's loop are restored.
        """
        near, far = socket.socketpair()
        with contextlib.ExitStack() as stack, far:
            link = RequestLink(near.detach())
            stack.callback(link.close)
            job = replace(self.job, patched=patched, check_elements=compare, request_descriptor=far.fileno(), undo=undo)
            cluster = stack.enter_context(self.processes(job))
            far.close()  # now only the worker holds it
            watched = WorkerMonitor(
                cluster.chief,
                limits=self.limits,
                interrupts=self.interrupts,
                on_message=self.on_message,
                phase="verification",
                peers=cluster.peers,
            )
            name = "the patched script" if patched else "the original script"
            held = HeldScript(name, link, watched, end_seconds=self.limits.shutdown)
            yield held
            held.release()


def _describe_ending(conversation: WorkerState) -> str:
    cause = conversation.deciding_worker
    if cause.script_failed:
        return f"raised an exception: {exception_line(cause.script_failed.traceback)}"
    if cause.failure:
        return f"did not reach a training step: {cause.failure.message}"
    return conversation.exit_reason or "ended without a result"
