"""Cuts a pipeline down to what decides which elements come, so that they can be counted.

Left out: `repeat`, `cache` and `prefetch`; the batches that replicas get and all below them; one-to-one
functions that nothing below depends on; and functions that draw random numbers or run Python, whose results
cannot be recognised from one run to the next, with every function below them. What is left gives records, or
what was made of them, each once per epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Insert, Remove, SetArgument
from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.standalone.numbering import numbered

_BATCHES = frozenset({"batch", "padded_batch"})
_BELOW_BATCH = frozenset(
    {"map", "filter", "repeat", "prefetch", "with_options", "cache", "shuffle", "ignore_errors"}
    | {"assert_cardinality", "take", "skip", "zip", "concatenate"}
)
_ALWAYS_OUT = frozenset({"repeat", "cache", "prefetch", "with_options", "assert_cardinality"})
_ONE_TO_ONE = frozenset({"map", "shuffle"})
_WITH_FUNCTION = frozenset(
    {"filter", "flat_map", "interleave", "scan", "take_while", "group_by_window", "unbatch"}
)
_READERS = frozenset({"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"})
_TEXTS = (tf.string, tf.int64, tf.int32, tf.uint8)


def of_elements(pipeline: Pipeline, *, in_order: bool = False) -> Pipeline:
    """The pipeline that gives the elements to count.

    Args:
        in_order: shuffles stay, because what is counted is divided behind them.
    """
    edits = [Remove(name) for name in _below_batches(pipeline)]
    reduced = apply_edits(pipeline, edits)
    reduced = apply_edits(reduced, _unrecognisable(reduced))
    node = reduced.output
    while len(node.inputs) == 1 and node.op in _ONE_TO_ONE:
        above = reduced[node.inputs[0]]
        if not (in_order and node.op == "shuffle"):
            reduced = apply_edits(reduced, [Remove(node.id)])
        node = above
    return reduced


def of_files(pipeline: Pipeline) -> Pipeline | None:
    """The pipeline that gives the names of the files to read; None where it has none, or not only those."""
    reduced = of_elements(pipeline)
    while reduced.output.op in {*_READERS, "interleave", "flat_map", *_ONE_TO_ONE, "filter"}:
        if len(reduced.output.inputs) != 1:
            return None
        reduced = apply_edits(reduced, [Remove(reduced.output.id)])
    known = {"from_tensor_slices", "shuffle", "shard"}
    return reduced if all(len(node.inputs) <= 1 and node.op in known for node in reduced) else None


def reads_records(pipeline: Pipeline) -> bool:
    """Whether the pipeline opens files."""
    return any(node.op in _READERS or node.inner for node in pipeline)


def repeats_inside(pipeline: Pipeline) -> bool:
    """Whether a function makes datasets that repeat: they may never end."""
    return any(kind.startswith("Repeat") for node in pipeline for kind in node.inner)


def with_most(pipeline: Pipeline, elements: int) -> Pipeline:
    """The pipeline with at most so many elements in front of each division among workers."""
    edits: list[Edit] = [
        Insert(after=node.inputs[0], op="take", id=f"take@{node.id}", arguments={"count": elements})
        for node in pipeline
        if node.op == "shard"
    ]
    return apply_edits(pipeline, edits)


def of_batches(pipeline: Pipeline, *, most: int) -> Pipeline:
    """The whole pipeline without caches, and with shuffle buffers of at most `most` elements."""
    edits: list[Edit] = [Remove(node.id) for node in pipeline if node.op == "cache"]
    edits += [
        SetArgument(node.id, "buffer_size", most)
        for node in pipeline
        if node.op == "shuffle" and isinstance(size := node.argument("buffer_size"), int) and size > most
    ]
    return apply_edits(pipeline, edits)


def fingerprints(source: live.LivePipeline, pipeline: Pipeline) -> tf.data.Dataset:
    """A 64-bit fingerprint of every element of `pipeline`, an edited form of `source`.

    Raises:
        CannotReplay: an operator cannot be rebuilt.
    """
    return _comparable(source, pipeline).map(tf.autograph.experimental.do_not_convert(fingerprint))


def numbered_groups(
    source: live.LivePipeline, pipeline: Pipeline, size: int
) -> tuple[tf.data.Dataset, bool, bool]:
    """The same as matrices of so many rows: the number of an element, where numbers come through, and its fingerprint.

    Returns:
        the dataset, whether it has numbers, and whether these name files (`numbering.Numbered`).

    Raises:
        CannotReplay: an operator cannot be rebuilt.
    """
    dataset = _comparable(source, pipeline)
    together = _of_scalars(dataset.element_spec)  # a call for each group, and not for each element

    def with_number(number: tf.Tensor, element: object) -> tf.Tensor:
        return tf.stack([number, _fingerprints(element) if together else fingerprint(element)], axis=-1)

    def alone(*element: object) -> tf.Tensor:
        return tf.stack([_fingerprints(element) if together else fingerprint(*element)], axis=-1)

    try:
        found = numbered(dataset)
    except CannotReplay:
        return _grouped(dataset, alone, size, together=together), False, False
    return _grouped(found.dataset, with_number, size, together=together), True, found.inside


def numbers(source: live.LivePipeline, pipeline: Pipeline) -> tf.data.Dataset:
    """The numbers alone.

    Raises:
        CannotReplay: an operator cannot be rebuilt, or loses them.
    """
    found = numbered(_comparable(source, pipeline))
    return found.dataset.map(tf.autograph.experimental.do_not_convert(lambda number, _element: number))


def _grouped(dataset: tf.data.Dataset, look: Any, size: int, *, together: bool) -> tf.data.Dataset:
    look = tf.autograph.experimental.do_not_convert(look)
    return dataset.batch(size).map(look) if together else dataset.map(look).batch(size)


def _of_scalars(spec: object) -> bool:
    return all(
        isinstance(part, tf.TensorSpec) and part.shape.rank == 0 and part.dtype in _TEXTS
        for part in tf.nest.flatten(spec)
    )


def _fingerprints(elements: object) -> tf.Tensor:
    """A fingerprint of each of a batch of scalars, the same as of each alone."""
    return _joined([_as_text(part) for part in tf.nest.flatten(elements)])


def _comparable(source: live.LivePipeline, pipeline: Pipeline) -> tf.data.Dataset:
    dataset = replay(source, pipeline)
    if any(isinstance(part, tf.data.DatasetSpec) for part in tf.nest.flatten(dataset.element_spec)):
        raise CannotReplay("The elements are datasets, which cannot be compared.")
    return dataset


def fingerprint(*element: object) -> tf.Tensor:
    """A number of 62 bits that follows from every part of an element."""
    return _joined([_text(part) for part in tf.nest.flatten(element, expand_composites=True)])


def _text(part: tf.Tensor) -> tf.Tensor:
    if part.shape.rank == 0 and part.dtype in _TEXTS:
        return _as_text(part)
    return tf.io.serialize_tensor(part)


def _as_text(part: tf.Tensor) -> tf.Tensor:
    return part if part.dtype == tf.string else tf.strings.as_string(part)


def _joined(texts: list[tf.Tensor]) -> tf.Tensor:
    hashes = [tf.strings.as_string(tf.strings.to_hash_bucket_fast(text, 2**62)) for text in texts]
    return tf.strings.to_hash_bucket_fast(tf.strings.join(hashes, separator=","), 2**62)


def _below_batches(pipeline: Pipeline) -> list[str]:
    """What makes batches for replicas and what stands below, lowest first; joins stay."""
    found: list[str] = []
    todo = [pipeline.output.id]
    batches: list[str] = []
    while todo:
        node = pipeline[todo.pop()]
        if node.op in _BATCHES:
            batches.append(node.id)
        elif node.op in _BELOW_BATCH:
            todo += node.inputs
            if len(node.inputs) == 1:
                found.append(node.id)
    return [*found, *batches] if batches else []


def _unrecognisable(pipeline: Pipeline) -> Iterable[Edit]:
    changed: set[str] = set()  # nodes below a function that was left out
    for node in pipeline:
        below = any(name in changed for name in node.inputs)
        leave = node.op in _ALWAYS_OUT and len(node.inputs) == 1
        if node.op == "map" and (below or _draws(node)):
            leave, below = True, True
        elif below and node.op in _WITH_FUNCTION:
            leave = True
        if below:
            changed.add(node.id)
        if leave:
            yield Remove(node.id)


def _draws(node: Node) -> bool:
    function = node.function
    return function is not None and (function.random or not function.stateless)
