"""Processes that execute requests at their first training step: workers in lockstep, and scripts under verification."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipetune.capture.lockstep_consumer import LocalConsumer, raised_within_step
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import (
    ConnectionLost,
    Inform,
    MeasureInput,
    MeasurePass,
    MeasureTraining,
    NoMoreRequests,
    PreparePipeline,
    RequestLink,
    StepReply,
    StepRequest,
    TakeSteps,
    WritePatch,
)
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import PatchResult, Session
from pipetune.measure.epochs import pass_seconds
from pipetune.measure.runner import TensorFlowRunner

_AS_WRITTEN = Plan("defaults")
_ORDER_SECONDS = 7200.0  # between two requests, while the chief works alone; its exit is noticed at once


@dataclass
class LockstepWorker:
    """A worker that is not the chief: executes the chief's requests on its own share of the data."""

    runner: TensorFlowRunner  # measures the pipeline of this worker
    consumer: LocalConsumer | None  # trains in this worker; None if it cannot be given another dataset
    link: RequestLink  # to the chief
    # Called with the reason why this worker lost lockstep, and the exception of the user's code.
    on_lockstep_lost: Callable[[str, BaseException | None], None]
    prepared: Any = None  # the dataset of the steps that are taken next

    def run(self) -> None:
        """Reports that it is ready, then executes requests until it is released or the chief exits."""
        serve_orders(self.link, self._do, first=StepReply(operators=operators_of(self.runner.source.pipeline)))

    def _do(self, order: StepRequest) -> StepReply:
        match order:
            case PreparePipeline(plan=plan):
                self.prepared = self.runner.training_dataset(plan)
                return StepReply()
            case TakeSteps(steps=steps, warmup=warmup):
                return StepReply(window=self._train(steps, warmup))
            case MeasureInput(seconds=seconds, warmup_seconds=warmup_seconds):
                window = self.runner.input_window(_AS_WRITTEN, seconds=seconds, warmup_seconds=warmup_seconds)
                return StepReply(window=window)
        return StepReply(why="This worker does not support this order.")

    def _train(self, steps: int, warmup: int) -> Window:
        if self.consumer is None:
            raise RunFailed("This worker does not train on the dataset, or its dataset cannot be switched.")
        try:
            with self.runner.measuring():
                return self.consumer.exact_window(self.prepared, steps=steps, warmup=warmup)
        except RunFailed as failure:
            if raised_within_step(failure):
                self.on_lockstep_lost(str(failure), failure.__cause__)
            raise


@dataclass
class VerifiedScript:
    """A script under verification, with or without the patch: measures the pipeline that it has built itself."""

    runner: TensorFlowRunner
    baselines: Mapping[str, Plan]  # plans that can be measured in place of the pipeline, by name
    # Writes the patch of the rewrites with these keys, or without any that for validation; None if none can be written.
    patch: Callable[[tuple[str, ...]], PatchResult | None] | None = None
    inform: Callable[[Inform], Session] | None = None  # measures what only informs; returns the session with it
    validation: Any = None  # the validation data that the script has built; None if its passes are not measured
    plan: Plan = _AS_WRITTEN  # what is measured now

    def serve(self, link: RequestLink, first: StepReply) -> None:
        """Sends `first`, then executes requests until it is released or the process that sends them exits."""
        serve_orders(link, self._do, first=first)

    def _do(self, order: StepRequest) -> StepReply:
        match order:
            case PreparePipeline(plan=Plan(name=name)):
                self.plan = self.baselines[name]
                return StepReply()
            case MeasureTraining(steps=steps):
                return StepReply(window=self.runner.training_window(self.plan, steps=steps))
            case MeasureInput(seconds=seconds, warmup_seconds=warmup_seconds):
                window = self.runner.input_window(self.plan, seconds=seconds, warmup_seconds=warmup_seconds)
                return StepReply(window=replace(window, intervals=()))
            case MeasurePass(elements=elements, seconds=limit) if self.validation is not None:
                with self.runner.measuring():
                    seconds = pass_seconds(self.validation, elements=elements, seconds=limit)
                return StepReply(window=Window(elements, elements, seconds, 0.0, 0.0))
            case WritePatch(rewrites=rewrites) if self.patch is not None:
                return StepReply(patch=self.patch(rewrites))
            case Inform() if self.inform is not None:
                return StepReply(session=self.inform(order))
        return StepReply(why="A script under verification does not support this order.")


def serve_orders(link: RequestLink, do: Callable[[StepRequest], StepReply], *, first: StepReply) -> None:
    """Sends `first`, then executes and answers each request, until released or until the connection breaks."""
    with contextlib.suppress(ConnectionLost):  # the process that started the other end also ends this one
        link.send_reply(first)
        while not isinstance(order := link.receive_request(_ORDER_SECONDS), NoMoreRequests):
            try:
                answer = do(order)
            except (RunFailed, PipetuneError) as failure:
                answer = StepReply(why=str(failure) or type(failure).__name__)
            link.send_reply(answer)


def operators_of(pipeline: Pipeline) -> tuple[str, ...]:
    """Returns the operators of a pipeline, in the notation of plans."""
    return tuple(f"{node.op} ({node.id})" for node in pipeline)
