"""Training in lockstep: requests to scripts at their first training step, their links, and the team of the chief."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pipetune.core.codec import decode, decode_union, encode
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.session import PatchResult, Session

_CHUNK = 1 << 16  # bytes per `recv`, chosen by judgement: smaller chunks only mean more calls for a large message
_SEND_SECONDS = 60.0  # data fits into the socket buffer at once, unless the peer has stopped reading
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6))  # 15 s, then 6 probes 5 s apart: 45 s


class ConnectionLost(Exception):
    """The other end was closed or was silent for too long; the message says which."""


class JsonLinesConnection:
    """One end of a connection; for use by one thread at a time."""

    def __init__(self, connected: socket.socket) -> None:
        """Takes ownership of the socket, and keeps processes that are started later from inheriting it."""
        self._socket, self._rest = connected, b""
        connected.set_inheritable(False)
        self.peer_closed = False  # the other end is closed, and all its data was read

    def fileno(self) -> int:
        """Returns the descriptor of the socket, for `select`."""
        return self._socket.fileno()

    def send(self, data: object) -> None:
        """Sends one value, which JSON must be able to represent.

        Raises:
            ConnectionLost: the other end is closed.
        """
        try:
            self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendall(json.dumps(data, allow_nan=False).encode() + b"\n")
        except OSError as error:
            raise ConnectionLost("has closed the connection") from error

    def receive(self, limit_seconds: float, *, since: float | None = None, max_bytes: int | None = None) -> object:
        """Waits for the next value and returns it.

        Args:
            limit_seconds: longest wait.
            since: when it began, in `time.monotonic` seconds; None: now.
            max_bytes: maximum length of a line from an untrusted sender; None: no limit.

        Raises:
            ConnectionLost: the other end is closed, sends nothing within the limit, or sends too much.
            PipetuneError: the line is not JSON.
        """
        end = (time.monotonic() if since is None else since) + limit_seconds
        while b"\n" not in self._rest:
            if max_bytes is not None and len(self._rest) > max_bytes:
                raise ConnectionLost("sent a message that is too long")
            left = end - time.monotonic()
            if left <= 0:
                raise ConnectionLost(f"did not reply within {limit_seconds:.0f} s")
            try:
                self._socket.settimeout(left)
                self._take()
            except TimeoutError:
                continue
            except OSError as error:
                raise ConnectionLost("has closed the connection") from error
            if self.peer_closed:
                raise ConnectionLost("has closed the connection")
        return self._next()

    def receive_available(self) -> list[object]:
        """Returns the values that have arrived, without waiting; `peer_closed` then says whether more can follow.

        Raises:
            PipetuneError: a line is not JSON.
        """
        try:
            self._socket.setblocking(False)
            while not self.peer_closed:
                self._take()
        except BlockingIOError:
            pass
        except OSError:
            self.peer_closed = True
        return [self._next() for _ in range(self._rest.count(b"\n"))]

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        data = self._socket.recv(_CHUNK)
        self.peer_closed = not data
        self._rest += data

    def _next(self) -> object:
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise PipetuneError(f"A worker sent an invalid message: {line[:80]!r}.", exit_code=1) from error


def enable_keep_alive(connected: socket.socket) -> socket.socket:
    """Enables keep-alive on a TCP socket and returns it: an unreachable peer is then noticed within a minute."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # not every system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


@dataclass(frozen=True)
class RunToFirstStep:
    """Run the script up to its first training step."""


@dataclass(frozen=True)
class PreparePipeline:
    """Build the pipeline with this plan applied; without a plan, repeat a single cached batch of it.

    When a patch is verified, a plan without edits names one of the baselines.
    """

    plan: Plan | None = None


@dataclass(frozen=True)
class TakeSteps:
    """Take `steps` steps on the prepared pipeline and time them, after `warmup` steps that are not counted."""

    steps: int
    warmup: int


@dataclass(frozen=True)
class MeasureInput:
    """Consume the input alone: the original pipeline or, when a patch is verified, the prepared one."""

    seconds: float
    warmup_seconds: float


@dataclass(frozen=True)
class MeasureTraining:
    """Train for `steps` steps on the prepared pipeline, as in a trial; all state they change is restored."""

    steps: int


@dataclass(frozen=True)
class MeasurePass:
    """Take one pass over the validation data that the script has built; the reply's window holds its wall seconds."""

    elements: int  # of the pass; fewer if the data end before
    seconds: float  # after which the rest of the pass is extrapolated


@dataclass(frozen=True)
class WritePatch:
    """Write a patch of only these rewrites of the plan, given by their keys; if there are none, that for validation."""

    rewrites: tuple[str, ...]


@dataclass(frozen=True)
class Inform:
    """Do what was left undone until the patch was verified; the reply has the session with it."""

    plan: Plan | None  # that was proven; None if none was
    spent_seconds: float  # of the budget


@dataclass(frozen=True)
class NoMoreRequests:
    """No more requests follow; the process may exit."""


StepRequest = (
    RunToFirstStep
    | PreparePipeline
    | TakeSteps
    | MeasureInput
    | MeasureTraining
    | MeasurePass
    | WritePatch
    | Inform
    | NoMoreRequests
)


@dataclass(frozen=True)
class StepReply:
    """The reply to a request; the first one reports that the script has reached its first training step."""

    why: str = ""  # why the request could not be carried out
    window: Window | None = None  # if one was requested
    operators: tuple[str, ...] = ()  # first reply only: the operators of the pipeline found
    checked: str = ""  # first reply of a verification only: how the pipeline was compared, in words
    peak_rss_mib: float | None = None  # of the input alone in a window; None: not measured
    validation_why: str = ""  # first reply only: why the part of the patch for validation is not as planned
    validation_checked: str = ""  # first reply only: how the validation data was compared with its plan, in words
    failed: tuple[str, ...] = ()  # keys of the rewrites that `why` is about; empty: unknown which
    patch: PatchResult | None = None  # if one was requested
    session: Session | None = None  # the reply to `Inform`


class RequestLink(JsonLinesConnection):
    """A connection that carries requests one way and replies the other; sending and receiving raise as there."""

    def __init__(self, descriptor: int) -> None:
        """Takes ownership of the descriptor of a connected stream socket."""
        super().__init__(socket.socket(fileno=descriptor))

    def send_request(self, order: StepRequest) -> None:
        self.send(encode(order, StepRequest))

    def send_reply(self, answer: StepReply) -> None:
        self.send(encode(answer))

    def receive_request(self, limit_seconds: float) -> StepRequest:
        request: StepRequest = decode_union(StepRequest, self.receive(limit_seconds))
        return request

    def receive_reply(self, limit_seconds: float, *, since: float | None = None) -> StepReply:
        """Waits for the reply to the last request and returns it; the limit is as in `receive`."""
        return decode(StepReply, self.receive(limit_seconds, since=since))


FIRST_STEP_TIMEOUT_SECONDS = 600.0  # from the chief's first step to the last worker's: their data may be larger
BUILD_TIMEOUT_SECONDS = 200.0  # to build a pipeline and fill its caches; below the limit for a silent chief
REPLY_TIMEOUT_SECONDS = 60.0  # after the end of the chief's own window; for an input window, see `measure_input`
LOOP_END_TIMEOUT_SECONDS = 15.0  # after the chief's script has left its loop; the others leave after the same step
_END_SECONDS = 60.0  # until an aborted chief exits by itself, chosen by judgement: it is normally terminated before


class LockstepTeam:
    """The other workers in order; the first one has index 1."""

    def __init__(
        self, links: Sequence[RequestLink], *, on_lockstep_lost: Callable[[str, BaseException | None], None]
    ) -> None:
        """Takes the connections to the other workers, in order.

        Args:
            links: the connections.
            on_lockstep_lost: called with the reason why the workers can no longer continue in lockstep, and the
                exception of the user's code if there was one; it must lead to the termination of all workers.
        """
        self._links = tuple(links)
        self._tell = on_lockstep_lost

    def __len__(self) -> int:
        """Returns the number of workers, including the chief."""
        return len(self._links) + 1

    def wait_for_workers(self, operators: Sequence[str]) -> str:
        """Waits until every worker has reached its first training step.

        Returns:
            Why the workers cannot try a different pipeline together with the chief, whose pipeline has these operators;
            "" if they can.
        """
        found = ""
        for worker, answer in self._receive_all(FIRST_STEP_TIMEOUT_SECONDS):
            found = found or answer.why or _difference(worker, answer.operators, tuple(operators))
        return found

    def prepare(self, plan: Plan | None) -> None:
        """Makes every worker build its pipeline with the plan applied, or, without a plan, repeat one cached batch.

        Raises:
            RunFailed: a worker could not; no step was taken.
        """
        self._send_all(PreparePipeline(plan))
        replies = list(self._receive_all(BUILD_TIMEOUT_SECONDS))
        failed = [f"worker {worker}: {reply.why}" for worker, reply in replies if reply.why]
        if failed:
            raise RunFailed(failed[0])

    def train(self, *, steps: int, warmup: int) -> None:
        """Makes every worker take these steps now; the chief must take the same number."""
        self._send_all(TakeSteps(steps, warmup))

    def collect_windows(self, own: Window | None) -> list[Window]:
        """Returns the windows of the other workers for the steps that the chief took as well.

        Args:
            own: the chief's window; None if its script has left its loop, which the others must then have left too.
        """
        found = []
        for worker, answer in self._receive_all(LOOP_END_TIMEOUT_SECONDS if own is None else REPLY_TIMEOUT_SECONDS):
            window = answer.window
            if window is None:
                if own is not None:
                    self.abort(f"worker {worker} took fewer steps: {answer.why}")
                continue
            if own is None or window.steps != own.steps:
                self.abort(
                    f"worker {worker} took {window.steps} steps, but worker 0 took {own.steps if own else 'fewer'}"
                )
            found.append(window)
        return found

    def measure_input(self, worker: int, *, seconds: float, warmup_seconds: float) -> Window:
        """Returns a window of the input of one worker (from 1) alone, measured while the others wait.

        Raises:
            RunFailed: the worker could not run it.
        """
        with self._link(worker) as link:
            link.send_request(MeasureInput(seconds, warmup_seconds))
            answer = link.receive_reply(REPLY_TIMEOUT_SECONDS + 10 * seconds)
        if answer.window is None:
            raise RunFailed(answer.why)
        return answer.window

    def dismiss(self) -> None:
        """Informs all workers that no more requests follow."""
        for link in self._links:
            with contextlib.suppress(ConnectionLost):  # an exited worker needs no message
                link.send_request(NoMoreRequests())

    def abort(self, why: str, cause: BaseException | None = None) -> NoReturn:
        """Reports that the workers are out of step. Does not return: the receiver of the report terminates them."""
        self._tell(why, cause)
        time.sleep(_END_SECONDS)
        os._exit(1)

    @contextlib.contextmanager
    def _link(self, worker: int) -> Iterator[RequestLink]:
        """Yields the link to a worker; one that is lost aborts the run."""
        try:
            yield self._links[worker - 1]
        except ConnectionLost as broken:
            self.abort(f"worker {worker} {broken}")

    def _send_all(self, order: StepRequest) -> None:
        for worker in range(1, len(self)):
            with self._link(worker) as link:
                link.send_request(order)

    def _receive_all(self, limit_seconds: float) -> Iterator[tuple[int, StepReply]]:
        """Yields the reply of each worker; the limit is one for all of them together."""
        begun = time.monotonic()
        for worker in range(1, len(self)):
            with self._link(worker) as link:
                answer = link.receive_reply(limit_seconds, since=begun)
            yield worker, answer


def _difference(worker: int, remote: tuple[str, ...], ours: tuple[str, ...]) -> str:
    for number, (there, here) in enumerate(zip(remote, ours, strict=False), start=1):
        if there != here:
            return f"operator {number} is {there} on worker {worker}, but {here} on worker 0"
    if len(remote) != len(ours):
        return f"worker {worker} has {len(remote)} operators and worker 0 {len(ours)}"
    return ""
