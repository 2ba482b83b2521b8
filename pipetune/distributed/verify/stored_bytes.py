"""Determines the bytes and the file that each element of a pipeline comes from, by the numbers of `numbering`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import ElementIdentity
from pipetune.core.operators import READERS
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.numbering import INSIDE_BITS, in_numbered_order
from pipetune.model.coverage import StoredBytes
from pipetune.pipelines import live

_ONE_TO_ONE = frozenset({"MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "OptionsDataset"})
_LEAVING_OUT = ("Shard", "Take", "Filter", "Unique", "IgnoreErrors", "Repeat")  # kernels that drop or repeat elements
_GROUP = 1_024  # records fetched at a time, by judgement: fewer cost more calls of Python, more only memory

Elements = tuple[Any, Any]
"""Numbers and digests of the elements of an epoch: two 1-D int64 arrays of equal length."""


def stored(
    made: live.LivePipeline, epochs: Sequence[Elements], key: ElementIdentity, *, inside: bool
) -> StoredBytes | None:
    """Returns the bytes on storage of each element; None if elements do not come from files, or if it is unknown.

    A record has its own bytes in the file, or in a compressed file its share of them. If single records are not known
    and none is dropped, the bytes of a file are divided evenly among its elements.

    Args:
        key: how elements are identified, INDEX or DIGEST; elements with equal digests get their mean.
        inside: as in `numbering.Numbered`.
    """
    numbers = np.concatenate([one for one, _ in epochs])
    try:
        names = _names(made)
        if names is None or not _reads(made.pipeline):
            return None
        sizes = _sizes(names)
        found = _of_records(made, [one for (one,) in names], sizes, numbers) if inside else np.asarray(sizes)[numbers]
    except (tf.errors.OpError, UnicodeDecodeError, ValueError, IndexError):
        return None
    if found is None:
        return None
    ends_early = any(node.op in ("take", "take_while") for node in numbering.of_elements(made.pipeline))
    if key is ElementIdentity.INDEX:
        of_key = dict(zip(numbers.tolist(), found.tolist(), strict=True))
        return StoredBytes(of_key, tuple(sizes), INSIDE_BITS if inside else 0, ends_early)
    digests, group = np.unique(np.concatenate([one for _, one in epochs]), return_inverse=True)
    shares = np.bincount(group, weights=found) / np.bincount(group)
    of_key = dict(zip(digests.tolist(), shares.tolist(), strict=True))
    return StoredBytes(of_key, tuple(sizes), ends_early=ends_early)


def file_sizes(made: live.LivePipeline) -> tuple[int, ...]:
    """Returns the size of each file that the pipeline reads, in bytes; () if it reads none or sizes are unknown."""
    try:
        names = _names(made)
        return tuple(_sizes(names)) if names is not None and _reads(made.pipeline) else ()
    except (tf.errors.OpError, UnicodeDecodeError, ValueError):
        return ()


def _sizes(names: list[tuple[str, ...]]) -> list[int]:
    return [sum(int(tf.io.gfile.stat(name).length) for name in of_one) for of_one in names]


def _names(made: live.LivePipeline) -> list[tuple[str, ...]] | None:
    """Returns the file names in each element of the only source, in the order of the numbers; None if unknown."""
    sources = [node for node in made.pipeline if not node.inputs]
    if len(sources) != 1:
        return None
    dataset = made.datasets[sources[0].id]
    found = in_numbered_order(getattr(dataset, "_filenames", dataset))
    if found is not None:
        return [(name.decode(),) for name in found.tolist()]
    tensors = [one for one in tensorflow_private.source_tensors(dataset) if hasattr(one, "numpy")]
    columns = [one.numpy().tolist() for one in tensors if one.dtype == tf.string and one.shape.rank == 1]
    files = [column for column in columns if column and tf.io.gfile.exists(column[0])]  # others are labels
    return [tuple(name.decode() for name in row) for row in zip(*files, strict=True)] if files else None


def _reads(pipeline: Pipeline) -> bool:
    """Whether an operator opens the files that elements name."""
    functions = (node.function for node in pipeline if node.op == "map")
    return _opener(pipeline) is not None or any(one is not None and one.reads_files for one in functions)


def _opener(pipeline: Pipeline) -> Node | None:
    """Returns the operator that reads several elements from each file; None if there is none."""
    return next((node for node in pipeline if node.op in READERS or _opens_inside(node)), None)


def _opens_inside(node: Node) -> bool:
    reads = node.function is not None and node.function.reads_files
    return bool(node.inner) and (reads or any(kind.startswith((*_LENGTHS, "FixedLength")) for kind in node.inner))


def _of_records(made: live.LivePipeline, names: list[str], sizes: list[int], numbers: Any) -> Any:
    """Returns the bytes of each numbered record as an array; None if they are unknown."""
    opener = _opener(made.pipeline)
    if opener is None:
        return None
    files, places = numbers >> INSIDE_BITS, numbers & (2**INSIDE_BITS - 1)
    whole = opener.op in READERS
    kinds = [opener.op] if whole else list(opener.inner)
    readers = [kind for kind in kinds if kind.startswith(tuple(_LENGTHS))]
    if len(readers) == 1 and all(kind in _ONE_TO_ONE for kind in kinds if kind not in readers):
        kind = next(name for name in _LENGTHS if readers[0].startswith(name))
        packing = getattr(made.datasets[opener.id], "_compression_type", None) if whole else None
        records = _LENGTHS[kind](names, packing)
        if (places >= np.asarray([len(one) for one in records])[files]).any():
            return None
        shares = [_shares(one, size) for one, size in zip(records, sizes, strict=True)]
        return np.concatenate(shares)[np.cumsum([0, *map(len, records)])[files] + places]
    others = [node for node in numbering.of_elements(made.pipeline) if node.inputs and node.op != opener.op]
    if any(node.op not in numbering.KEEPING for node in others) or any(kind.startswith(_LEAVING_OUT) for kind in kinds):
        return None
    counts = np.bincount(np.unique(numbers) >> INSIDE_BITS, minlength=len(names))
    return np.asarray(sizes)[files] / counts[files]


def _shares(lengths: Any, size: int) -> Any:
    """Divides the `size` bytes of a file among its records in proportion to their lengths; the sum is exact."""
    total = lengths.sum()
    return np.diff(np.rint(np.cumsum(lengths) * (size / total)).astype(int), prepend=0) if total else lengths


def _lengths_of(read: Callable[..., Any], around: int, names: list[str], packing: Any) -> list[Any]:
    """Returns the length of every record of every file in bytes, one array per file.

    `around`: bytes of a record in addition to its content. `packing`: compression type; None: unknown.
    """
    with tf.io.gfile.GFile(names[0], "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    first, second = ("GZIP", "") if packed else ("", "ZLIB")
    try:
        return _lengths(read, around, names, first if packing is None else packing)
    except tf.errors.DataLossError:
        if packing is not None:
            raise
        return _lengths(read, around, names, second)


def _lengths(read: Callable[..., Any], around: int, names: list[str], packing: Any) -> list[Any]:
    def of_file(number: Any, name: Any) -> Any:
        records = read(name, compression_type=packing).batch(_GROUP)
        return records.map(lambda group: (number, tf.strings.length(group)))

    found: list[list[Any]] = [[np.zeros(0, np.int64)] for _ in names]
    dataset = tf.data.Dataset.from_tensor_slices(names).enumerate()
    for number, lengths in dataset.flat_map(tf.autograph.experimental.do_not_convert(of_file)).as_numpy_iterator():
        found[number].append(lengths.astype(np.int64) + around)
    return [np.concatenate(groups) for groups in found]


_LENGTHS: Mapping[str, Callable[[list[str], Any], list[Any]]] = {
    # Bytes around the content: length and checksums of a TFRecord, the end of a line.
    "TFRecord": partial(_lengths_of, tf.data.TFRecordDataset, 16),
    "TextLine": partial(_lengths_of, tf.data.TextLineDataset, 1),
}
