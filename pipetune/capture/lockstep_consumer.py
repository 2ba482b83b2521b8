"""Training in several processes in lockstep: each takes the same steps of a window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.capture.fit_consumer import FitConsumer
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.core.lockstep import LockstepTeam
from pipetune.core.measurement import RunFailed, StepSeries, Window
from pipetune.pipelines.errors import first_line

LocalConsumer = FitConsumer | LoopConsumer
"""The consumer that trains in each of the processes."""


class LockstepConsumer:
    """The chief's own consumer and those of the other workers, which have prepared their datasets on request.

    The number of steps of a window is decided here before its first step, and so is whether it is repeated.
    """

    def __init__(self, own: LocalConsumer, team: LockstepTeam) -> None:
        self.kind, self.description = own.kind, f"{own.description}, in {len(team)} processes in lockstep"
        self._local, self._team = own, team

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Implements `Consumer.window`; a window in which any worker compiled something is repeated once."""
        steps, warmup = self._local.window_counts(dataset, steps=steps, warmup=warmup)
        window = self._lockstep_window(dataset, steps=steps, warmup=warmup)
        # What any worker compiled in the first window is compiled now, and no worker waits for it again.
        return self._lockstep_window(dataset, steps=steps, warmup=warmup) if window.compile_seconds else window

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Raises RunFailed: the number of steps that the others take is decided before the first one."""
        raise RunFailed("Single steps of several processes in lockstep are not recorded.")

    def _lockstep_window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        self._team.train(steps=steps, warmup=warmup)
        try:
            window = self._local.exact_window(dataset, steps=steps, warmup=warmup)
        except RunFailed as failure:
            if raised_within_step(failure):
                self._team.abort(f"on worker 0: {first_line(failure)}", failure.__cause__)
            self._team.collect_windows(None)
            raise
        others = self._team.collect_windows(window)
        compile_seconds = max([window.compile_seconds, *(one.compile_seconds for one in others)])
        return replace(window, compile_seconds=compile_seconds)


def raised_within_step(failure: RunFailed) -> bool:
    """Whether a step or its input raised an exception; how far this process got in the step is then unknown.

    Without an exception, the loop has ended: in every process, after the same step.
    """
    return failure.__cause__ is not None
