"""The same Python training loop with pipetune's hooks in place and without them: CPU seconds per step."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.bench.loops import Loop
from pipetune.capture import consumption, hooks
from pipetune.capture.consumption import Consumer
from pipetune.pipelines import call_sites

_NOBODY = "a dataset of no script"  # so that the loop is watched from its first element to its last


@dataclass(frozen=True)
class Cost:
    """Of one window."""

    steps: int
    cpu_seconds: float  # of the whole process
    script_seconds: float  # CPU of the thread that runs the script, and every hook
    wall_seconds: float

    @property
    def cpu_step_seconds(self) -> float:
        return self.cpu_seconds / self.steps

    @property
    def script_step_seconds(self) -> float:
        return self.script_seconds / self.steps


def cost(loop: Loop, *, steps: int, hooked: bool, warmup: int = 20, train: bool = True) -> Cost:
    """One window of a loop written as users write it, on a fresh iterator.

    Args:
        hooked: with everything in place that watches a script before its training is measured.
        train: call the step; else only take the elements.
    """
    with contextlib.ExitStack() as stack:
        if hooked:
            stack.enter_context(call_sites.Recorder())
            stack.enter_context(hooks.Hooks(_never, target_dataset=_NOBODY))
        return _run(loop.dataset, loop.step if train else _nothing, steps=steps, warmup=warmup)


def _never(_use: consumption.Consumption, _consumer: Consumer) -> None:
    raise AssertionError("no dataset has that name")


def _nothing(_examples: Any, _labels: Any) -> None:
    return None


def _run(dataset: Any, step: Any, *, steps: int, warmup: int) -> Cost:
    taken = -warmup
    for examples, labels in dataset:
        if taken == 0:
            cpu_started, script_started, started = time.process_time(), time.thread_time(), time.perf_counter()
        loss = step(examples, labels)
        taken += 1
        if taken == steps:
            break
    _finish(loss)
    script_seconds = time.thread_time() - script_started
    return Cost(steps, time.process_time() - cpu_started, script_seconds, time.perf_counter() - started)


def _finish(loss: Any) -> None:
    """Reads a value the last step produced: on an accelerator a step returns before it is done."""
    if tf.is_tensor(loss):
        float(loss)
