"""Requests to a script that waits at its first training step, and the replies.

The chief of several workers sends them to the other workers, so that all take the same number of steps: every decision
is the chief's (which plan, how many steps, whether a window is repeated). The supervisor sends them to the scripts that
it runs to verify a patch: each of them measures on request. There is one request at a time, and each gets a reply. All
messages go over a socket that a process inherits from the command that started it: if the other end is closed, its
process has exited. Every wait has a time limit.
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
    """Build the pipeline with this plan applied; without a plan, repeat a single cached batch of it.

    When a patch is verified, a plan without edits names one of the baselines.
    """

    plan: Plan | None = None


@dataclass(frozen=True)
class Train:
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
class WritePatch:
    """Write a patch of only these rewrites of the plan, given by their keys."""

    rewrites: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """No more requests follow; the process may exit."""


Order = Begin | Prepare | Train | MeasureInput | MeasureTraining | WritePatch | Leave


@dataclass(frozen=True)
class Answer:
    """The reply to a request; the first one reports that the script has reached its first training step."""

    why: str = ""  # why the request could not be carried out
    window: Window | None = None  # if one was requested
    operators: tuple[str, ...] = ()  # first reply only: the operators of the pipeline found
    checked: str = ""  # first reply of a verification only: how the pipeline was compared, in words
    peak_rss_mib: float | None = None  # of the input alone in a window; None: not measured
    failed: tuple[str, ...] = ()  # keys of the rewrites that `why` is about; empty: unknown which
    patch: PatchResult | None = None  # if one was requested


class Link:
    """One end of the connection that carries requests and replies; for use by one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        """Takes ownership of the descriptor of a connected stream socket."""
        self._lines = JsonLines(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._lines.fileno()

    def order(self, order: Order) -> None:
        """Sends a request.

        Raises:
            LinkBroken: the other end is closed.
        """
        self._lines.send(encode(order, Order))

    def answer(self, answer: Answer) -> None:
        """Sends the reply to a request.

        Raises:
            LinkBroken: the other end is closed.
        """
        self._lines.send(encode(answer))

    def next_order(self, limit_seconds: float) -> Order:
        """Waits for the next request and returns it.

        Raises:
            LinkBroken: the sender has exited, or sends nothing within the limit.
        """
        return typing.cast(Order, decode_union(typing.cast(typing.Any, Order), self._lines.receive(limit_seconds)))

    def next_answer(self, limit_seconds: float) -> Answer:
        """Waits for the reply to the last request and returns it.

        Raises:
            LinkBroken: the worker has exited, or does not reply within the limit.
        """
        return decode(Answer, self._lines.receive(limit_seconds))

    def close(self) -> None:
        self._lines.close()
