"""Handshake of the commands in an externally started cluster: the coordinator (first task) listens, agents connect.

The coordinator writes its address and a secret to its results folder, below which the agents write theirs: they find
the file if the machines share the folder, and nobody else may read it. Each side proves to the other that it knows the
secret, which is never sent: a file left by an earlier run may name a port where another program listens now, and agents
execute what the coordinator sends. Either all tasks connect, or each runs by itself.

`multiprocessing.connection` has no time limit: a stranger that connects and sends nothing would block the coordinator.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import select
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.cluster import ClusterTask
from pipetune.core.codec import decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection, enable_keep_alive
from pipetune.supervisor.monitoring import Interrupts

FILE = ".meeting.json"
_POLL_SECONDS, _HELLO_SECONDS, _HELLO_BYTES = 0.3, 5.0, 4096


@dataclass(frozen=True)
class Hello:
    """The first line of every connection: who connects, and a nonce for the coordinator's proof."""

    task: int
    start: int  # number of the start whose workers this connection links; 0: it links the commands
    nonce: str


@dataclass(frozen=True)
class Challenge:
    """The coordinator's reply: its proof that it knows the secret, and a nonce for the agent's proof."""

    nonce: str
    proof: str


@dataclass(frozen=True)
class AgentProof:
    """The agent's proof that it knows the secret."""

    proof: str


@dataclass(frozen=True)
class Welcome:
    """The reply to `AgentProof`: immediate for workers; for commands once all have connected or the time is up."""

    all_connected: bool


@dataclass(frozen=True)
class ConnectionInfo:
    """The connection details in the file."""

    host: str
    port: int
    secret: str

    def connect(self, worker: int, *, start: int = 0) -> JsonLinesConnection:
        """Connects to the coordinator, authenticates both sides and returns the connection.

        Args:
            worker: number of this task.
            start: as in `Hello`.

        Raises:
            OSError: nobody listens there, or the machine cannot be reached.
            ConnectionLost: the coordinator has exited or refused the connection, or another program listens there.
        """
        connected = socket.create_connection((self.host, self.port), timeout=_HELLO_SECONDS)
        lines = JsonLinesConnection(enable_keep_alive(connected))
        try:
            hello = Hello(worker, start, secrets.token_hex(16))
            lines.send(encode(hello))
            challenge = decode(Challenge, lines.receive(_HELLO_SECONDS, max_bytes=_HELLO_BYTES))
            if not hmac.compare_digest(challenge.proof, _proof(self.secret, "first", hello.nonce, hello)):
                raise ConnectionLost("does not know the secret")
            lines.send(encode(AgentProof(_proof(self.secret, "comes", challenge.nonce, hello))))
            if start and not decode(Welcome, lines.receive(_HELLO_SECONDS)).all_connected:
                raise ConnectionLost("is not awaited")
        except BaseException as error:
            lines.close()
            if isinstance(error, PipetuneError | TypeError):  # not this protocol, or a proof that is not ASCII
                raise ConnectionLost("is somebody else") from error
            raise
        return lines


class HandshakeServer:
    """The coordinator's server: accepts and authenticates the other tasks."""

    def __init__(self, listening: socket.socket, secret: str, *, workers: int, interrupts: Interrupts) -> None:
        self._listening, self._secret, self._workers, self._interrupts = listening, secret, workers, interrupts

    def accept(self, *, start: int = 0, seconds: float) -> dict[int, JsonLinesConnection]:
        """Accepts a connection from each other task; fewer if the time is up or the user interrupts.

        Args:
            start: as in `Hello`; connections for another one are refused.
            seconds: how long to wait for all of them.

        Returns:
            The connections by task number.
        """
        end, found = time.monotonic() + seconds, dict[int, JsonLinesConnection]()
        while len(found) < self._workers - 1 and not self._interrupts.count:
            left = end - time.monotonic()
            if left <= 0:
                break
            ready, _, _ = select.select([self._listening.fileno(), self._interrupts.descriptor], [], [], left)
            if self._listening.fileno() in ready:
                connected, _ = self._listening.accept()
                lines = JsonLinesConnection(enable_keep_alive(connected))
                hello = self._hello(lines, start, set(range(1, self._workers)) - set(found))
                if hello is None:
                    lines.close()
                else:
                    found[hello.task] = lines
        return found

    def _hello(self, lines: JsonLinesConnection, job: int, awaited: set[int]) -> Hello | None:
        try:
            hello = decode(Hello, lines.receive(_HELLO_SECONDS, max_bytes=_HELLO_BYTES))
            if hello.start != job or hello.task not in awaited:
                return None
            challenge = Challenge(secrets.token_hex(16), _proof(self._secret, "first", hello.nonce, hello))
            lines.send(encode(challenge))
            found = decode(AgentProof, lines.receive(_HELLO_SECONDS, max_bytes=_HELLO_BYTES))
            if not hmac.compare_digest(found.proof, _proof(self._secret, "comes", challenge.nonce, hello)):
                return None
            if job:  # from here on, its worker and ours communicate
                lines.send(encode(Welcome(True)))
        except (ConnectionLost, PipetuneError, TypeError):
            return None
        return hello


@contextlib.contextmanager
def coordinator_handshake(
    folder: Path, place: ClusterTask, interrupts: Interrupts, *, wait_seconds: float
) -> Iterator[tuple[HandshakeServer, Mapping[int, JsonLinesConnection]] | None]:
    """The coordinator's side: waits until all other tasks have connected.

    Args:
        folder: the coordinator's results folder.
        place: the coordinator's position in the cluster.
        interrupts: an interrupt ends the wait.
        wait_seconds: how long to wait.

    Yields:
        The server, for later connections, and the connection to each other task by its number; None if any is missing.
    """
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(_listening(place.coordinator_host))
        except OSError:
            yield None
            return
        invitation = ConnectionInfo(place.coordinator_host, listening.getsockname()[1], secrets.token_hex(16))
        write_text(folder / FILE, json.dumps(encode(invitation)), mode=0o600)
        stack.callback((folder / FILE).unlink, missing_ok=True)
        door = HandshakeServer(listening, invitation.secret, workers=place.workers, interrupts=interrupts)
        others = door.accept(seconds=wait_seconds)
        for lines in others.values():
            stack.callback(lines.close)
        together = len(others) == place.workers - 1
        for lines in others.values():
            with contextlib.suppress(ConnectionLost):  # one that has exited again is noticed when it gets work
                lines.send(encode(Welcome(together)))
        yield (door, others) if together else None


@contextlib.contextmanager
def agent_handshake(
    folder: Path, place: ClusterTask, interrupts: Interrupts, *, wait_seconds: float
) -> Iterator[tuple[ConnectionInfo, JsonLinesConnection] | None]:
    """An agent's side: connects to the coordinator.

    Args:
        folder: the coordinator's results folder.
        place: the agent's position in the cluster.
        interrupts: an interrupt ends the wait.
        wait_seconds: how long to try to connect; the wait for the other tasks may take twice as long.

    Yields:
        How to connect again, and the connection; None if this task has to run by itself.
    """
    end, lines, invitation = time.monotonic() + wait_seconds, None, None
    while lines is None and time.monotonic() < end and not interrupts.count:
        invitation = _read(folder / FILE)
        with contextlib.suppress(OSError, ConnectionLost):  # left by an earlier run, or not there yet
            lines = invitation.connect(place.worker_index) if invitation is not None else None
        if lines is None:
            select.select([interrupts.descriptor], [], [], _POLL_SECONDS)
    if lines is None or invitation is None:
        yield None
        return
    with contextlib.closing(lines):
        yield (invitation, lines) if _welcome(lines, interrupts, seconds=2 * wait_seconds) else None


def _welcome(lines: JsonLinesConnection, interrupts: Interrupts, *, seconds: float) -> bool:
    ready, _, _ = select.select([lines.fileno(), interrupts.descriptor], [], [], seconds)
    if lines.fileno() not in ready:
        return False
    try:
        return decode(Welcome, lines.receive(_HELLO_SECONDS)).all_connected
    except (ConnectionLost, PipetuneError):
        return False


def _proof(secret: str, side: str, nonce: str, hello: Hello) -> str:
    """Proves knowledge of the secret, for this nonce and the fields of `hello` (HMAC, RFC 2104)."""
    return hmac.new(secret.encode(), f"{side} {nonce} {hello.task} {hello.start}".encode(), "sha256").hexdigest()


def _listening(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:  # a name that only the other machines can resolve
        return socket.create_server(("", 0))


def _read(path: Path) -> ConnectionInfo | None:
    try:
        return decode(ConnectionInfo, json.loads(path.read_text()))
    except (OSError, ValueError, PipetuneError):
        return None
