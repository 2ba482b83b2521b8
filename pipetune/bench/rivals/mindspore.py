"""What MindSpore's Dataset AutoTune would do with a pipeline, its queue rule re-implemented.

The rule and its thresholds are those of `minddata/dataset/engine/perf/auto_tune.cc` (MindSpore 2): every operator that
works in parallel has workers and a queue behind it. One whose queue in front is fuller than its own, or whose workers
are busy, gets workers; one whose workers idle for want of input, or before a full queue, gets a longer queue. After
some rounds without gain the best numbers seen are kept. Readers of files are left as they start, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipetune.core.edits import Edit, Insert, SetArgument
from pipetune.core.pipeline import Node, Pipeline
from pipetune.rules.base import RuleContext
from pipetune.rules.baselines import numbers, takes_calls
from pipetune.rules.legality import last_working
from pipetune.rules.pricing import seconds_per_output

FIRST_WORKERS, FIRST_QUEUE = 8, 16  # MindSpore's defaults of num_parallel_workers and prefetch_size
MORE_WORKERS, LONGER_QUEUE = 2, 4
LONGEST_QUEUE = 128
SLOW = 0.35  # the queue in front fuller than that behind by this share
BUSY, IDLE = 0.75, 0.35  # share of the time that the mean worker computes
HUNGRY = 0.5  # queue in front filled less than this
FAST_ENOUGH = 0.75  # last queue filled this much: the pipeline is not what holds training back
PATIENCE = 4  # rounds without gain
MOST_ROUNDS = 10


@dataclass(frozen=True)
class Stage:
    """The numbers of one operator that works in parallel."""

    node: str
    workers: int
    queue: int  # elements, behind it


@dataclass(frozen=True)
class Seen:
    """One round as measured."""

    rate: float  # elements of the output per second
    filled: Mapping[str, float]  # by operator: share of the queue behind it that was filled, on average


def first_stages(context: RuleContext) -> tuple[Stage, ...]:
    """Where it starts: the maps that can work in parallel, with MindSpore's defaults, kept to the cores."""
    workers = min(FIRST_WORKERS, context.cores)
    return tuple(
        Stage(node.id, workers, FIRST_QUEUE) for node in context.pipeline if node.op == "map" and takes_calls(node)
    )


def adjusted(stages: Sequence[Stage], seen: Seen, busy: Mapping[str, float], *, cores: int) -> tuple[Stage, ...]:
    """The numbers of the next round.

    Args:
        busy: share of the time that the workers of an operator compute, on average.
    """
    if stages and seen.filled.get(stages[-1].node, 0.0) >= FAST_ENOUGH:
        return tuple(stages)
    found = []
    in_front = 1.0  # in front of the first stands what is read: taken to be always there
    for stage in stages:
        behind = seen.filled.get(stage.node, 0.0)
        used = busy.get(stage.node, 0.0)
        workers, queue = stage.workers, stage.queue
        if in_front - behind > SLOW or used > BUSY:
            workers = min(workers + MORE_WORKERS, max(1, cores))
        if used < IDLE and (in_front < HUNGRY or behind - in_front > SLOW):
            queue = min(max(queue + LONGER_QUEUE, workers), LONGEST_QUEUE)
        found.append(replace(stage, workers=workers, queue=queue))
        in_front = behind
    return tuple(found)


def tune(context: RuleContext, measure: Callable[[tuple[Stage, ...]], Seen]) -> tuple[Stage, ...]:
    """The best numbers of the rounds that the rule makes; it ends where it changes nothing or gains no more."""
    stages = first_stages(context)
    if not stages:
        return stages
    best, best_rate, without_gain = stages, 0.0, 0
    for _ in range(MOST_ROUNDS):
        seen = measure(stages)
        if seen.rate > best_rate:
            best, best_rate, without_gain = stages, seen.rate, 0
        else:
            without_gain += 1
        busy = {stage.node: _busy(context, stage, seen.rate) for stage in stages}
        following = adjusted(stages, seen, busy, cores=context.cores)
        if following == stages or without_gain > PATIENCE:
            break
        stages = following
    return best


def mindspore_edits(context: RuleContext, stages: Sequence[Stage]) -> tuple[Edit, ...]:
    """Workers as parallel calls, each queue as a prefetch behind its map; readers as many as cores; one at the end."""
    pipeline = context.pipeline
    workers = {stage.node: stage.workers for stage in stages}
    last = last_working(pipeline)
    at_end = FIRST_QUEUE
    queues: list[Edit] = []
    for stage in stages:
        own = _prefetch_behind(pipeline, stage.node)
        if last.id in (stage.node, own.id if own else ""):
            at_end = stage.queue
        elif own is not None:
            queues.append(SetArgument(own.id, "buffer_size", stage.queue))
        else:
            queues.append(Insert(stage.node, "prefetch", f"queue@{stage.node}", {"buffer_size": stage.queue}))
    others = min(FIRST_WORKERS, context.cores)
    return (*queues, *numbers(context, lambda node: workers.get(node.id, others), prefetch=at_end))


def queues_of(edited: Pipeline, stages: Sequence[Stage]) -> dict[str, str]:
    """By operator the prefetch of the edited pipeline that is the queue behind it."""
    found = {stage.node: _prefetch_behind(edited, stage.node) for stage in stages}
    return {name: queue.id for name, queue in found.items() if queue is not None}


def _prefetch_behind(pipeline: Pipeline, name: str) -> Node | None:
    below = pipeline.consumers(name)
    return below[0] if len(below) == 1 and below[0].op == "prefetch" else None


def _busy(context: RuleContext, stage: Stage, rate: float) -> float:
    return rate * (seconds_per_output(context, stage.node) or 0.0) / stage.workers
