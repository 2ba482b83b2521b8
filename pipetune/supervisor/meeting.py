"""The commands of a cluster that somebody else has started find each other: the first one waits, the others come.

The first leaves its address and a secret in its results folder, below which the others write theirs: where the machines
share that folder they find it, and nobody else may read it. Each side proves to the other that it knows the secret,
which is never sent: a file that an earlier run has left may name a port where somebody else listens by now, and what
the first command says is run. All come, or each goes on by itself.
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
    """The first line of every connection: who comes, and a number for the other side's proof."""

    worker: int
    job: int  # whose way between the workers this connection is; 0: the way between the commands
    nonce: str


@dataclass(frozen=True)
class Challenge:
    """The first command's answer: that it knows the secret, and a number for the same of who comes."""

    nonce: str
    proof: str


@dataclass(frozen=True)
class Proof:
    """That who comes knows the secret too."""

    proof: str


@dataclass(frozen=True)
class Welcome:
    """The answer to it: of the way between the commands once all have come or the time is up, of others at once."""

    together: bool


@dataclass(frozen=True)
class Invitation:
    """What stands in the file."""

    host: str
    port: int
    secret: str

    def connected(self, worker: int, *, job: int = 0) -> JsonLines:
        """A connection to the first command.

        Raises:
            OSError: nobody listens there, or it cannot be reached.
            LinkBroken: it is gone, does not let this one in, or is somebody else.
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
            if isinstance(error, PipetuneError | TypeError):  # no such lines; a proof that is not ASCII
                raise LinkBroken("is somebody else") from error
            raise
        return lines


class Door:
    """Where the first command lets the others in."""

    def __init__(self, listening: socket.socket, secret: str, *, workers: int, interrupts: Interrupts) -> None:
        self._listening, self._secret, self._workers, self._interrupts = listening, secret, workers, interrupts

    def admitted(self, *, job: int = 0, seconds: float) -> dict[int, JsonLines]:
        """A connection to each of the others; fewer where they do not come in time, or the user interrupts."""
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
            if job:  # from here on its worker speaks, to ours
                lines.send(encode(Welcome(True)))
        except (LinkBroken, PipetuneError, TypeError):
            return None
        return hello


@contextlib.contextmanager
def called(
    folder: Path, place: Place, interrupts: Interrupts, *, wait_seconds: float
) -> Iterator[tuple[Door, Mapping[int, JsonLines]] | None]:
    """The first command's side: all others, by their numbers, and where they come in again; None where not all came.

    Args:
        folder: of its results.
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
            with contextlib.suppress(LinkBroken):  # who is gone again is missed when there is work
                lines.send(encode(Welcome(together)))
        yield (door, others) if together else None


@contextlib.contextmanager
def joined(
    folder: Path, place: Place, interrupts: Interrupts, *, wait_seconds: float
) -> Iterator[tuple[Invitation, JsonLines] | None]:
    """Another command's side: the way to the first one, and how to come again; None where it goes on by itself.

    Args:
        folder: of the first one's results.
    """
    end, lines, invitation = time.monotonic() + wait_seconds, None, None
    while lines is None and time.monotonic() < end and not interrupts.count:
        invitation = _read(folder / FILE)
        with contextlib.suppress(OSError, LinkBroken):  # of an earlier run, or not yet there
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
    """Which only who knows the secret can say, about this number and who comes for what (HMAC, RFC 2104)."""
    return hmac.new(secret.encode(), f"{side} {nonce} {hello.worker} {hello.job}".encode(), "sha256").hexdigest()


def _listening(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:  # a name by which only the others know this machine
        return socket.create_server(("", 0))


def _read(path: Path) -> Invitation | None:
    try:
        return decode(Invitation, json.loads(path.read_text()))
    except (OSError, ValueError, PipetuneError):
        return None
