"""Which elements are compared: how many a sample needs and may have at the end of an epoch, and generated inputs that a
sample of the user's data may lack, for the functions that a plan changes.

A sample must be longer than everything it feeds: 256 rows never fill a window of 2,000.

Rows that are all equal except one, zeros of both signs, infinities, NaN, denormals, the limits of a dtype and values
beyond those of a smaller one: a function that is wrong on batches may be right on every sampled element. Text cannot be
generated; real records are modified instead: a feature is missing, empty or longer.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.pipeline import Node, Pipeline
from pipetune.equality.sharing import ChangedRegion, RecordedElements
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
    batches = batch_sizes(pipeline) or any(node.op == "group_by_window" for node in pipeline)
    ends = {pipeline.output.id: full_batches + 1 if batches else minimum}
    required = _required_elements(source, pipeline, ends, filtered or {})
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
            sizes = group_sizes(source.datasets.get(node.id))
            return sum(sizes) - len(sizes) + (count - 1) * max(sizes) + 1  # all others nearly full
        case "skip":
            return count + positive_argument(node, "count")
        case "take":
            return min(count, positive_argument(node, "count") or count)
        case "shard":
            return count * max(1, positive_argument(node, "num_shards"))
    return count


def group_sizes(dataset: Any) -> list[int]:
    """Returns the window sizes of a live `group_by_window`: [1] if they are unknown.

    There are several where the key chooses one of several constants, as in `bucket_by_sequence_length`.
    """
    function = getattr(dataset, "_window_size_func", None)
    if function is None:
        return [1]
    size = function.function.graph.outputs[0]
    while size.op.type == "Identity":
        size = size.op.inputs[0]
    value = tf.get_static_value(size.op.inputs[0] if size.op.type == "StridedSlice" else size)
    return [1] if value is None else np.ravel(value).tolist()


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


MIN_ELEMENTS = 41
"""Elements to generate unless batches need more: each kind occurs, at several positions of a SIMD packet."""

_MAX_BYTES = 32e6  # of all generated elements, by judgement: fewer test fewer batch positions, more take longer


def generate(
    region: ChangedRegion, *, count: int, seed: int, sample: RecordedElements | None, extremes: bool
) -> RecordedElements | None:
    """Generates up to `count` elements for the start of a region, without those that its functions reject.

    Returns None if a component is not a tensor of known shape, if there is no sample of a text component, if there is
    text and the functions are not stateless, or if every element is rejected.

    Args:
        count: number of elements, at most; at least 3 are generated.
        sample: recorded elements of the start; None if there are none.
        extremes: whether to include values at and beyond numeric limits: NaN, infinities, denormals, dtype limits.
    """
    dataset = region.sides[0].live.datasets[region.start]
    specs = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        return None
    texts = _sampled_texts(sample, specs)
    specs = _with_known_shapes(specs, sample)
    if specs is None or any(spec.dtype == tf.string and not texts[place] for place, spec in enumerate(specs)):
        return None
    if any(texts) and not region.stateless:
        return None  # rejected text cannot be found beforehand, and would shift the draws differently in each pipeline
    draw = np.random.default_rng(seed)
    size = sum(spec.shape.num_elements() * max(1, spec.dtype.size) for spec in specs)
    count = int(max(3, min(count, _MAX_BYTES / max(1, size))))
    parts = [
        _modified_texts(texts[place], spec, count, draw)
        if spec.dtype == tf.string
        else _numeric_rows(spec, count, draw, extremes=extremes)
        for place, spec in enumerate(specs)
    ]
    taken = _accepted_indices(region, parts)
    if not taken:
        return None
    rows = [tf.gather(part, tf.constant(taken, tf.int64)) for part in parts]
    stacked = tf.nest.pack_sequence_as(dataset.element_spec, rows)
    return RecordedElements(
        dataset.element_spec, (), True, "generated", positions=tuple(range(len(taken))), rows=stacked, generated=True
    )


def roll_rows(recording: RecordedElements, by: int) -> RecordedElements:
    """Returns the recording with its rows rotated by `by`, so that rare values have other positions in a batch."""
    return replace(recording, rows=tf.nest.map_structure(lambda rows: tf.roll(rows, -by, 0), recording.rows))


# -- elements


def _with_known_shapes(specs: Sequence[Any], sample: RecordedElements | None) -> list[Any] | None:
    """Returns the specs, with unknown dimensions taken from a sampled element; None if there is no sample."""
    if all(spec.shape.is_fully_defined() for spec in specs):
        return list(specs)
    first = next(_elements(sample), None) if sample is not None else None
    if first is None:
        return None
    return [tf.TensorSpec(part.shape, spec.dtype) for part, spec in zip(first, specs, strict=True)]


def _elements(sample: RecordedElements) -> Iterator[list[Any]]:
    if sample.rows is not None:
        parts = tf.nest.flatten(sample.rows)
        for place in range(len(sample)):
            yield [part[place] for part in parts]
    else:
        for element in sample.passes[0]:
            yield tf.nest.flatten(element)


def _sampled_texts(sample: RecordedElements | None, specs: Sequence[Any]) -> list[list[Any]]:
    """Returns up to `MIN_ELEMENTS` sampled values of each component that is text; [] for the others."""
    found: list[list[Any]] = [[] for _ in specs]
    text = [place for place, spec in enumerate(specs) if spec.dtype == tf.string]
    if sample is not None and text:
        for element in islice(_elements(sample), MIN_ELEMENTS):
            for place in text:
                found[place].append(element[place].numpy())
    return found


_EDGE_VALUES = (
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 127.5, 128.0, 255.0, 256.0, 300.0, 32768.0, 65536.0, 3e9,
    1e19, 1e-40, -1e-40, 3e-39, 1e38, -3e38,
)  # fmt: skip
"""Values that break numeric code: signed zeros, halves, limits of integer dtypes and values beyond them, denormals."""


def _numeric_rows(spec: Any, count: int, generator: np.random.Generator, *, extremes: bool) -> Any:
    """Returns `count` rows of numbers: mostly distinct, some rare values, equal rows with one exception, and zeros."""
    shape = (count, *spec.shape)
    values: Any
    if spec.dtype == tf.bool:
        values = generator.random(shape) < 0.5
    elif spec.dtype.is_integer:
        limits = np.iinfo(spec.dtype.as_numpy_dtype)
        values = generator.integers(0, min(limits.max, 255), shape, endpoint=True)
        small = generator.random((count, *(1 for _ in spec.shape))) < 0.6  # rows of small numbers, which may be indices
        values = np.where(small, values % 10, values)
        if extremes:
            rare = generator.random(shape) < 0.05
            values = np.where(rare, generator.choice([limits.min, limits.max, 0, max(limits.min, -3)], shape), values)
    else:
        kind = generator.integers(0, 3, (count, *(1 for _ in spec.shape)))
        values = np.select(
            [kind == 0, kind == 1],
            [generator.random(shape), generator.normal(size=shape) * 3],
            np.floor(generator.random(shape) * 256),
        )
        if extremes:
            rare = generator.random(shape) < 0.08
            values = np.where(rare, generator.choice(_EDGE_VALUES, shape), values)
    identical = slice(count // 2, count // 2 + count // 4)
    values[identical] = values[count // 2]
    values[count // 2 + count // 8] = values[0]
    if count > 4:
        values[-1] = 0
        values[-2] = -0.0 if spec.dtype.is_floating and extremes else 0
    with np.errstate(all="ignore"):
        return tf.constant(values.astype(spec.dtype.as_numpy_dtype), spec.dtype)


def _modified_texts(texts: Sequence[Any], spec: Any, count: int, generator: np.random.Generator) -> Any:
    """Returns sampled text, every other row modified."""
    flat: list[bytes] = []
    for place in range(count):
        row = np.asarray(texts[place % len(texts)], object).reshape(-1).tolist()
        flat += [_modify_text(bytes(text), place, generator) if place % 2 else bytes(text) for text in row]
    return tf.reshape(tf.constant(flat, tf.string), (count, *spec.shape))


def _modify_text(text: bytes, place: int, generator: np.random.Generator) -> bytes:
    example = tf.train.Example()
    try:
        example.ParseFromString(text)
    except Exception:  # not a tf.train.Example; protobuf's own exception class is private
        example = tf.train.Example()
    names = sorted(example.features.feature)
    if not names:
        return (text[: len(text) // 2], text + text, b"", text[:-1])[place // 2 % 4]
    feature = example.features.feature[names[int(generator.integers(len(names)))]]
    values = getattr(feature, feature.WhichOneof("kind") or "int64_list").value
    match place // 2 % 3:
        case 0:
            del example.features.feature[names[int(generator.integers(len(names)))]]
        case 1:
            del values[:]
        case _:
            values.extend(list(values))
    return bytes(example.SerializeToString())


# -- elements that functions accept


def _accepted_indices(region: ChangedRegion, parts: Sequence[Any]) -> list[int]:
    """Returns the indices of the elements that no function of the original rejects.

    All of them if a function has state: it must not be called outside a pipeline.
    """
    count = int(parts[0].shape[0])
    functions = [traced.function for _, traced in region.functions] if region.stateless else []
    if not functions:
        return list(range(count))

    def call(index: Any, element: Sequence[Any]) -> Any:
        for function in functions:
            element = tf.nest.flatten(function(*element))
        return index, tuple(element)  # what is no output would not be computed

    # In a pipeline, as the functions run in the script: eager calls may run on a GPU, where other elements fail.
    rows = tf.data.Dataset.from_tensor_slices(tuple(parts)).enumerate()
    try:
        called = rows.map(tf.autograph.experimental.do_not_convert(call)).ignore_errors()
        return [int(index) for index, _ in called]
    except Exception:  # no element has the shapes that the functions take
        return []
