"""Training by several processes in lockstep, seen from the chief: all of them run every window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.core.measurement import RunFailed, Window
from pipetune.core.team import Team
from pipetune.tf.error_text import first_line
from pipetune.tf.script.fit_consumer import FitConsumer
from pipetune.tf.script.loop_consumer import LoopConsumer

OwnConsumer = FitConsumer | LoopConsumer
"""The consumer that trains in each of the processes."""


class InStepConsumer:
    """The chief's own consumer, and those of the other workers, which have been told which dataset to prepare.

    The number of steps of a window, and whether it is repeated, is decided here, before its first step.
    """

    def __init__(self, own: OwnConsumer, team: Team) -> None:
        self.kind, self.sentence = own.kind, f"{own.sentence}, in {len(team)} processes in step"
        self._own, self._team = own, team

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        steps, warmup = self._own.counts(dataset, steps=steps, warmup=warmup)
        window = self._together(dataset, steps=steps, warmup=warmup)
        # What any worker compiled in the first window is compiled now, and no worker waits for it again.
        return self._together(dataset, steps=steps, warmup=warmup) if window.compile_seconds else window

    def _together(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        self._team.train(steps=steps, warmup=warmup)
        try:
            window = self._own.exactly(dataset, steps=steps, warmup=warmup)
        except RunFailed as failure:
            if raised_in_a_step(failure):
                self._team.fall_out(f"on worker 0: {first_line(failure)}", failure.__cause__)
            self._team.windows(None)
            raise
        others = self._team.windows(window)
        compile_seconds = max([window.compile_seconds, *(one.compile_seconds for one in others)])
        return replace(window, compile_seconds=compile_seconds)


def raised_in_a_step(failure: RunFailed) -> bool:
    """Whether a step or its input raised an exception: how far this process got in the step is then unknown.

    A loop that reached its end has done so in every process, after the same step.
    """
    return failure.__cause__ is not None
