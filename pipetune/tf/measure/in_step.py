"""Processes that execute orders at their first training step: workers in lockstep, and scripts under verification."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.in_step import Answer, Leave, Link, MeasureInput, MeasureTraining, Order, Prepare, Train, WritePatch
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import PatchResult
from pipetune.core.team import Team
from pipetune.tf.measure.runner import TensorFlowRunner
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script.in_step_consumer import InStepConsumer, OwnConsumer, raised_in_a_step

_AS_WRITTEN = Plan("defaults")
_ORDER_SECONDS = 7200.0  # between two orders, while the chief works alone; its exit is noticed at once


class InStepRunner(TensorFlowRunner):
    """The chief's runner: before a training window, every worker builds the pipeline to be measured."""

    def __init__(self, source: LivePipeline, consumer: InStepConsumer, *, team: Team, **others: Any) -> None:
        """Takes the arguments of `TensorFlowRunner`, and the team of workers."""
        super().__init__(source, consumer, **others)
        self._team = team

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        self.prepared(plan)  # if this raises, the other workers need not build it
        self._team.prepare(plan)
        return super().training_window(plan, steps=steps)

    def bound_window(self, *, steps: int) -> Window:
        self._team.prepare(None)
        return super().bound_window(steps=steps)


class Follower:
    """A worker that is not the chief: executes the chief's orders on its own share of the data."""

    def __init__(
        self,
        runner: TensorFlowRunner,
        consumer: OwnConsumer | None,
        link: Link,
        *,
        out_of_step: Callable[[str, BaseException | None], None],
    ) -> None:
        """Takes the parts that measure in this process.

        Args:
            runner: measures the pipeline of this worker.
            consumer: trains in this worker; None if it cannot be given another dataset.
            link: connection to the chief.
            out_of_step: called with the reason why this worker lost lockstep, and the exception of the user's code.
        """
        self._runner, self._consumer, self._link, self._tell = runner, consumer, link, out_of_step
        self._prepared: Any = None

    def follow(self) -> None:
        """Reports that it is ready, then executes orders until it is released or the chief exits."""
        serve(self._link, self._do, first=Answer(operators=operators_of(self._runner.source.pipeline)))

    def _do(self, order: Order) -> Answer:
        match order:
            case Prepare(plan=plan):
                self._prepared = self._runner.prepared(plan)
                return Answer()
            case Train(steps=steps, warmup=warmup):
                return Answer(window=self._train(steps, warmup))
            case MeasureInput(seconds=seconds, warmup_seconds=warmup_seconds):
                window = self._runner.input_window(_AS_WRITTEN, seconds=seconds, warmup_seconds=warmup_seconds)
                return Answer(window=window)
        return Answer(why="This worker knows no such order.")

    def _train(self, steps: int, warmup: int) -> Window:
        if self._consumer is None:
            raise RunFailed("Nothing trains here.")
        try:
            return self._consumer.exactly(self._prepared, steps=steps, warmup=warmup)
        except RunFailed as failure:
            if raised_in_a_step(failure):
                self._tell(str(failure), failure.__cause__)
            raise
        finally:
            self._runner.restore()


class Held:
    """A script under verification, with or without the patch: measures the pipeline that it has built itself."""

    def __init__(
        self,
        runner: TensorFlowRunner,
        baselines: Mapping[str, Plan],
        *,
        patch: Callable[[tuple[str, ...]], PatchResult] | None = None,
    ) -> None:
        """Takes what the script can be asked to do.

        Args:
            runner: measures the pipeline.
            baselines: plans that can be measured in place of the pipeline, by name.
            patch: writes the patch of the rewrites with these keys; None if there is nothing to write it from.
        """
        self._runner, self._baselines, self._patch, self._plan = runner, baselines, patch, _AS_WRITTEN

    def serve(self, link: Link, first: Answer) -> None:
        """Sends `first`, then executes orders until it is released or the process that gives them exits."""
        serve(link, self._do, first=first)

    def _do(self, order: Order) -> Answer:
        match order:
            case Prepare(plan=Plan(name=name)):
                self._plan = self._baselines[name]
                return Answer()
            case MeasureTraining(steps=steps):
                return Answer(window=self._runner.training_window(self._plan, steps=steps))
            case MeasureInput(seconds=seconds, warmup_seconds=warmup_seconds):
                window = self._runner.input_window(self._plan, seconds=seconds, warmup_seconds=warmup_seconds)
                return Answer(window=replace(window, intervals=()))
            case WritePatch(rewrites=rewrites) if self._patch is not None:
                return Answer(patch=self._patch(rewrites))
        return Answer(why="A script that is measured knows no such order.")


def serve(link: Link, do: Callable[[Order], Answer], *, first: Answer) -> None:
    """Sends `first`, then executes and answers each order, until released or until the connection breaks."""
    with contextlib.suppress(LinkBroken):  # the process that started the other end also ends this one
        link.answer(first)
        while not isinstance(order := link.next_order(_ORDER_SECONDS), Leave):
            try:
                answer = do(order)
            except (RunFailed, PipetuneError) as failure:
                answer = Answer(why=str(failure) or type(failure).__name__)
            link.answer(answer)


def operators_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The operators of a pipeline, in the notation of plans."""
    return tuple(f"{node.op} ({node.id})" for node in pipeline)
