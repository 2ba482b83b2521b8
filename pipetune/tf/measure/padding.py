"""Measures the share of padding in the batches of `padded_batch`, from the shapes of a sample of its input."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, SetArgument
from pipetune.core.errors import CannotReplay
from pipetune.core.measurement import RunFailed
from pipetune.core.padding import Padding
from pipetune.core.pipeline import Node, Pipeline
from pipetune.model.padding import Shapes, best_buckets, in_order, most_buckets, padded_share
from pipetune.tf.measure import failures, windows
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_ELEMENTS = 8192
_SECONDS = 1.0
_FEWEST_BATCHES = 4
_SHUFFLED = 2048  # most elements of a shuffle buffer: filling a larger one takes longer than the measurement

Path = tuple[str | int, ...]


def measure_padding(source: live.LivePipeline, counts: Mapping[str, int]) -> dict[str, Padding]:
    """Returns what each `padded_batch` of elements of different sizes adds, by node id; failures are left out.

    Runs the operators upstream of each for about one second at most; the caller restores the state they keep outside.

    Args:
        source: the live pipeline.
        counts: elements per epoch by node id, where more is known than TensorFlow knows.
    """
    found = {}
    for node in source.pipeline:
        size = node.argument("batch_size")
        if node.op != "padded_batch" or not isinstance(size, int) or size < 2:
            continue
        try:
            with failures.told():
                above = source.pipeline[node.inputs[0]]
                padding = _measure(source, node, size, counts.get(above.id, above.cardinality))
        except (RunFailed, CannotReplay):
            continue  # a trial that runs it will report the reason
        if padding is not None:
            found[node.id] = padding
    return found


def _measure(source: live.LivePipeline, node: Node, batch_size: int, per_epoch: int) -> Padding | None:
    dataset = source.datasets[node.id]
    above = replay(source, _above(source.pipeline, node))
    spec = above.element_spec
    varying = [(path, part) for path, part in _components(spec) if _varies(part)]
    if not varying:
        return None
    paths = [path for path, _ in varying]
    item_bytes = [max(1, part.dtype.size) for _, part in varying]  # a string counts like any other item
    elements = _sample(above, paths)
    batches = in_order(len(elements), batch_size)
    if len(batches) < _FEWEST_BATCHES:
        return None
    found = Padding(share=padded_share(elements, item_bytes, batches), batches=len(batches))
    first = [place for place, (_, part) in enumerate(varying) if part.shape[0] is None]
    most = most_buckets(per_epoch, batch_size)
    why = _why_not(dataset, above)
    if not first:
        why = why or "no component is longer or shorter in its first dimension"
    if most < 2:
        why = why or "an epoch has too few batches for buckets of several lengths"
    if why:
        return replace(found, why_not=why)
    decides = max(first, key=lambda place: _alone(place, elements, item_bytes, batches))
    lengths = [shapes[decides][0] for shapes in elements]
    boundaries, bucketed = best_buckets(elements, lengths, item_bytes, batch_size=batch_size, most=most)
    if not boundaries:
        return replace(found, why_not="too few of them were seen to fill a batch of each bucket")
    return replace(
        found,
        length_of=paths[decides],
        unpacked=type(spec) is tuple,
        boundaries=boundaries,
        bucketed_share=bucketed,
    )


def _alone(place: int, elements: list[Shapes], item_bytes: list[int], batches: list[range]) -> float:
    """The share of padding in one component, the others ignored."""
    return padded_share([[shapes[place]] for shapes in elements], [item_bytes[place]], batches)


def _above(pipeline: Pipeline, node: Node) -> Pipeline:
    """The pipeline upstream of `node`, with shuffle buffers that fill quickly."""
    edits: list[Edit] = []
    for one in pipeline.upstream(node.id):
        size = one.argument("buffer_size")
        if one.op == "shuffle" and isinstance(size, int) and size > _SHUFFLED:
            edits.append(SetArgument(one.id, "buffer_size", _SHUFFLED))
    way = {one.id for one in pipeline.upstream(node.id)}
    part = replace(pipeline, nodes=tuple(one for one in pipeline if one.id in way))
    return apply_edits(part, edits)


def _components(spec: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields the path and spec of each component in nested tuples and dicts; none for other structures."""
    if isinstance(spec, tf.TensorSpec):
        yield path, spec
    elif isinstance(spec, dict):
        for key, part in spec.items():
            yield from _components(part, (*path, key))
    elif type(spec) is tuple:
        for position, part in enumerate(spec):
            yield from _components(part, (*path, position))


def _varies(part: Any) -> bool:
    return part.shape.rank is not None and None in part.shape.as_list()


def _sample(above: Any, paths: list[Path]) -> list[Shapes]:
    """Returns the shapes of the components at `paths`, for each of the first elements."""

    def shapes(*element: Any) -> Any:
        whole = element if type(above.element_spec) is tuple else element[0]
        return tuple(tf.shape(at(path, whole)) for path in paths)

    found: list[Shapes] = []
    iterator = iter(windows.undisturbed(above.map(shapes).take(_ELEMENTS)))
    end = time.perf_counter() + _SECONDS
    try:
        for element in iterator:
            found.append([tuple(np.asarray(shape).tolist()) for shape in element])
            if time.perf_counter() > end:
                break
    finally:
        del iterator
        windows.settle()
    return found


def _why_not(dataset: Any, above: Any) -> str:
    """Why batches of buckets would be padded differently from the current ones; "" if they would not."""
    parts = tf.nest.flatten(above.element_spec)
    if any(part.shape.rank is None for part in parts):
        return "it pads components whose number of dimensions is not known"
    given = [part.shape.as_list() for part in parts]
    padded = [[None if one < 0 else one for one in np.asarray(shape).tolist()]
              for shape in tf.nest.flatten(dataset._padded_shapes)]  # fmt: skip
    if padded != given:
        return "it pads to shapes of its own"
    values = [np.asarray(value).item() for value in tf.nest.flatten(dataset._padding_values)]
    return "it pads with values of its own" if any(values) else ""


def at(path: Path, structure: Any) -> Any:
    """Returns the value at these positions and keys in nested tuples and dicts."""
    for step in path:
        structure = structure[step]
    return structure
