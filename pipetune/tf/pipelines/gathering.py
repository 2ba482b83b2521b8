"""Gathers rows of in-memory arrays by index, a batch at a time, instead of slicing them one by one."""

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

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with in-memory sources upstream of a batch annotated with how a batch of rows is gathered.

    Where functions take windows of the rows by index, the most downstream operator that emits them is annotated.
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
    """Probes how the rows of `node`, or the windows made of them, could be gathered into the batches of `batch`."""
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
    """Returns the function from element indices, int64 [batch], to the batch of those elements.

    The arrays are captured tensors: created inside the function, they would be constants of its graph.

    Args:
        dataset: a `from_tensor_slices`, or one that emits the windows of a series.
        windows: if given, an index is the row that a window starts at, and components have shape [batch, size, ...].
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
    """Returns a dataset of the elements at the indices `numbers` alone; its arrays are no larger than they need.

    The elements are taken from the arrays in the same way as by `gather_from`.
    """
    if operators.kind_of(dataset).op != "from_tensor_slices":
        found = series.read(dataset)
        assert found is not None, dataset
        return series.made_of(series.part_of(found, list(numbers)))
    return tf.data.Dataset.from_tensor_slices(gather_from(dataset)(tf.constant(numbers, tf.int64)))


def arrays_of(dataset: Any) -> Any:
    """Returns the arrays given to `from_tensor_slices` as tensors [rows, ...], in the structure of an element."""
    return tf.nest.pack_sequence_as(dataset.element_spec, dataset._tensors)
