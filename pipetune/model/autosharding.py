"""How TensorFlow's autosharding sees a pipeline: whether it finds files to divide, and whether it knows the batch size.

TensorFlow walks upstream from the end of the pipeline and handles a fixed list of operators (`auto_shard.cc`,
`compute_batch_size_op.cc`); at any other operator it gives up. Both answers were compared with TensorFlow 2.21,
operator by operator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.operators import public_name
from pipetune.core.pipeline import Node, Pipeline

READERS = frozenset({"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"})
"""Readers whose files TensorFlow can divide; not `CsvDataset`, nor a map that calls `tf.io.read_file`."""

_EVERY_INPUT = frozenset({"concatenate", "zip"})
_FILES_SEEN_THROUGH = frozenset(
    {"assert_cardinality", "batch", "cache", "filter", "flat_map", "interleave", "map", "padded_batch", "prefetch",
     "ragged_batch", "rebatch", "repeat", "shard", "shuffle", "skip", "take", "to_ragged", "unbatch", "window",
     "with_options"}
)  # fmt: skip
_SIZE_SEEN_THROUGH = frozenset(
    {"assert_cardinality", "cache", "filter", "prefetch", "repeat", "shard", "shuffle", "skip", "take", "with_options"}
)
_BATCHES = frozenset({"batch", "padded_batch", "ragged_batch"})
_FIRST_DIMENSION = re.compile(r"shape=\((\d*)")


@dataclass(frozen=True)
class Files:
    """Where TensorFlow would divide files; true if it can."""

    divided_at: tuple[str, ...]  # file-reading operators that it inserts a shard upstream of; empty if it cannot
    stopped_at: str = ""  # the operator at which it gave up; empty if it did not

    def __bool__(self) -> bool:
        return not self.stopped_at


def found(pipeline: Pipeline) -> Files:
    """Whether the policy FILE can be applied to `pipeline`; with AUTO, this decides between FILE and DATA."""
    divided: list[str] = []
    todo = [pipeline.output]
    while todo:
        node = todo.pop()
        if node.op in READERS or any(public_name(kernel) in READERS for kernel in node.inner):
            divided.append(node.id)
        elif not node.inputs or node.op not in _FILES_SEEN_THROUGH | _EVERY_INPUT:
            return Files((), node.id)
        else:
            todo += [pipeline[name] for name in node.inputs]
    return Files(tuple(divided))


def batch_size_known(pipeline: Pipeline) -> bool:
    """Whether TensorFlow can infer the global batch size without reading: from the shapes, or from the last batch.

    A `map` after `batch`, or `batch(num_parallel_calls=...)`, hides it if the shapes do not contain it.
    """
    spec = pipeline.output.spec
    first = _FIRST_DIMENSION.findall(spec)
    if all(first) and 0 < len(first) == spec.count("Spec("):
        return len(set(first)) == 1
    return bool(_sizes(pipeline, [pipeline.output]))


def _sizes(pipeline: Pipeline, nodes: Sequence[Node]) -> set[int]:
    """The common batch size of all these nodes, as a set; empty if there is none or more than one."""
    found: set[int] = set()
    for node in nodes:
        size = node.argument("batch_size")
        if node.op in _BATCHES and node.argument("num_parallel_calls") is None and isinstance(size, int):
            found.add(size)
        elif node.op in _EVERY_INPUT or node.op in _SIZE_SEEN_THROUGH:
            above = _sizes(pipeline, [pipeline[name] for name in node.inputs])
            if not above:
                return set()
            found |= above
        else:
            return set()
    return found if len(found) == 1 else set()
