"""What the chief of several workers and the others say to each other, so that all do the same number of steps.

Every decision is the chief's: which plan, how many steps, whether a window is taken again. The others do what they are
told, one order at a time, and answer each. All of it goes over a socket that each pair inherits from the command that
started them: whose other end is closed, its process is gone. Every wait has a limit.
"""

from __future__ import annotations

import json
import socket
import time
import typing
from dataclasses import dataclass

from pipetune.core.codec import decode, decode_union, encode
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Window

_CHUNK = 1 << 16
_SEND_SECONDS = 60.0  # for what fits into the socket at once, unless nobody reads there


@dataclass(frozen=True)
class Prepare:
    """Build the pipeline under this plan; without one, a single batch of it, cached and repeated."""

    plan: Plan | None = None


@dataclass(frozen=True)
class Train:
    """Take so many steps on what was prepared, and time them; the warm-up is counted in none of them."""

    steps: int
    warmup: int


@dataclass(frozen=True)
class MeasureInput:
    """Consume the own input alone, as written, for so long."""

    seconds: float
    warmup_seconds: float


@dataclass(frozen=True)
class Leave:
    """There is nothing more to do."""


Order = Prepare | Train | MeasureInput | Leave


@dataclass(frozen=True)
class Answer:
    """What became of an order; the first answer, to none, is that training has begun."""

    why: str = ""  # it could not be done: the reason
    window: Window | None = None  # of `Train` and `MeasureInput`
    operators: tuple[str, ...] = ()  # of the first answer: the pipeline it found, operator by operator


class LinkBroken(Exception):
    """The other end is gone, or silent for too long; the message says which."""


class Link:
    """One end of the way between the chief and another worker; one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor of a connected stream socket over."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)  # a process the script starts must not hold it open
        self._rest = b""

    def order(self, order: Order) -> None:
        """Say what to do.

        Raises:
            LinkBroken: nobody is there.
        """
        self._send(encode(order, Order))

    def answer(self, answer: Answer) -> None:
        """Say what became of it.

        Raises:
            LinkBroken: nobody is there.
        """
        self._send(encode(answer))

    def next_order(self, limit_seconds: float) -> Order:
        """What to do next.

        Raises:
            LinkBroken: the chief is gone, or says nothing for so long.
        """
        return typing.cast(Order, decode_union(typing.cast(typing.Any, Order), self._receive(limit_seconds)))

    def next_answer(self, limit_seconds: float) -> Answer:
        """What became of the last order.

        Raises:
            LinkBroken: the worker is gone, or does not answer for so long.
        """
        return decode(Answer, self._receive(limit_seconds))

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: object) -> None:
        try:
            self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendall(json.dumps(data, allow_nan=False).encode() + b"\n")
        except OSError as error:
            raise LinkBroken("is gone") from error

    def _receive(self, limit_seconds: float) -> object:
        end = time.monotonic() + limit_seconds
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0:
                raise LinkBroken(f"did not answer for {limit_seconds:.0f} s")
            try:
                self._socket.settimeout(left)
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
                continue
            except OSError as error:
                raise LinkBroken("is gone") from error
            if not data:
                raise LinkBroken("is gone")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise PipetuneError(f"A worker said something that is no message: {line[:80]!r}.", exit_code=1) from error
