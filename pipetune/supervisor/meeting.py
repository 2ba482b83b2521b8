"""Handshake of the commands in an externally started cluster: the coordinator (first task) listens, agents connect.

The coordinator writes its address and a secret to its results folder, below which the agents write theirs: they find
the file if the machines share the folder, and nobody else may read it. Each side proves to the other that it knows the
secret, which is never sent: a file left by an earlier run may name a port where another program listens by now, and
agents execute what the coordinator sends. Either all tasks connect, or each runs by itself.
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

from pipetune.core.cluster import Place
from pipetune.core.codec import decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.json_lines import JsonLines, LinkBroken, keep_alive
from pipetune.supervisor.interrupts import Interrupts

FILE = ".meeting.json"
_LOOK_SECONDS, _HELLO_SECONDS, _HELLO_BYTES = 0.3, 5.0, 4096


@dataclass(frozen=True)
class Hello:
    """The first line of every connection: who connects, and a nonce for the coordinator's proof."""

    worker: int
    job: int  # number of the start whose workers this connection links; 0: it links the commands
    nonce: str


@dataclass(frozen=True)
class Challenge:
    """The coordinator's reply: its proof that it knows the secret, and a nonce for the agent's proof."""

    nonce: str
    proof: str


@dataclass(frozen=True)
class Proof:
    """The agent's proof that it knows the secret."""

    proof: str


@dataclass(frozen=True)
class Welcome:
    """The reply to `Proof`: immediate between workers; between commands once all have connected or the time is up."""

    together: bool


@dataclass(frozen=True)
class Invitation:
    """The connection details in the file."""

    host: str
    port: int
    secret: str

    def connected(self, worker: int, *, job: int = 0) -> JsonLines:
        """Connect to the coordinator and authenticate both sides.

        Args:
            worker: number of this task.
            job: as in `Hello`.

        Raises:
            OSError: nobody listens there, or the machine cannot be reached.
            LinkBroken: the coordinator has exited or refused the connection, or another program listens there.
        """
        lines = JsonLines(keep_alive(socket.create_connection((self.host, self.port), timeout=_HELLO_SECONDS)))
        try:
            hello = Hello(worker, job, secrets.token_hex(16))
            lines.send(encode(hello))
            challenge = decode(Challenge, lines.receive(_HELLO_SECONDS, most_bytes=_HELLO_BYTES))
            if not hmac.compare_digest(challenge.proof, _proof(self.secret, "first", hello.nonce, hello)):
                raise LinkBroken("does not know the secret")
            lines.send(encode(Proof(_proof(self.secret, "comes", challenge.nonce, hello))))
            if job and not decode(Welcome, lines.receive(_HELLO_SECONDS)).together:
                raise LinkBroken("is not awaited")
        except BaseException as error:
            lines.close()
            if isinstance(error, PipetuneError | TypeError):  # not this protocol, or a proof that is not ASCII
                raise LinkBroken("is somebody else") from error
            raise
        return lines


class Door:
    """The coordinator's server: accepts and authenticates the other tasks."""

    def __init__(self, listening: socket.socket, secret: str, *, workers: int, interrupts: Interrupts) -> None:
        self._listening, self._secret, self._workers, self._interrupts = listening, secret, workers, interrupts

    def admitted(self, *, job: int = 0, seconds: float) -> dict[int, JsonLines]:
        """Accept a connection from each other task; fewer if the time is up or the user interrupts.

        Args:
            job: as in `Hello`; connections for another one are refused.
            seconds: how long to wait for all of them.

        Returns:
            The connections by task number.
        """
        end, found = time.monotonic() + seconds, dict[int, JsonLines]()
        while len(found) < self._workers - 1 and not self._interrupts.count:
            left = end - time.monotonic()
            if left <= 0:
                break
            ready, _, _ = select.select([self._listening.fileno(), self._interrupts.descriptor], [], [], left)
            if self._listening.fileno() in ready:
                connected, _ = self._listening.accept()
                lines = JsonLines(keep_alive(connected))
                hello = self._hello(lines, job, set(range(1, self._workers)) - set(found))
                if hello is None:
                    lines.close()
                else:
                    found[hello.worker] = lines
        return found

    def _hello(self, lines: JsonLines, job: int, awaited: set[int]) -> Hello | None:
        try:
            hello = decode(Hello, lines.receive(_HELLO_SECONDS, most_bytes=_HELLO_BYTES))
            if hello.job != job or hello.worker not in awaited:
                return None
            challenge = Challenge(secrets.token_hex(16), _proof(self._secret, "first", hello.nonce, hello))
            lines.send(encode(challenge))
            found = decode(Proof, lines.receive(_HELLO_SECONDS, most_bytes=_HELLO_BYTES))
            if not hmac.compare_digest(found.proof, _proof(self._secret, "comes", challenge.nonce, hello)):
                return None
            if job:  # from here on, its worker and ours communicate
                lines.send(encode(Welcome(True)))
        except (LinkBroken, PipetuneError, TypeError):
            return None
        return hello


@contextlib.contextmanager
def called(
    folder: Path, place: Place, interrupts: Interrupts, *, wait_seconds: float
) -> Iterator[tuple[Door, Mapping[int, JsonLines]] | None]:
    """The coordinator's side: wait until all other tasks have connected.

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
            listening = stack.enter_context(_listening(place.host))
        except OSError:
            yield None
            return
        invitation = Invitation(place.host, listening.getsockname()[1], secrets.token_hex(16))
        write_text(folder / FILE, json.dumps(encode(invitation)), mode=0o600)
        stack.callback((folder / FILE).unlink, missing_ok=True)
        door = Door(listening, invitation.secret, workers=place.workers, interrupts=interrupts)
        others = door.admitted(seconds=wait_seconds)
        for lines in others.values():
            stack.callback(lines.close)
        together = len(others) == place.workers - 1
        for lines in others.values():
            with contextlib.suppress(LinkBroken):  # one that has exited again is noticed when it gets work
                lines.send(encode(Welcome(together)))
        yield (door, others) if together else None


@contextlib.contextmanager
def joined(
    folder: Path, place: Place, interrupts: Interrupts, *, wait_seconds: float
) -> Iterator[tuple[Invitation, JsonLines] | None]:
    """An agent's side: connect to the coordinator.

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
        with contextlib.suppress(OSError, LinkBroken):  # left by an earlier run, or not there yet
            lines = invitation.connected(place.number) if invitation is not None else None
        if lines is None:
            select.select([interrupts.descriptor], [], [], _LOOK_SECONDS)
    if lines is None or invitation is None:
        yield None
        return
    with contextlib.closing(lines):
        yield (invitation, lines) if _welcome(lines, interrupts, seconds=2 * wait_seconds) else None


def _welcome(lines: JsonLines, interrupts: Interrupts, *, seconds: float) -> bool:
    ready, _, _ = select.select([lines.fileno(), interrupts.descriptor], [], [], seconds)
    if lines.fileno() not in ready:
        return False
    try:
        return decode(Welcome, lines.receive(_HELLO_SECONDS)).together
    except (LinkBroken, PipetuneError):
        return False


def _proof(secret: str, side: str, nonce: str, hello: Hello) -> str:
    """Proves knowledge of the secret, for this nonce and the fields of `hello` (HMAC, RFC 2104)."""
    return hmac.new(secret.encode(), f"{side} {nonce} {hello.worker} {hello.job}".encode(), "sha256").hexdigest()


def _listening(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:  # a name that only the other machines can resolve
        return socket.create_server(("", 0))


def _read(path: Path) -> Invitation | None:
    try:
        return decode(Invitation, json.loads(path.read_text()))
    except (OSError, ValueError, PipetuneError):
        return None
