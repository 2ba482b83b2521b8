"""The chief's side of lockstep training: waits for the other workers, sends requests, and collects the replies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from pipetune.core.edits import Plan
from pipetune.core.in_step import Answer, Leave, Link, MeasureInput, Order, Prepare, Train
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import RunFailed, Window

ARRIVAL_SECONDS = 600.0  # from the chief's first step to the last worker's: their data may be larger
BUILD_SECONDS = 200.0  # to build a pipeline and fill its caches; below the supervisor's limit for a silent chief
ANSWER_SECONDS = 60.0  # after the end of the chief's own window; for an input window, see `measure_input`
ENDED_SECONDS = 15.0  # after the chief's script has left its loop; the others leave after the same step
_END_SECONDS = 60.0


class Team:
    """The other workers in order; the first one has index 1."""

    def __init__(
        self, links: Sequence[Link], *, out_of_step: Callable[[str, BaseException | None], None]
    ) -> None:
        """Takes the connections to the other workers.

        Args:
            out_of_step: called with the reason why the workers can no longer continue in lockstep, and the exception
                of the user's code if there was one; the receiver terminates all workers.
        """
        self._links = tuple(links)
        self._tell = out_of_step

    def __len__(self) -> int:
        """Returns the number of workers, including the chief."""
        return len(self._links) + 1

    def gather(self, operators: Sequence[str], *, limit_seconds: float = ARRIVAL_SECONDS) -> str:
        """Waits until every worker has reached its first training step.

        Args:
            operators: the operators of the chief's pipeline.

        Returns:
            Why the workers cannot try a different pipeline together; "" if they can.
        """
        end = time.monotonic() + limit_seconds
        found = ""
        for worker, answer in self._answers(lambda: max(0.0, end - time.monotonic())):
            found = found or answer.why or _difference(worker, answer.operators, tuple(operators))
        return found

    def prepare(self, plan: Plan | None) -> None:
        """Lets every worker build its pipeline with the plan applied, or, without a plan, repeat one cached batch.

        Raises:
            RunFailed: a worker could not; no step was taken.
        """
        self._order(Prepare(plan))
        failed = [f"worker {worker}: {answer.why}" for worker, answer in self._answers(BUILD_SECONDS) if answer.why]
        if failed:
            raise RunFailed(failed[0])

    def train(self, *, steps: int, warmup: int) -> None:
        """Lets every worker take these steps now; the chief must take the same number."""
        self._order(Train(steps, warmup))

    def windows(self, own: Window | None) -> list[Window]:
        """Returns the windows of the other workers for the steps that the chief took as well.

        Args:
            own: the chief's window; None if its script has left its loop, which the others must then have left too.
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
        """Measures the input of one worker alone, while the others wait.

        Raises:
            RunFailed: the worker could not run it.
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
        """Tells all workers that no more requests follow."""
        for link in self._links:
            try:
                link.order(Leave())
            except LinkBroken:
                continue  # an exited worker need not be told

    def fall_out(self, why: str, cause: BaseException | None = None) -> NoReturn:
        """Reports that the workers are out of step. Does not return: the receiver of the report ends this process."""
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
