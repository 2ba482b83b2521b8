"""Computes how many elements a sample needs, and how many it may have at the end of an epoch.

A sample must be longer than everything it feeds: 256 rows never fill a window of 2,000.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.pipelines import live

BATCHING = ("batch", "padded_batch")

_MOST_ELEMENTS = 20_000
"""Limit where elements are drawn one by one: at 20 us each, four times over, two of a comparison's seven seconds."""

_MOST_ROWS = 200_000
"""Limit for rows of in-memory arrays, which are not drawn one by one."""


def elements_needed(source: live.LivePipeline, pipeline: Pipeline, at: Iterable[str], *, least: int) -> int:
    """How many elements the operators `at` must yield for two full batches, a partial one, and output after each skip.

    Always enough for two of the largest window or group, whatever that costs; for batches, limited by what can be
    drawn in time (`_MOST_ELEMENTS`, `_MOST_ROWS`).

    Args:
        at: ids of the operators whose elements are recorded or cut; ids that `pipeline` does not have are ignored.
        least: lower bound of the result.
    """
    names = [name for name in at if name in pipeline]
    wanted = _needed(source, pipeline, {pipeline.output.id: 3 if batch_sizes(pipeline) else least})
    least = max([least, *(at_least(source, pipeline, name) for name in names)])
    rows_in_memory = names and all(pipeline[name].op == "from_tensor_slices" for name in names)
    most = max(least, _MOST_ROWS if rows_in_memory else _MOST_ELEMENTS)
    return min(most, max([least, *(wanted.get(name, 0) for name in names)]))


def at_least(source: live.LivePipeline, pipeline: Pipeline, name: str) -> int:
    """How many elements of an operator fill two of the largest window or group downstream; 1 if there is none."""
    grouping = [node.id for node in pipeline.downstream(name) if node.op in ("window", "group_by_window")]
    return max([1, *(_needed(source, pipeline, {node_id: 2}).get(name, 0) for node_id in grouping)])


def _needed(source: live.LivePipeline, pipeline: Pipeline, ends: Mapping[str, int]) -> dict[str, int]:
    """For each operator upstream of `ends`, how many elements it must yield for the given number at each end."""
    needed = dict(ends)
    for node in reversed(pipeline.nodes):
        if node.id in needed:
            given = _taken_for(node, needed[node.id], source)
            for name in node.inputs:
                needed[name] = max(needed.get(name, 0), given)
    return needed


def _taken_for(node: Node, count: int, source: live.LivePipeline) -> int:
    """How many elements an operator consumes to yield `count`."""
    match node.op:
        case "batch" | "padded_batch":
            size = number(node, "batch_size")
            return count * size - size // 2 if count > 1 else size
        case "window":
            size, shift, stride = number(node, "size"), number(node, "shift"), number(node, "stride")
            return (count - 1) * shift + (size - 1) * stride + 1
        case "group_by_window":
            return count * (group_size(source.datasets.get(node.id)) or 1)
        case "skip":
            return count + number(node, "count")
        case "take":
            return min(count, number(node, "count")) if number(node, "count") > 0 else count
        case "shard":
            return count * max(1, number(node, "num_shards"))
    return count


def group_size(dataset: Any) -> int | None:
    """The window size of a live `group_by_window`; None if it depends on the key."""
    function = getattr(dataset, "_window_size_func", None)
    if function is None:
        return None
    value = tf.get_static_value(function.function.graph.outputs[0])
    return None if value is None else int(value)


def batch_sizes(pipeline: Pipeline) -> list[int]:
    """The batch sizes along the pipeline."""
    return [number(node, "batch_size") for node in pipeline.nodes if node.op in BATCHING]


def with_partial_batch(pipeline: Pipeline, count: int, *, whole: bool) -> int:
    """The largest number of elements up to `count` that leaves the last batch partial or, if `whole`, full."""
    sizes = [size for size in batch_sizes(pipeline) if 1 < size < count]
    product = math.prod(sizes)
    if whole:
        return count - count % product if product <= count else count
    while count > 1 and any(count % size == 0 for size in sizes):
        count -= 1
    return count


def counts_ending_in(pipeline: Pipeline, start: str, rests: Iterable[int], *, available: int) -> dict[int, int]:
    """For each number of rows in `rests`, how many elements of `start` leave that many for the last batch of an epoch.

    Takes the fewest elements with one full batch before the last one, or with no batch before it if too few are
    available. Operators whose output count cannot be predicted (a filter) are assumed to pass every element through.

    Args:
        start: an operator upstream of the first batch.
        rests: numbers of rows; those that cannot be reached are left out of the result.
        available: how many elements `start` has.
    """
    between: list[Node] = []
    for node in pipeline.downstream(start):
        if node.op in BATCHING:
            break
        between.append(node)
    else:
        return {}
    size = number(node, "batch_size")
    found: dict[int, int] = {}
    for rest in dict.fromkeys(rests):
        if not 0 < rest < size:
            continue
        for rows in (size + rest, rest):
            count = bisect.bisect_left(range(available + 1), rows, key=lambda count: _arriving(between, count))
            if 0 < count <= available and _arriving(between, count) == rows:
                found[rest] = count
                break
    return found


def _arriving(between: Iterable[Node], count: int) -> int:
    """How many elements leave these operators in one epoch if `count` enter them."""
    for node in between:
        given = number(node, "count")
        if node.op == "take" and given > 0:
            count = min(count, given)
        elif node.op == "skip":
            count = max(0, count - given)
        elif node.op == "shard":
            index = node.argument("index")
            count = max(0, -(-(count - (index if isinstance(index, int) else 0)) // max(1, number(node, "num_shards"))))
        elif node.op == "window":
            reach = (number(node, "size") - 1) * number(node, "stride")
            count = max(0, -(-(count - reach) // number(node, "shift")))
        elif node.op == "repeat" and given == 2:
            count *= 2
    return count


def shuffle_limits(pipeline: Pipeline, *, files: int, count: int, expands: Iterable[str]) -> dict[int, int]:
    """For each shuffle buffer size, a limit that keeps the buffer smaller than the data: a third of it, at least 2.

    Args:
        files: number of source elements where each one becomes many downstream (file names).
        count: number of elements after that expansion.
        expands: ids of shuffles whose elements become many downstream.
    """
    limits: dict[int, int] = {}
    many = set(expands)
    for node in pipeline.nodes:
        if node.op == "shuffle":
            above = pipeline.upstream(node.id)
            product = math.prod(number(other, "batch_size") for other in above if other.op in BATCHING)
            size = number(node, "buffer_size")
            data = files if node.id in many else count // product
            limits[size] = min(limits.get(size, size), max(2, data // 3))
    return limits


def is_batched(pipeline: Pipeline) -> bool:
    """Whether an element of the output is a batch of rows."""
    kinds = [node.op for node in pipeline.nodes if node.op in (*BATCHING, "to_ragged", "unbatch")]
    return bool(kinds) and kinds[-1] != "unbatch"


def number(node: Node, name: str) -> int:
    """The value of a positive integer argument; if it is not one, 0 for counts and 1 for sizes."""
    value = node.argument(name)
    return value if isinstance(value, int) and value > 0 else 0 if name in ("count", "num_shards") else 1
