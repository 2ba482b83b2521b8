"""Measures what work on whole batches would cost: functions called on a batch, rows gathered for a batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Remove, ReplaceSource
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.measure import failures, windows
from pipetune.tf.pipelines import forms, live
from pipetune.tf.pipelines.cutting import Cuttable
from pipetune.tf.pipelines.in_two import both_parts
from pipetune.tf.pipelines.on_batches import batch_below
from pipetune.tf.pipelines.replay import replay

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_SECONDS = 0.05  # per window
_ROUNDS = 3


def measure_batch_costs(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """Returns seconds per batch, by node id; nodes that failed are left out.

    For a map, the time of its function called on one batch. For an array in memory, the time to number the rows,
    pass the indices on and gather the rows.

    Args:
        source: the live pipeline.
        told: the pipeline of `source`, annotated by `on_batches.with_answers` and `gathering.with_answers`.
    """
    found: dict[str, float] = {}
    for node in told:
        batch = batch_below(told, node)
        answer = node.gathering or (node.function.on_batches if node.function is not None else None)
        if answer is None or answer.why_not or batch is None:
            continue
        try:
            with failures.told():
                seconds = _gathering_seconds if node.gathering else _function_seconds
                found[node.id] = seconds(source, told, node, batch)
        except RunFailed:
            continue  # a trial that runs it will report the reason
    return found


def _function_seconds(source: live.LivePipeline, _told: Pipeline, node: Node, batch: Node) -> float:
    assert node.function is not None and node.function.on_batches is not None
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    one = above.batch(batch.argument("batch_size"), drop_remainder=bool(batch.argument("drop_remainder"))).take(1)
    plain = one.cache().repeat()
    answer = node.function.on_batches
    if answer.cut is not None:
        _, called, _ = both_parts(plain, Cuttable(original._map_func), answer.cut.position, synchronous=True)
    else:
        function = forms.in_form(private.python_function(original._map_func), answer.form, plain.element_spec)
        called = plain.map(function, synchronous=True)
    rounds = [_window(called) - _window(plain) for _ in range(_ROUNDS)]
    return max(0.0, statistics.median(rounds))


def _gathering_seconds(source: live.LivePipeline, told: Pipeline, node: Node, batch: Node) -> float:
    """Seconds per batch from row indices to gathered rows. Maps are left out: they would run after the gather."""
    assert node.gathering is not None
    of_rows = node.gathering.windows
    leave = {"map"} if of_rows is None else {"map", "window", "flat_map"}
    below = {one.id for one in told.downstream(node.id)}
    out = [Remove(above.id) for above in told.upstream(batch.id) if above.op in leave and above.id in below]
    gather = ReplaceSource(node.id, batch.id, node.gathering.digest, of_rows)
    edited = apply_edits(told, [*out, gather])
    way = {gather.gather, *(above.id for above in edited.upstream(gather.gather))}
    part = replace(edited, nodes=tuple(one for one in edited if one.id in way))
    rows = replay(source, part).repeat()
    return statistics.median(_window(rows) for _ in range(_ROUNDS))


def _window(dataset: Any) -> float:
    """Seconds per element in one thread, excluding the first element."""
    iterator = iter(windows.undisturbed(dataset))
    try:
        next(iterator)
        count, start = 0, time.perf_counter()
        while count < 2 or time.perf_counter() < start + _SECONDS:
            next(iterator)
            count += 1
        return (time.perf_counter() - start) / count
    finally:
        del iterator
        windows.settle()
