"""What the hooks cost a script that is not being measured: CPU seconds they add to a step, over those of the step.

The whole loop is the step: input and training. Windows with and without the hooks alternate in random order in one
process, each pair gives a ratio, and all of them a t interval on logs. Hooks run in the script's own thread, so what
they add is the difference of that thread's CPU time; the whole process's, in which the runtime's idle threads spin
now more and now less, is shown beside it. So is the bare input, without any step: the worst a loop can do.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.bench import Say, loops
from pipetune.bench.keeping import Kept
from pipetune.bench.loops import Loop
from pipetune.capture import consumption, hooks
from pipetune.capture.consumption import Consumer
from pipetune.core.accuracy import Claim
from pipetune.core.codec import decode, encode
from pipetune.core.results import Interval
from pipetune.pipelines import call_sites
from pipetune.search.statistics import ratio_interval

LIMITS = {"images": 0.01, "text": 0.02}

WINDOW_SECONDS = 0.2
PAIRS, QUICK_PAIRS = 200, 12

RESUMES = True


@dataclass(frozen=True)
class Overhead:
    """Shares of the CPU seconds of a step: 0.01 is one per cent more."""

    images: Interval
    text: Interval
    text_input_alone: Interval
    images_whole_process: Interval  # the CPU seconds of all threads, with hooks over without, less one
    text_whole_process: Interval
    images_step_us: float  # CPU microseconds of a step without hooks
    text_step_us: float
    text_input_us: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Paired:
    """The overhead on one loop, and CPU microseconds of a step without hooks (the median window)."""

    overhead: Interval
    whole_process: Interval
    step_us: float


def measure(*, quick: bool, seed: int, say: Say, kept: Kept) -> Overhead:
    """The overhead on a loop over photos and on one over text; each is kept when done."""
    pairs = QUICK_PAIRS if quick else PAIRS
    found: dict[str, _Paired] = {}
    for name, make, train in (
        ("photos", loops.photos, True),
        ("text", loops.text, True),
        ("text without a step", loops.text, False),
    ):
        if name not in kept:
            count = pairs if train else max(QUICK_PAIRS, pairs // 4)
            kept[name] = encode(_paired(make(seed=seed), name, count, random.Random(seed), say, train=train))
        found[name] = decode(_Paired, kept[name])
    images, words, alone = found.values()
    note = f"Pairs of windows of about {WINDOW_SECONDS:g} s, in random order, in one process"
    return Overhead(
        images=images.overhead,
        text=words.overhead,
        text_input_alone=alone.overhead,
        images_whole_process=images.whole_process,
        text_whole_process=words.whole_process,
        images_step_us=images.step_us,
        text_step_us=words.step_us,
        text_input_us=alone.step_us,
        notes=(note,),
    )


def _paired(loop: Loop, name: str, pairs: int, draw: random.Random, say: Say, *, train: bool) -> _Paired:
    first = cost(loop, steps=20, hooked=False, train=train)  # traces the step
    first = cost(loop, steps=100, hooked=False, train=train)
    steps = max(20, round(WINDOW_SECONDS * first.steps / first.wall_seconds))
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for pair in range(pairs):
        if pair % 10 == 0:
            say(f"{name}, pair {pair + 1} of {pairs}")
        for on in draw.sample((True, False), 2):
            costs[on].append(cost(loop, steps=steps, hooked=on, train=train))
    step_seconds = statistics.median(one.cpu_step_seconds for one in costs[False])
    both = list(zip(costs[True], costs[False], strict=True))
    added = [1 + (on.script_step_seconds - off.script_step_seconds) / step_seconds for on, off in both]
    whole = [on.cpu_step_seconds / off.cpu_step_seconds for on, off in both]
    return _Paired(_less_one(ratio_interval(added)), _less_one(ratio_interval(whole)), 1e6 * step_seconds)


def _less_one(ratio: Interval) -> Interval:
    return Interval(ratio.median - 1, ratio.low - 1, ratio.high - 1, ratio.pairs, ratio.method)


def claims(found: Overhead, *, quick: bool) -> Sequence[Claim]:
    """In the short form a limit within the interval is neither met nor missed."""
    rows = []
    for name, interval, whole, step_us in (
        ("images", found.images, found.images_whole_process, found.images_step_us),
        ("text", found.text, found.text_whole_process, found.text_step_us),
    ):
        limit = LIMITS[name]
        met = interval.high < limit or (None if interval.low < limit and quick else interval.median < limit)
        rows.append(Claim(f"{name}, a step of {step_us:,.0f} us", _words(interval), f"below {limit:.0%}", met))
        rows.append(Claim(f"{name}, all threads", _words(whole)))
    rows.append(Claim(f"text without a step, {found.text_input_us:,.0f} us", _words(found.text_input_alone)))
    return rows


def _words(interval: Interval) -> str:
    return f"{interval.median:+.2%} ({interval.low:+.2%} to {interval.high:+.2%})"


# -- the same loop, written as users write it, with the hooks in place and without them

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
    if tf.is_tensor(loss):
        float(loss)  # on an accelerator a step returns before it is done
    script_seconds = time.thread_time() - script_started
    return Cost(steps, time.process_time() - cpu_started, script_seconds, time.perf_counter() - started)
