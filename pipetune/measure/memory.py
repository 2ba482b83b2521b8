"""Measures memory while a pipeline runs alone, the contents of its buffers, and the padding in its batches."""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node
from pipetune.core.profile import BufferContents, PaddingShares
from pipetune.measure import machine
from pipetune.measure.caches import with_smaller_shuffles
from pipetune.model.memory import Shapes, best_buckets, max_buckets, padded_share, sequential_batches
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators, iterating


def release_free_memory() -> bool:
    """Releases the allocator's free memory to the system (malloc_trim(3)); returns False if nothing was released.

    Memory that the script used earlier (a filled shuffle buffer, a preview) stays with the process when it is freed,
    and a pipeline that takes the same memory again would seem to need none.
    """
    gc.collect()
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError):
        return False


SAMPLES = 24  # readings of the resident size, by judgement: fewer give a wider interval of the slope
_FILL_SHARE = 1 / 3  # of the time, before the first reading, for buffers and allocator to fill


@dataclass(frozen=True)
class MemorySamples:
    """Observations of memory while a pipeline ran."""

    samples: tuple[tuple[int, float], ...]  # (elements taken so far, resident bytes)
    held: tuple[BufferContents, ...]  # contents of the buffers at the end, largest first


def sample_memory(dataset: Any, *, seconds: float) -> MemorySamples:
    """Returns `SAMPLES` readings of the resident size in about `seconds` while the dataset, repeated, is consumed.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    free_iterators()
    readings: list[tuple[int, float]] = []
    with windows.as_run_failed(), iterating(windows.repeat_forever(dataset)) as iterator:
        next(iterator)
        started, taken = time.perf_counter(), 1
        first = started + _FILL_SHARE * seconds
        between = (1 - _FILL_SHARE) * seconds / SAMPLES
        while len(readings) < SAMPLES:
            next(iterator)
            taken += 1
            if time.perf_counter() >= first + between * len(readings):
                readings.append((taken, float(machine.rss_bytes())))
            if time.perf_counter() > started + 3 * seconds:
                break
        return MemorySamples(tuple(readings), buffer_contents(iterator))


def buffer_contents(iterator: Any) -> tuple[BufferContents, ...]:
    """Returns the contents of the buffers of a running iterator, as counted by the runtime; () without its model."""
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError):
        return ()
    found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for node in model.nodes.values():
        elements, size = found[node.name]
        found[node.name] = (elements + float(node.buffered_elements), size + float(node.buffered_bytes))
    by_size = sorted(found.items(), key=lambda entry: -entry[1][1])
    return tuple(BufferContents(name, elements, size) for name, (elements, size) in by_size if size > 0)


_ELEMENTS = 8192  # in the sample, by judgement: fewer give less exact shares of padding, more take longer
_SECONDS = 1.0  # for the sample, by judgement: slow pipelines then yield fewer elements
_FEWEST_BATCHES = 4  # full batches in the sample, by judgement: with fewer, the share depends on chance
_MOST_SHUFFLE_ELEMENTS = 2048  # of a shuffle buffer: filling a larger one takes longer than the measurement

ComponentPath = tuple[str | int, ...]


def measure_padding(source: live.LivePipeline, counts: Mapping[str, int]) -> dict[str, PaddingShares]:
    """Returns what each `padded_batch` of elements of different sizes adds, by node id; failures are left out.

    Runs the operators upstream of each for about one second at most; the caller restores state that they change.

    Args:
        source: the live pipeline.
        counts: elements per epoch by node id, for operators that were counted.
    """
    found = {}
    for node in source.pipeline:
        size = node.argument("batch_size")
        if node.op != "padded_batch" or not isinstance(size, int) or size < 2:
            continue
        try:
            with windows.as_run_failed():
                above = source.pipeline[node.inputs[0]]
                padding = _measure(source, node, size, counts.get(above.id, above.cardinality))
        except (RunFailed, CannotReplay):
            continue  # a trial that runs it will report the reason
        if padding is not None:
            found[node.id] = padding
    return found


def _measure(source: live.LivePipeline, node: Node, batch_size: int, per_epoch: int) -> PaddingShares | None:
    dataset = source.datasets[node.id]
    upstream = replace(source.pipeline, nodes=source.pipeline.upstream(node.id))
    above = replay(source, with_smaller_shuffles(upstream, {one.id: _MOST_SHUFFLE_ELEMENTS for one in upstream}))
    spec = above.element_spec
    ranked = ((path, part) for path, part in _components(spec) if part.shape.rank is not None)
    varying = [(path, part) for path, part in ranked if None in part.shape.as_list()]
    if not varying:
        return None
    paths = [path for path, _ in varying]
    item_bytes = [max(1, part.dtype.size) for _, part in varying]  # a string counts like any other item
    elements = _sample(above, paths)
    batches = sequential_batches(len(elements), batch_size)
    if len(batches) < _FEWEST_BATCHES:
        return None
    found = PaddingShares(share=padded_share(elements, item_bytes, batches), batches=len(batches))
    first = [place for place, (_, part) in enumerate(varying) if part.shape[0] is None]
    most = max_buckets(per_epoch, batch_size)
    why = _why_not(dataset, above)
    if not first:
        why = why or "no component is longer or shorter in its first dimension"
    if most < 2:
        why = why or "an epoch has too few batches for buckets of several lengths"
    if why:
        return replace(found, why_not=why)

    def component_share(place: int) -> float:
        return padded_share([[shapes[place]] for shapes in elements], [item_bytes[place]], batches)

    decides = max(first, key=component_share)
    lengths = [shapes[decides][0] for shapes in elements]
    boundaries, bucketed = best_buckets(elements, lengths, item_bytes, batch_size=batch_size, bucket_limit=most)
    if not boundaries:
        return replace(found, why_not="too few of them were seen to fill a batch of each bucket")
    return replace(
        found, length_of=paths[decides], unpacked=type(spec) is tuple, boundaries=boundaries, bucketed_share=bucketed
    )


def _components(spec: Any, path: ComponentPath = ()) -> Iterator[tuple[ComponentPath, Any]]:
    """Yields the path and spec of each component in nested tuples and dicts; none for other structures."""
    if isinstance(spec, tf.TensorSpec):
        yield path, spec
    elif isinstance(spec, dict):
        for key, part in spec.items():
            yield from _components(part, (*path, key))
    elif type(spec) is tuple:
        for position, part in enumerate(spec):
            yield from _components(part, (*path, position))


def _sample(above: Any, paths: list[ComponentPath]) -> list[Shapes]:
    """Returns the shapes of the components at `paths`, for each of the first elements."""

    def shapes(*element: Any) -> Any:
        whole = element if type(above.element_spec) is tuple else element[0]
        return tuple(tf.shape(functools.reduce(operator.getitem, path, whole)) for path in paths)

    found: list[Shapes] = []
    with iterating(windows.without_optimizations(above.map(shapes).take(_ELEMENTS))) as iterator:
        end = time.perf_counter() + _SECONDS
        for element in iterator:
            found.append([tuple(np.asarray(shape).tolist()) for shape in element])
            if time.perf_counter() > end:
                break
    return found


def _why_not(dataset: Any, above: Any) -> str:
    """Returns why batches of buckets would be padded differently from the current ones; "" if they would not."""
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
