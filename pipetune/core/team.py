"""The chief's side of several workers: gathers them, gives the orders, and collects what each answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from pipetune.core.edits import Plan
from pipetune.core.in_step import Answer, Leave, Link, MeasureInput, Order, Prepare, Train
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import RunFailed, Window

ARRIVAL_SECONDS = 600.0  # from the chief's arrival at its training to the last worker's: their data may be larger
BUILD_SECONDS = 200.0  # to build a pipeline and fill its caches; below what the command lets the chief be silent
ANSWER_SECONDS = 60.0  # after the chief's own window, or beyond the length of an input's
ENDED_SECONDS = 15.0  # after the chief's script has left its loop, as the others do behind the same step
_END_SECONDS = 60.0


class Team:
    """The other workers, from 1 on, in their order."""

    def __init__(
        self, links: Sequence[Link], *, out_of_step: Callable[[str, BaseException | None], None]
    ) -> None:
        """`out_of_step` is told why the workers cannot go on together, and what the user's code raised; who hears it
        ends them all.
        """
        self._links = tuple(links)
        self._tell = out_of_step

    def __len__(self) -> int:
        """Workers in all, the chief among them."""
        return len(self._links) + 1

    def gather(self, operators: Sequence[str], *, limit_seconds: float = ARRIVAL_SECONDS) -> str:
        """Waits until every worker stands where training begins.

        Args:
            operators: of the chief's pipeline, one by one.

        Returns:
            Why the workers cannot try another pipeline together; "" where they can.
        """
        end = time.monotonic() + limit_seconds
        found = ""
        for worker, answer in self._answers(lambda: max(0.0, end - time.monotonic())):
            found = found or answer.why or _difference(worker, answer.operators, tuple(operators))
        return found

    def prepare(self, plan: Plan | None) -> None:
        """Every worker builds its pipeline under the plan; a batch of it, cached and repeated, without one.

        Raises:
            RunFailed: one cannot; no step was taken.
        """
        self._order(Prepare(plan))
        failed = [f"worker {worker}: {answer.why}" for worker, answer in self._answers(BUILD_SECONDS) if answer.why]
        if failed:
            raise RunFailed(failed[0])

    def train(self, *, steps: int, warmup: int) -> None:
        """Every worker takes these steps now; the chief has to take as many."""
        self._order(Train(steps, warmup))

    def windows(self, own: Window | None) -> list[Window]:
        """What every worker measured in the steps that the chief has taken too.

        Args:
            own: the chief's; None where its script takes no more steps, and those of the others neither.
        """
        found = []
        for worker, answer in self._answers(ENDED_SECONDS if own is None else ANSWER_SECONDS):
            window = answer.window
            if window is None:
                if own is not None:
                    self.fall_out(f"worker {worker} took fewer steps: {answer.why}")
                continue
            if own is None or window.steps != own.steps:
                self.fall_out(f"worker {worker} took {window.steps} steps, worker 0 {own.steps if own else 'fewer'}")
            found.append(window)
        return found

    def measure_input(self, worker: int, *, seconds: float, warmup_seconds: float) -> Window:
        """The input of one worker, alone, while the others rest.

        Raises:
            RunFailed: it cannot be run there.
        """
        link = self._links[worker - 1]
        try:
            link.order(MeasureInput(seconds, warmup_seconds))
            answer = link.next_answer(ANSWER_SECONDS + 10 * seconds)
        except LinkBroken as broken:
            self.fall_out(f"worker {worker} {broken}")
        if answer.window is None:
            raise RunFailed(answer.why)
        return answer.window

    def leave(self) -> None:
        """Nothing more is asked of anybody."""
        for link in self._links:
            try:
                link.order(Leave())
            except LinkBroken:
                continue  # who is gone needs no leave

    def fall_out(self, why: str, cause: BaseException | None = None) -> NoReturn:
        """The workers no longer take the same steps: does not return, for whoever hears of it ends this process."""
        self._tell(why, cause)
        time.sleep(_END_SECONDS)
        os._exit(1)

    def _order(self, order: Order) -> None:
        for worker, link in enumerate(self._links, start=1):
            try:
                link.order(order)
            except LinkBroken as broken:
                self.fall_out(f"worker {worker} {broken}")

    def _answers(self, limit_seconds: float | Callable[[], float]) -> Iterator[tuple[int, Answer]]:
        for worker, link in enumerate(self._links, start=1):
            try:
                yield worker, link.next_answer(limit_seconds() if callable(limit_seconds) else limit_seconds)
            except LinkBroken as broken:
                self.fall_out(f"worker {worker} {broken}")


def _difference(worker: int, theirs: tuple[str, ...], ours: tuple[str, ...]) -> str:
    for number, (there, here) in enumerate(zip(theirs, ours, strict=False), start=1):
        if there != here:
            return f"operator {number} is {there} on worker {worker} and {here} on worker 0"
    if len(theirs) != len(ours):
        return f"worker {worker} has {len(theirs)} operators and worker 0 {len(ours)}"
    return ""
