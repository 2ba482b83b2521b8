"""The agent that each task of an existing cluster runs, except the first: it runs the worker of its task.

The command of the first task drives the agents by messages, which are defined here.
"""

from __future__ import annotations

import contextlib
import selectors
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core.cluster import ClusterTask, LockstepRole
from pipetune.core.codec import decode_union, encode
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection
from pipetune.core.messages import Job, Message, Mode
from pipetune.supervisor import rendezvous
from pipetune.supervisor.handshake import ConnectionInfo
from pipetune.supervisor.local_cluster import LocalPeer
from pipetune.supervisor.monitoring import Interrupts
from pipetune.supervisor.process import worker
from pipetune.supervisor.request import AnalysisRequest, make_job
from pipetune.supervisor.user_files import UserFiles


@dataclass(frozen=True)
class StartWorker:
    """Order to start a worker. The agent replaces the script and all paths of the job by its own."""

    number: int  # of this start, from 1
    job: Job
    session: str = ""  # content of the file `Job.session`
    rendezvous: str = ""  # the server for Horovod's ranks in this start, "host:port"; "" if there are none


@dataclass(frozen=True)
class StopWorker:
    """Order to end the worker."""


@dataclass(frozen=True)
class ShutDown:
    """The analysis is over: the exit status of the coordinator and, if that is not 0, the reason."""

    exit_code: int
    why: str = ""


CoordinatorMessage = StartWorker | StopWorker | ShutDown


@dataclass(frozen=True)
class LogTail:
    """The end of the log of a lost worker. Sent before any other message about the loss."""

    text: str


@dataclass(frozen=True)
class ForwardedMessage:
    """A message of the worker, forwarded."""

    message: Message


@dataclass(frozen=True)
class WorkerExited:
    """The worker's process has exited."""

    status: int  # as `subprocess.Popen.returncode`


@dataclass(frozen=True)
class WorkerCleanedUp:
    """The worker and everything it started have ended."""


AgentMessage = LogTail | ForwardedMessage | WorkerExited | WorkerCleanedUp

_COORDINATOR_LOST = ShutDown(1, "The command of the first task has exited, or its machine is no longer reachable.")
_INTERRUPTED = ShutDown(130, "Interrupted; the connection to the first task was closed.")


@dataclass(frozen=True)
class RemoteAgent:
    """Runs the worker of this task for the coordinator, which is the command of the first task."""

    request: AnalysisRequest  # its script, arguments and folders are those of the worker
    place: ClusterTask  # of this task
    connection_info: ConnectionInfo  # where the worker's own connection goes
    coordinator: JsonLinesConnection
    interrupts: Interrupts
    private: Path  # a folder that nobody else reads
    files: UserFiles  # restores what the script changes on this machine

    def run(self) -> ShutDown:
        """Follows the coordinator's messages until it ends or the user interrupts; returns how it ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.coordinator, selectors.EVENT_READ)
            selector.register(self.interrupts.descriptor, selectors.EVENT_READ)
            waiting: list[object] = []
            while True:
                waiting += self.coordinator.receive_available()  # part of it may have been buffered with the handshake
                while waiting:
                    match decode_union(CoordinatorMessage, waiting.pop(0)):
                        case StartWorker() as begin:
                            ended = self._run_worker(begin, selector, waiting)
                            if ended is not None:
                                return ended
                        case ShutDown() as dismissed:
                            return dismissed
                if self.coordinator.peer_closed:
                    return _COORDINATOR_LOST
                selector.select()
                if self.interrupts.count:
                    return _INTERRUPTED

    def _run_worker(
        self, begin: StartWorker, selector: selectors.BaseSelector, waiting: list[object]
    ) -> ShutDown | None:
        """Runs one worker until the coordinator ends it.

        Returns:
            None; or the reason to end the agent too: the coordinator has exited, or the user interrupts.
        """
        try:
            link = self.connection_info.connect(self.place.worker_index, start=begin.number)
        except (OSError, ConnectionLost):
            return _COORDINATOR_LOST
        messages: list[Message] = []
        log, command = self.request.results.log, self.request.worker_command
        with contextlib.ExitStack() as stack:
            stack.callback(self._send, WorkerCleanedUp())
            undo = stack.enter_context(self.files.restored_on_exit())
            with contextlib.closing(link):
                job = replace(self._job(begin, link.fileno()), undo=undo)
                of_ranks = rendezvous.rendezvous_environment(begin.rendezvous)
                running = stack.enter_context(worker(job, log=log, command=command, environment=of_ranks))
            other = LocalPeer(self.place.worker_index, running, log=log, on_message=messages.append)
            for descriptor in other.descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
                stack.callback(_unregister, selector, descriptor)
            lost = disconnected = False
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self.interrupts.count:
                    return _INTERRUPTED
                if other.receive(ready, selector) and not lost:
                    lost = True
                    self._send(LogTail(other.conversation.log_tail))
                while messages:
                    self._send(ForwardedMessage(messages.pop(0)))
                if other.conversation.exit_status is not None and not disconnected:
                    disconnected = True
                    self._send(WorkerExited(other.conversation.exit_status))
                if self.coordinator.fileno() in ready:
                    waiting += self.coordinator.receive_available()
                    if waiting and isinstance(decode_union(CoordinatorMessage, waiting[0]), StopWorker):
                        del waiting[0]
                        return None
                    if self.coordinator.peer_closed:
                        return _COORDINATOR_LOST

    def _job(self, begin: StartWorker, link: int) -> Job:
        """The coordinator's job with the script, arguments and folders of this task."""
        own, session = make_job(self.request, Mode.ANALYZE), self.private / "session.json"
        if begin.session:
            session.write_text(begin.session)
        return replace(
            begin.job,
            settings=replace(begin.job.settings, out=own.settings.out),
            script=own.script,
            module=own.module,
            arguments=own.arguments,
            directory=own.directory,
            out=own.out,
            session=str(session) if begin.session else "",
            lockstep_role=LockstepRole(self.place.worker_index, self.place.workers, (link,), existing_cluster=True),
        )

    def _send(self, message: AgentMessage) -> None:
        with contextlib.suppress(ConnectionLost):  # the next read reports the closed connection
            self.coordinator.send(encode(message, AgentMessage))


def _unregister(selector: selectors.BaseSelector, descriptor: int) -> None:
    with contextlib.suppress(KeyError):
        selector.unregister(descriptor)
