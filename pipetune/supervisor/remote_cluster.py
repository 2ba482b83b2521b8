"""The tasks of an existing cluster, driven from the first one."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core.cluster import ClusterTask, LockstepRole
from pipetune.core.codec import decode_union, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection
from pipetune.core.messages import AnalysisFailed, Job
from pipetune.core.session import Session
from pipetune.core.settings import Command
from pipetune.core.version import VERSION
from pipetune.supervisor import handshake, rendezvous
from pipetune.supervisor.handshake import ConnectionInfo, HandshakeServer
from pipetune.supervisor.local_cluster import RunningWorkers, loss_reason
from pipetune.supervisor.monitoring import Interrupts
from pipetune.supervisor.process import worker
from pipetune.supervisor.remote_agent import (
    AgentMessage,
    CoordinatorMessage,
    ForwardedMessage,
    LogTail,
    RemoteAgent,
    ShutDown,
    StartWorker,
    StopWorker,
    WorkerCleanedUp,
    WorkerExited,
)
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult
from pipetune.supervisor.user_files import UserFiles
from pipetune.supervisor.worker_state import WorkerState

if TYPE_CHECKING:
    from pipetune.report.progress import Progress as Screen

_CONNECT_SECONDS = 60.0  # for the workers' own connections, once the agents have been ordered to start them
_EXIT_SECONDS = 60.0  # for workers to exit: the next start reuses their addresses
_NOT_CONNECTED = (
    "Not all tasks of the cluster connected within {:.0f} s: each measures only its own input. To try plans in "
    "lockstep, start all tasks at the same time, with --out in a folder that their machines share, and make the first "
    "task reachable from the others."
)
_RANK_ALONE = (
    "Rank {0.index} of {0.workers} measures only its own input, and no plan is tried in training steps. That requires "
    "ranks that can be restarted together: a fixed number of ranks started by horovodrun with Gloo (--gloo)."
)


class RemoteWorker:
    """A worker on another machine; its agent there forwards its messages."""

    def __init__(self, worker: int, lines: JsonLinesConnection) -> None:
        self.conversation = WorkerState(worker_index=worker)
        self._lines = lines

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait for."""
        return (self._lines.fileno(),)

    def receive(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Processes what its agent sent and returns whether the worker is lost or its agent disconnected."""
        state = self.conversation
        if self._lines.fileno() in ready:
            for data in self._lines.receive_available():
                match decode_union(AgentMessage, data):
                    case LogTail(text=text):
                        state.log_tail = text
                    case ForwardedMessage(message=message):
                        state.update(message)
                    case WorkerExited(status=status):
                        state.exit_status = status
            if self._lines.peer_closed:
                selector.unregister(self._lines.fileno())
                state.exit_status = state.exit_status if state.exit_status is not None else 1
                state.exit_reason = "is no longer reachable: its command has exited, or its machine is down"
                return True
        state.exit_reason = state.exit_reason or loss_reason(state)
        return bool(state.exit_reason)


@dataclass
class RemoteCluster:
    """The other tasks of the cluster, each reached over a connection to its agent."""

    server: HandshakeServer  # accepts the connections of the workers
    agents: Mapping[int, JsonLinesConnection]  # the connection to each agent, by the number of its task
    rendezvous_host: str = ""  # this machine's address for the rendezvous of Horovod's ranks; "" if there are none
    starts: int = 0  # of workers, so far

    @contextlib.contextmanager
    def workers(self, job: Job, *, log: Path, command: Sequence[str]) -> Iterator[RunningWorkers]:
        """Starts a worker on every task and yields them; on exit, all of them have ended.

        Args:
            job: what each worker does.
            log: file for what the script prints in the worker on this machine.
            command: starts the worker on this machine; the path of the job file is appended.

        Raises:
            PipetuneError: the local worker cannot be started, or the rendezvous server cannot listen.
        """
        self.starts += 1
        session = Path(job.session).read_text() if job.session else ""
        host = self.rendezvous_host
        with contextlib.ExitStack() as stack:
            where = stack.enter_context(rendezvous.rendezvous_server(host)) if host else ""
            stack.callback(self._stop_workers)
            self._broadcast(StartWorker(self.starts, replace(job, session="", request_descriptor=-1), session, where))
            links = self._accept_workers(stack)
            descriptors = tuple(one.fileno() for _, one in sorted(links.items()))
            job = replace(job, lockstep_role=LockstepRole(0, len(self.agents) + 1, descriptors, existing_cluster=True))
            of_ranks = rendezvous.rendezvous_environment(where)
            chief = stack.enter_context(worker(job, log=log, command=command, environment=of_ranks))
            others = []
            for number, link in sorted(links.items()):
                others.append(RemoteWorker(number, link if link.peer_closed else self.agents[number]))
                if not link.peer_closed:
                    link.close()  # now only the worker holds it: its peer sees the link close when it exits
            yield RunningWorkers(chief, tuple(others))

    @property
    def all_connected(self) -> bool:
        """Whether all agents are still connected, so that every task can start another worker."""
        return not any(lines.peer_closed for lines in self.agents.values())

    def shut_down(self, exit_code: int, why: str) -> None:
        """Tells all agents that the analysis is over, with the coordinator's exit status and the reason if not 0."""
        self._broadcast(ShutDown(exit_code, why))

    def _accept_workers(self, stack: contextlib.ExitStack) -> dict[int, JsonLinesConnection]:
        """A connection to the worker of each task; an already closed one for each that did not connect."""
        links = self.server.accept(start=self.starts, seconds=_CONNECT_SECONDS if self.all_connected else 0.0)
        for number in set(self.agents) - set(links):
            near, far = socket.socketpair()
            far.close()
            links[number] = JsonLinesConnection(near)
            links[number].receive_available()
        for link in links.values():
            stack.callback(link.close)
        return links

    def _broadcast(self, message: CoordinatorMessage) -> None:
        for lines in self.agents.values():
            with contextlib.suppress(ConnectionLost):  # a disconnected agent is reported as lost at the next receive
                lines.send(encode(message, CoordinatorMessage))

    def _stop_workers(self) -> None:
        self._broadcast(StopWorker())
        end = time.monotonic() + _EXIT_SECONDS
        for lines in self.agents.values():
            with contextlib.suppress(ConnectionLost, PipetuneError):
                message: AgentMessage | None = None
                while not isinstance(message, WorkerCleanedUp):
                    message = decode_union(AgentMessage, lines.receive(max(0.0, end - time.monotonic())))


def analyze(
    request: AnalysisRequest,
    screen: Screen,
    interrupts: Interrupts,
    private: Path,
    *,
    run: Callable[[RemoteCluster | None, tuple[str, ...]], AnalysisResult],
) -> AnalysisResult:
    """Analyzes together with the other tasks if all have connected, else this task alone; returns the result.

    Args:
        request: what to analyze; its `place` is set.
        screen: shows the progress.
        interrupts: ends the wait for the others, and an agent.
        private: a folder that nobody else reads.
        run: runs the analysis as the coordinator of these tasks, or alone if None, with these notes for the report.
    """
    place, root, wait_seconds = request.place, request.results.root, request.limits.meeting
    assert place is not None
    if not place.can_train_in_lockstep:
        if not place.is_horovod_rank:
            return run(None, ())
        why = _RANK_ALONE.format(place)
        screen.warn(why)
        return run(None, (why,))
    screen.update("cluster", f"{place}: waiting for the other tasks to connect")
    if place.is_coordinator:
        with handshake.coordinator_handshake(root, place, interrupts, wait_seconds=wait_seconds) as others:
            if others is not None:
                tasks = RemoteCluster(*others, rendezvous_host=place.coordinator_host if place.has_rendezvous else "")
                analysis = run(tasks, ())
                tasks.shut_down(analysis.exit_code, analysis.session.status_detail if analysis.exit_code else "")
                return analysis
    else:
        with handshake.agent_handshake(root.parent, place, interrupts, wait_seconds=wait_seconds) as first:
            if first is not None:
                return _run_agent(request, place, screen, interrupts, private, first)
    not_met = _NOT_CONNECTED.format(wait_seconds)
    screen.warn(not_met)
    return run(None, (not_met,))


def _run_agent(
    request: AnalysisRequest,
    place: ClusterTask,
    screen: Screen,
    interrupts: Interrupts,
    private: Path,
    coordinator: tuple[ConnectionInfo, JsonLinesConnection],
) -> AnalysisResult:
    """Runs as the agent of a task other than the first; it has no results of its own."""
    where = request.results.root.parent
    screen.update("following", f"{place} is controlled by the first task; the results will be in {where}")
    request.results.publish()  # only the log
    follower = RemoteAgent(
        request=request,
        place=place,
        connection_info=coordinator[0],
        coordinator=coordinator[1],
        interrupts=interrupts,
        private=private,
        files=UserFiles(screen, where),
    )
    over = follower.run()
    if over.exit_code:
        hint = f"Partial results are in {where}; the output of the script on this machine is in {request.results.log}."
        session = Session(VERSION, Command(), status="failed", status_detail=over.why)
        failure = AnalysisFailed(over.why, hint, over.exit_code)
        return AnalysisResult(session, over.exit_code, request.results, failure=failure)
    detail = f"Done, controlled by the first task; the results are in {where}."
    screen.say(detail)
    return AnalysisResult(Session(VERSION, Command(), status="done", status_detail=detail), 0, request.results)
