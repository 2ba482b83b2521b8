"""The overhead of the hooks while a script is not being measured: the CPU time they add, relative to that of a step.

A step is one iteration of the loop, input and training. Windows with and without the hooks are measured in pairs, in
random order and in one process. Each pair gives a ratio, and all pairs a t interval of their logarithms. Hooks run in
the script's thread, so their cost is the difference in CPU time of that thread. The CPU time of the whole process is
reported as well; it varies more, since idle threads of the runtime spin. The worst case is a loop that takes elements
without training on them, and is also reported.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from benchmarks import ProgressCallback, loops
from benchmarks.claims import Claim
from benchmarks.loops import Loop
from benchmarks.resumable import ResumableResults
from pipetune.capture import consumption, hooks
from pipetune.capture.consumption import Consumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.core.measurement import Interval
from pipetune.pipelines import call_sites
from pipetune.search.statistics import ratio_interval

TARGETS = {"images": 0.01, "text": 0.02}

WINDOW_SECONDS = 0.2
PAIRS, QUICK_PAIRS = 200, 12


@dataclass(frozen=True)
class Overhead:
    """The figure. An interval is the added CPU time relative to that of a step: 0.01 is 1 %."""

    images: Interval
    text: Interval
    text_input_alone: Interval
    images_whole_process: Interval  # in CPU time of all threads
    text_whole_process: Interval
    images_step_us: float  # CPU time of a step without hooks, in microseconds
    text_step_us: float
    text_input_us: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _LoopOverhead:
    """The overhead on one loop, as in `Overhead`."""

    overhead: Interval
    whole_process: Interval
    step_us: float  # of the median window


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> Overhead:
    """Measures a loop over photos, one over text, and the latter without training; saves each when it is done."""
    pairs = QUICK_PAIRS if quick else PAIRS
    results: list[_LoopOverhead] = []
    for name, make, train in (
        ("photos", loops.photos, True),
        ("text", loops.text, True),
        ("text without a step", loops.text, False),
    ):
        count = pairs if train else max(QUICK_PAIRS, pairs // 4)
        pairs_of = partial(_measure_pairs, make(seed=seed), name, count, random.Random(seed), progress, train=train)
        results.append(saved.get(_LoopOverhead, name, pairs_of))
    images, text, text_input = results
    note = f"Pairs of windows of about {WINDOW_SECONDS:g} s, in random order, in one process"
    return Overhead(
        images=images.overhead,
        text=text.overhead,
        text_input_alone=text_input.overhead,
        images_whole_process=images.whole_process,
        text_whole_process=text.whole_process,
        images_step_us=images.step_us,
        text_step_us=text.step_us,
        text_input_us=text_input.step_us,
        notes=(note,),
    )


def _measure_pairs(
    loop: Loop, name: str, pairs: int, draw: random.Random, progress: ProgressCallback, *, train: bool
) -> _LoopOverhead:
    first = measure_cost(loop, steps=20, hooked=False, train=train)  # traces the step
    first = measure_cost(loop, steps=100, hooked=False, train=train)
    steps = max(20, round(WINDOW_SECONDS * first.steps / first.wall_seconds))
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for pair in range(pairs):
        if pair % 10 == 0:
            progress(f"{name}, pair {pair + 1} of {pairs}")
        for hooked in draw.sample((True, False), 2):
            costs[hooked].append(measure_cost(loop, steps=steps, hooked=hooked, train=train))
    step_seconds = statistics.median(one.cpu_step_seconds for one in costs[False])
    measured = list(zip(costs[True], costs[False], strict=True))
    script = [1 + (on.script_step_seconds - off.script_step_seconds) / step_seconds for on, off in measured]
    process = [on.cpu_step_seconds / off.cpu_step_seconds for on, off in measured]
    return _LoopOverhead(_minus_one(ratio_interval(script)), _minus_one(ratio_interval(process)), 1e6 * step_seconds)


def _minus_one(ratio: Interval) -> Interval:
    return Interval(ratio.median - 1, ratio.low - 1, ratio.high - 1, ratio.pairs, ratio.method)


def claims(result: Overhead, *, quick: bool) -> Sequence[Claim]:
    """Returns all overheads; in a quick run, a target inside the interval is neither met nor missed."""
    rows = []
    for name, interval, process, step_us in (
        ("images", result.images, result.images_whole_process, result.images_step_us),
        ("text", result.text, result.text_whole_process, result.text_step_us),
    ):
        target = TARGETS[name]
        met = interval.high < target or (None if interval.low < target and quick else interval.median < target)
        rows.append(Claim(f"{name}, a step of {step_us:,.0f} us", _percent(interval), f"below {target:.0%}", met))
        rows.append(Claim(f"{name}, all threads", _percent(process)))
    rows.append(Claim(f"text without a step, {result.text_input_us:,.0f} us", _percent(result.text_input_alone)))
    return rows


def _percent(interval: Interval) -> str:
    return f"{interval.median:+.2%} ({interval.low:+.2%} to {interval.high:+.2%})"


# -- one window of a loop, with and without hooks

_NO_DATASET = "a dataset of no script"  # as the target, so that the hooks watch the loop until it ends


@dataclass(frozen=True)
class Cost:
    """What one window cost."""

    steps: int
    cpu_seconds: float  # of the whole process
    script_seconds: float  # CPU time of the thread that runs the script and all hooks
    wall_seconds: float

    @property
    def cpu_step_seconds(self) -> float:
        return self.cpu_seconds / self.steps

    @property
    def script_step_seconds(self) -> float:
        return self.script_seconds / self.steps


def measure_cost(loop: Loop, *, steps: int, hooked: bool, warmup: int = 20, train: bool = True) -> Cost:
    """Measures one window of a loop over a new iterator, written as users write loops.

    Args:
        loop: dataset and step.
        steps: number of steps that are measured.
        hooked: whether all hooks are installed that watch a script before its training is measured.
        warmup: number of steps before them.
        train: whether to call the step, or only take the elements.
    """
    with contextlib.ExitStack() as stack:
        if hooked:
            stack.enter_context(call_sites.Recorder())
            stack.enter_context(hooks.installed(ObservedScript(_unexpected, target_dataset=_NO_DATASET)))
        return _run_loop(loop.dataset, loop.step if train else _skip, steps=steps, warmup=warmup)


def _unexpected(_use: consumption.Consumption, _consumer: Consumer) -> None:
    raise AssertionError("no dataset has this name")


def _skip(_examples: Any, _labels: Any) -> None:
    return None


def _run_loop(dataset: Any, step: Any, *, steps: int, warmup: int) -> Cost:
    step_number = -warmup
    for examples, labels in dataset:
        if step_number == 0:
            cpu_started, script_started, started = time.process_time(), time.thread_time(), time.perf_counter()
        loss = step(examples, labels)
        step_number += 1
        if step_number == steps:
            break
    if tf.is_tensor(loss):
        float(loss)  # waits for the step: on an accelerator it returns before it has finished
    script_seconds = time.thread_time() - script_started
    return Cost(steps, time.process_time() - cpu_started, script_seconds, time.perf_counter() - started)
