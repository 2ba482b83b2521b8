"""Rows of arrays in memory, a batch at a time: by their numbers instead of one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.functions import Gathering
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.pipelines import functions, live
from pipetune.tf.pipelines.on_batches import batch_below

REPLAYS = True  # datasets made below this module are pipetune's, not the user's


def with_rows(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """`pipeline`, told of the arrays in memory above a batch how a batch of their rows would be gathered."""
    answers: dict[str, Gathering] = {}
    for node in pipeline:
        batch = batch_below(pipeline, node)
        if node.op == "from_tensor_slices" and batch is not None:
            answers[node.id] = ask(source.datasets[node.id], batch)
    return replace(
        pipeline, nodes=tuple(replace(node, gathering=answers.get(node.id, node.gathering)) for node in pipeline)
    )


def ask(dataset: Any, batch: Node) -> Gathering:
    """How the rows of `dataset` would be gathered for batches as `batch` makes them."""
    if not all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(dataset.element_spec)):
        return Gathering(why_not="they are sparse or ragged")
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    numbers = tf.data.Dataset.range(int(dataset.cardinality()))
    gathered = numbers.batch(size, drop_remainder=drops).map(gather_from(dataset))
    if gathered.element_spec != dataset.batch(size, drop_remainder=drops).element_spec:
        return Gathering(why_not="they have another form when they are gathered")
    return Gathering(digest=functions.read_facts(gathered._map_func).digest)


def gather_from(dataset: Any) -> Callable[[Any], Any]:
    """The function from a batch of row numbers to the rows of the arrays of a `from_tensor_slices` dataset.

    The arrays are tensors outside of the function: inside they would be constants of its graph.
    """
    arrays = arrays_of(dataset)
    return lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays)


def arrays_of(dataset: Any) -> Any:
    """What was given to `from_tensor_slices`, as tensors."""
    return tf.nest.pack_sequence_as(dataset.element_spec, dataset._tensors)
