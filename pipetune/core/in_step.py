"""Orders to a script that stands at its first training step, and what became of each.

The chief of several workers gives them to the others, so that all do the same number of steps: every decision is the
chief's (which plan, how many steps, whether a window is taken again). The command gives them to the scripts it verifies
a patch with: each of them measures when it is asked to. One order at a time, each answered. All of it goes over a
socket that a process inherits from the command that started it: whose other end is closed, its process is gone. Every
wait has a limit.
"""

from __future__ import annotations

import socket
import typing
from dataclasses import dataclass

from pipetune.core.codec import decode, decode_union, encode
from pipetune.core.edits import Plan
from pipetune.core.json_lines import JsonLines
from pipetune.core.measurement import Window
from pipetune.core.session import PatchResult


@dataclass(frozen=True)
class Begin:
    """Run the script up to its first training step."""


@dataclass(frozen=True)
class Prepare:
    """Build the pipeline under this plan; without one, a single batch of it, cached and repeated.

    Where a patch is verified, a plan without edits is one of the baselines, by its name.
    """

    plan: Plan | None = None


@dataclass(frozen=True)
class Train:
    """Take so many steps on what was prepared, and time them; the warm-up is counted in none of them."""

    steps: int
    warmup: int


@dataclass(frozen=True)
class MeasureInput:
    """Consume the input alone for so long: as written, or, where a patch is verified, as prepared."""

    seconds: float
    warmup_seconds: float


@dataclass(frozen=True)
class MeasureTraining:
    """Train so many steps as a trial does, on the pipeline as prepared; everything they change is put back."""

    steps: int


@dataclass(frozen=True)
class WritePatch:
    """Write the patch of these rewrites of the plan alone, by their keys."""

    rewrites: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """There is nothing more to do."""


Order = Begin | Prepare | Train | MeasureInput | MeasureTraining | WritePatch | Leave


@dataclass(frozen=True)
class Answer:
    """What became of an order; the first answer is that training has begun."""

    why: str = ""  # it could not be done: the reason
    window: Window | None = None  # where one was asked for
    operators: tuple[str, ...] = ()  # of the first answer: the pipeline it found, operator by operator
    checked: str = ""  # of the first answer, where a patch is verified: how its pipeline was compared, in words
    peak_rss_mib: float | None = None  # that the input alone took in a window; None: it was not looked at
    failed: tuple[str, ...] = ()  # the rewrites that `why` is about, by their keys; none: nobody knows which
    patch: PatchResult | None = None  # that was asked for


class Link:
    """One end of the way between the chief and another worker; one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor of a connected stream socket over."""
        self._lines = JsonLines(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._lines.fileno()

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
