"""Several processes that train in step: the chief's runner, and what the other workers do when it says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pipetune.core.edits import Plan
from pipetune.core.in_step import Answer, Leave, Link, MeasureInput, Order, Prepare, Train
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.pipeline import Pipeline
from pipetune.core.team import Team
from pipetune.tf.measure.runner import TensorFlowRunner
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script.in_step_consumer import InStepConsumer, OwnConsumer, raised_in_a_step

_AS_WRITTEN = Plan("defaults")
_ORDER_SECONDS = 7200.0  # between two orders: all that the chief does alone; whose end is noticed at once


class InStepRunner(TensorFlowRunner):
    """The chief's: before a training window every worker builds the pipeline that it is about."""

    def __init__(self, source: LivePipeline, consumer: InStepConsumer, *, team: Team, **others: Any) -> None:
        """Takes what `TensorFlowRunner` does."""
        super().__init__(source, consumer, **others)
        self._team = team

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        self.prepared(plan)  # what cannot be built here need not be built elsewhere
        self._team.prepare(plan)
        return super().training_window(plan, steps=steps)

    def bound_window(self, *, steps: int) -> Window:
        self._team.prepare(None)
        return super().bound_window(steps=steps)


class Follower:
    """A worker that is not the chief: does what it is told, with its own share of the data."""

    def __init__(
        self,
        runner: TensorFlowRunner,
        consumer: OwnConsumer | None,
        link: Link,
        *,
        out_of_step: Callable[[str, BaseException | None], None],
    ) -> None:
        """Takes what measures here.

        Args:
            consumer: None where nothing can be switched.
            out_of_step: told why this worker can take no more steps with the others, and what the user's code raised.
        """
        self._runner, self._consumer, self._link, self._tell = runner, consumer, link, out_of_step
        self._prepared: Any = None

    def follow(self) -> None:
        """Answers that it is there, then every order, until it may leave or the chief is gone."""
        try:
            self._link.answer(Answer(operators=operators_of(self._runner.source.pipeline)))
            while not isinstance(order := self._link.next_order(_ORDER_SECONDS), Leave):
                self._link.answer(self._do(order))
        except LinkBroken:
            return  # who started the chief ends this process too

    def _do(self, order: Order) -> Answer:
        try:
            match order:
                case Prepare(plan=plan):
                    self._prepared = self._runner.prepared(plan)
                    return Answer()
                case Train(steps=steps, warmup=warmup):
                    return Answer(window=self._train(steps, warmup))
                case MeasureInput():
                    window = self._runner.input_window(
                        _AS_WRITTEN, seconds=order.seconds, warmup_seconds=order.warmup_seconds
                    )
                    return Answer(window=window)
        except RunFailed as failure:
            return Answer(why=str(failure) or type(failure).__name__)
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


def wait_for_leave(link: Link) -> None:
    """Returns when the chief is done, or gone."""
    with contextlib.suppress(LinkBroken):
        link.next_order(_ORDER_SECONDS)


def operators_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The operators of a pipeline as plans name them."""
    return tuple(f"{node.op} ({node.id})" for node in pipeline)
