"""Rows of arrays in memory, a batch at a time: by their numbers instead of one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.functions import Gathering, Windows
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.pipelines import functions, live, operators, series
from pipetune.tf.pipelines.guards import unknown_on_error
from pipetune.tf.pipelines.on_batches import batch_below, reaches
from pipetune.tf.pipelines.row_windows import windows_above

REPLAYS = True  # datasets made below this module are pipetune's, not the user's


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """`pipeline`, told of the arrays in memory above a batch how a batch of their rows would be gathered.

    Where functions make windows of the rows by number, the lowest operator that puts them out is told.
    """
    answers: dict[str, Gathering] = {}
    answered: set[str] = set()
    for node in reversed(pipeline.nodes):
        batch = batch_below(pipeline, node)
        if batch is None or node.id in answered or not reaches(pipeline, node, batch):
            continue
        if node.op == "from_tensor_slices":
            answers[node.id] = ask(source, pipeline, node, batch)
        elif node.op in _ENDS_OF_SERIES and series.read(source.datasets[node.id]) is not None:
            answers[node.id] = replace(ask(source, pipeline, node, batch), singly=True)
            answered |= {above.id for above in pipeline.upstream(node.id)}
    return replace(
        pipeline, nodes=tuple(replace(node, gathering=answers.get(node.id, node.gathering)) for node in pipeline)
    )


_ENDS_OF_SERIES = frozenset({"map", "zip", "prefetch"})


@unknown_on_error(lambda why: Gathering(why_not=why))
def ask(source: live.LivePipeline, pipeline: Pipeline, node: Node, batch: Node) -> Gathering:
    """How the rows of `node`, or the windows made of them, would be gathered for batches as `batch` makes them."""
    dataset = source.datasets[node.id]
    if not all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(dataset.element_spec)):
        return Gathering(why_not="they are sparse or ragged")
    flat_map = next((below for below in pipeline.downstream(node.id) if below.op == "flat_map"), None)
    windows = windows_above(source, pipeline, flat_map) if flat_map is not None else None
    as_now = source.datasets[flat_map.id] if flat_map is not None and windows is not None else dataset
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    numbers = tf.data.Dataset.range(int(dataset.cardinality()))
    gathered = numbers.batch(size, drop_remainder=drops).map(gather_from(dataset, windows))
    if gathered.element_spec != as_now.batch(size, drop_remainder=drops).element_spec:
        return Gathering(why_not="they have another form when they are gathered")
    return Gathering(digest=functions.read_facts(gathered._map_func).digest, windows=windows)


def gather_from(dataset: Any, windows: Windows | None = None) -> Callable[[Any], Any]:
    """The function from a batch of the numbers of a dataset's elements to those elements.

    The dataset is a `from_tensor_slices`, or puts out the windows of a series. With `windows` the numbers are those of
    the rows that they start at. The arrays are tensors outside of the function: inside they would be constants of its
    graph.
    """
    if operators.kind_of(dataset).op != "from_tensor_slices":
        found = series.read(dataset)
        assert found is not None, dataset
        return series.windows_at(found)
    arrays = arrays_of(dataset)
    if windows is None:
        return lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays)

    def windows_at(starts: Any) -> Any:
        rows = starts[:, tf.newaxis] + tf.range(0, windows.size * windows.stride, windows.stride, dtype=tf.int64)

        def take(array: Any) -> Any:
            taken = tf.gather(array, rows)
            if windows.length_known:
                return taken
            return tf.compat.v1.placeholder_with_default(taken, [*starts.shape, None, *array.shape[1:]])

        return tf.nest.map_structure(take, arrays)

    return windows_at


def part_of(dataset: Any, numbers: Sequence[int]) -> Any:
    """The dataset of those elements alone, to gather from: the arrays are no larger than these need.

    They are taken from the arrays as `gather_from` takes them.
    """
    if operators.kind_of(dataset).op != "from_tensor_slices":
        found = series.read(dataset)
        assert found is not None, dataset
        return series.made_of(series.part_of(found, list(numbers)))
    return tf.data.Dataset.from_tensor_slices(gather_from(dataset)(tf.constant(numbers, tf.int64)))


def arrays_of(dataset: Any) -> Any:
    """What was given to `from_tensor_slices`, as tensors."""
    return tf.nest.pack_sequence_as(dataset.element_spec, dataset._tensors)
