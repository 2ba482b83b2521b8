"""What a function that could be called on batches costs there: one batch, over and over, with it and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.measure import failures, windows
from pipetune.tf.pipelines import forms, live
from pipetune.tf.pipelines.on_batches import batch_below

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_SECONDS = 0.05  # of a window
_ROUNDS = 3


def measure_batch_costs(source: live.LivePipeline, told: Pipeline) -> Mapping[str, float]:
    """Seconds per batch of every map whose function could be called on one, by node; without those that failed.

    Args:
        told: the pipeline of `source` with the answers of `on_batches.with_answers`.
    """
    found: dict[str, float] = {}
    for node in told:
        answer = node.function.on_batches if node.function is not None else None
        batch = batch_below(told, node)
        if answer is None or answer.why_not or batch is None:
            continue
        try:
            with failures.told():
                found[node.id] = _seconds(source, node, batch)
        except RunFailed:
            continue  # a trial that runs it will say why
    return found


def _seconds(source: live.LivePipeline, node: Node, batch: Node) -> float:
    assert node.function is not None and node.function.on_batches is not None
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    one = above.batch(batch.argument("batch_size"), drop_remainder=bool(batch.argument("drop_remainder"))).take(1)
    plain = one.cache().repeat()
    form = node.function.on_batches.form
    called = plain.map(
        forms.in_form(private.python_function(original._map_func), form, plain.element_spec), synchronous=True
    )
    rounds = [_window(undisturbed(called)) - _window(undisturbed(plain)) for _ in range(_ROUNDS)]
    return max(0.0, statistics.median(rounds))


def undisturbed(dataset: Any) -> Any:
    """The dataset as it is written: TensorFlow makes nothing parallel, and prefetches nothing."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def _window(dataset: Any) -> float:
    """Seconds per element, the first left out."""
    iterator = iter(dataset)
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
