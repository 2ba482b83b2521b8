"""What the chief of several workers and the others say to each other, so that all do the same number of steps.

Every decision is the chief's: which plan, how many steps, whether a window is taken again. The others do what they are
told, one order at a time, and answer each. All of it goes over a socket that each pair inherits from the commands that
started them: whose other end is closed, its process is gone. Every wait has a limit.
"""

from __future__ import annotations

import socket
import typing
from dataclasses import dataclass

from pipetune.core.codec import decode, decode_union, encode
from pipetune.core.edits import Plan
from pipetune.core.json_lines import JsonLines
from pipetune.core.measurement import Window


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


class Link:
    """One end of the way between the chief and another worker; one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor of a connected stream socket over."""
        self._lines = JsonLines(socket.socket(fileno=descriptor))

    def order(self, order: Order) -> None:
        """Say what to do.

        Raises:
            LinkBroken: nobody is there.
        """
        self._lines.send(encode(order, Order))

    def answer(self, answer: Answer) -> None:
        """Say what became of it.

        Raises:
            LinkBroken: nobody is there.
        """
        self._lines.send(encode(answer))

    def next_order(self, limit_seconds: float) -> Order:
        """What to do next.

        Raises:
            LinkBroken: the chief is gone, or says nothing for so long.
        """
        return typing.cast(Order, decode_union(typing.cast(typing.Any, Order), self._lines.receive(limit_seconds)))

    def next_answer(self, limit_seconds: float) -> Answer:
        """What became of the last order.

        Raises:
            LinkBroken: the worker is gone, or does not answer for so long.
        """
        return decode(Answer, self._lines.receive(limit_seconds))

    def close(self) -> None:
        self._lines.close()
