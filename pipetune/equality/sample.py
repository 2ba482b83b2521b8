"""Computes how many elements a sample needs, and how many it may have at the end of an epoch.

A sample must be longer than everything it feeds: 256 rows never fill a window of 2,000.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

import tensorflow as tf

from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.element_counting import output_count

BATCHING = ("batch", "padded_batch")

_MAX_ELEMENTS = 20_000
"""Limit if elements are drawn one by one: four runs at 20 us per element take two of a comparison's seven seconds."""

_MAX_ROWS = 200_000
"""Limit for rows of in-memory arrays, which are not drawn one by one."""


def elements_needed(
    source: live.LivePipeline,
    pipeline: Pipeline,
    names: Iterable[str],
    *,
    minimum: int,
    full_batches: int = 2,
    filtered: Mapping[str, float] | None = None,
) -> int:
    """Returns how many elements operators must yield for some full batches, a partial one and output past skips.

    Always enough for two of the largest window or group, at any cost; for batches, limited to the number that can be
    drawn in time (`_MAX_ELEMENTS`, `_MAX_ROWS`).

    Args:
        pipeline: that of `source`, or an edited form of it.
        names: ids of the operators whose elements are recorded or cut; ids that `pipeline` does not have are ignored.
        minimum: lower bound of the result.
        filtered: id of a filter -> elements it takes per element it passes on; it passes on all where that is unknown.
    """
    names = [name for name in names if name in pipeline]
    required = _required_elements(
        source, pipeline, {pipeline.output.id: full_batches + 1 if batch_sizes(pipeline) else minimum}, filtered or {}
    )
    minimum = max([minimum, *(elements_for_two_windows(source, pipeline, name) for name in names)])
    rows_in_memory = names and all(pipeline[name].op == "from_tensor_slices" for name in names)
    most = max(minimum, _MAX_ROWS if rows_in_memory else _MAX_ELEMENTS)
    return min(most, max([minimum, *(required.get(name, 0) for name in names)]))


def elements_for_two_windows(source: live.LivePipeline, pipeline: Pipeline, name: str) -> int:
    """Returns how many elements of operator `name` fill two of the largest windows or groups downstream; at least 1."""
    grouping = [node.id for node in pipeline.downstream(name) if node.op in ("window", "group_by_window")]
    return max([1, *(_required_elements(source, pipeline, {node_id: 2}, {}).get(name, 0) for node_id in grouping)])


def _required_elements(
    source: live.LivePipeline, pipeline: Pipeline, ends: Mapping[str, int], filtered: Mapping[str, float]
) -> dict[str, int]:
    """Returns how many elements each operator upstream of `ends` must yield for the given number at each end."""
    needed = dict(ends)
    for node in reversed(pipeline.nodes):
        if node.id in needed:
            given = _elements_consumed(node, math.ceil(needed[node.id] * filtered.get(node.id, 1.0)), source)
            for name in node.inputs:
                needed[name] = max(needed.get(name, 0), given)
    return needed


def _elements_consumed(node: Node, count: int, source: live.LivePipeline) -> int:
    """Returns how many elements an operator consumes to yield `count`."""
    match node.op:
        case "batch" | "padded_batch":
            size = positive_argument(node, "batch_size")
            return count * size - size // 2 if count > 1 else size
        case "window":
            size, shift, stride = (positive_argument(node, name) for name in ("size", "shift", "stride"))
            return (count - 1) * shift + (size - 1) * stride + 1
        case "group_by_window":
            return count * (group_size(source.datasets.get(node.id)) or 1)
        case "skip":
            return count + positive_argument(node, "count")
        case "take":
            return min(count, positive_argument(node, "count") or count)
        case "shard":
            return count * max(1, positive_argument(node, "num_shards"))
    return count


def group_size(dataset: Any) -> int | None:
    """Returns the window size of a live `group_by_window`; None if it depends on the key."""
    function = getattr(dataset, "_window_size_func", None)
    value = tf.get_static_value(function.function.graph.outputs[0]) if function is not None else None
    return None if value is None else int(value)


def batch_sizes(nodes: Iterable[Node]) -> list[int]:
    """Returns the batch sizes along operators."""
    return [positive_argument(node, "batch_size") for node in nodes if node.op in BATCHING]


def count_with_partial_batch(pipeline: Pipeline, count: int, *, full: bool) -> int:
    """Returns the largest number of elements up to `count` that leaves the last batch partial or, if `full`, full."""
    sizes = [size for size in batch_sizes(pipeline) if 1 < size < count]
    product = math.prod(sizes)
    if full:
        return count - count % product if product <= count else count
    while count > 1 and any(count % size == 0 for size in sizes):
        count -= 1
    return count


def counts_for_last_batch(
    pipeline: Pipeline, start: str, remainders: Iterable[int], *, available: int
) -> dict[int, int]:
    """Returns, for each number of rows in `remainders`, how many elements of `start` leave it for the last batch.

    None are returned if `drop_remainder` drops such a batch. Takes the fewest elements with one full batch before the
    last one, or with no batch before it if too few are available. Operators whose output count cannot be predicted (a
    filter) are assumed to pass every element through.

    Args:
        start: an operator upstream of the first batch.
        remainders: numbers of rows; those that cannot be reached are left out of the result.
        available: how many elements `start` has.
    """
    below = pipeline.downstream(start)
    between = list(takewhile(lambda node: node.op not in BATCHING, below))
    batch = next(iter(below[len(between) :]), None)
    if batch is None or batch.argument("drop_remainder"):
        return {}
    size = positive_argument(batch, "batch_size")
    found: dict[int, int] = {}
    for rest in (rest for rest in remainders if 0 < rest < size):
        for rows in (rest, size + rest):  # the latter, if it can be had
            count = bisect.bisect_left(range(available + 1), rows, key=lambda count: _output_count(between, count))
            if 0 < count <= available and _output_count(between, count) == rows:
                found[rest] = count
    return found


def _output_count(nodes: Iterable[Node], count: int) -> int:
    """Returns how many elements leave these operators in one epoch if `count` enter them."""
    for node in nodes:
        if node.op == "window":
            reach = (positive_argument(node, "size") - 1) * positive_argument(node, "stride")
            count = max(0, -(-(count - reach) // positive_argument(node, "shift")))
        elif node.op == "repeat":
            count *= 2 if node.argument("count") == 2 else 1
        elif (exact := output_count(node, [count])) is not None:
            count = exact
    return count


def positive_argument(node: Node, name: str) -> int:
    """Returns the value of an argument; if it is not a positive integer, 0 for counts and 1 for sizes."""
    value = node.argument(name)
    return value if isinstance(value, int) and value > 0 else 0 if name in ("count", "num_shards") else 1
