"""The tasks of an existing cluster: driven from the first one; each other task runs an agent, which runs the worker of
its task.

The command of the first task drives the agents by messages, which are defined here.
"""

from __future__ import annotations

import contextlib
import http.server
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.core.cluster import RENDEZVOUS_HOST, RENDEZVOUS_PORT, ClusterTask, LockstepRole
from pipetune.core.codec import decode_union, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection
from pipetune.core.messages import AnalysisFailed, Job, Message, Mode
from pipetune.core.session import Session
from pipetune.core.settings import Command
from pipetune.core.version import VERSION
from pipetune.supervisor import handshake
from pipetune.supervisor.handshake import ConnectionInfo, HandshakeServer
from pipetune.supervisor.local_cluster import LocalPeer, RunningWorkers, loss_reason
from pipetune.supervisor.monitoring import Interrupts
from pipetune.supervisor.process import worker
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult, make_job
from pipetune.supervisor.user_files import UserFiles
from pipetune.supervisor.worker_state import WorkerState

if TYPE_CHECKING:
    from pipetune.report.console import Progress as Screen


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
                of_ranks = rendezvous_environment(begin.rendezvous)
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
            where = stack.enter_context(rendezvous_server(host)) if host else ""
            stack.callback(self._stop_workers)
            self._broadcast(StartWorker(self.starts, replace(job, session="", request_descriptor=-1), session, where))
            links = self._accept_workers(stack)
            descriptors = tuple(one.fileno() for _, one in sorted(links.items()))
            job = replace(job, lockstep_role=LockstepRole(0, len(self.agents) + 1, descriptors, existing_cluster=True))
            of_ranks = rendezvous_environment(where)
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


_REQUEST_SECONDS = 30.0  # without data, by judgement: less cuts off a slow rank, more keeps threads of dead ones
_MOST_BYTES = 1 << 20  # of a value; ranks send a few hundred
_SHUTDOWN_POLL_SECONDS = 0.05  # by judgement: `shutdown` takes up to this long; shorter costs idle CPU time


@contextlib.contextmanager
def rendezvous_server(host: str) -> Iterator[str]:
    """Runs a Gloo rendezvous server for the ranks of Horovod, and yields its "host:port"; on exit, its values are gone.

    The server of `horovodrun` is meant for a single start; this one is new for every start of the ranks. A rank
    that exits before the rendezvous is complete leaves its address there; the next rank with that number is then
    looked up at the stale address, and all ranks hang. The protocol is that of Horovod 0.28.1
    (`horovod/runner/http/http_server.py`): PUT and GET of a value at /SCOPE/KEY, 404 while there is none, and
    DELETE by a rank that has found all others. DELETE does nothing here: the values end with the server.

    Args:
        host: an address of this machine.

    Raises:
        PipetuneError: the server cannot listen on `host`.
    """
    try:
        server = _Server((host, 0), _RequestHandler)
    except OSError as error:
        raise PipetuneError(
            f"Horovod ranks cannot be started: cannot listen on {host}: {error.strerror or error}.",
            hint=(
                "This is the address of this machine in the network that horovodrun uses; see its option "
                "--network-interfaces."
            ),
            exit_code=1,
        ) from error
    with server:
        serving = threading.Thread(target=server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), daemon=True)
        serving.start()
        try:
            yield f"{host}:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def rendezvous_environment(address: str) -> Mapping[str, str]:
    """Returns the environment variables that name the server at "host:port" to a rank; none if `address` is ""."""
    host, _, port = address.rpartition(":")
    return {RENDEZVOUS_HOST: host, RENDEZVOUS_PORT: port} if host else {}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128  # ranks poll for the peers that are not there yet

    def __init__(self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        self.values: dict[str, bytes] = {}
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a rank killed during a request: its supervisor reports that."""


class _RequestHandler(http.server.BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            return self._answer(400)
        value = self.rfile.read(int(length))
        if len(value) < int(length):  # cut off: the rank has exited
            return None
        self.server.values[self.path] = value
        return self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(200)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: the terminal belongs to the command."""

    def _answer(self, status: int, value: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)
