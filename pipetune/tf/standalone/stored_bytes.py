"""Finds out how many bytes of which file each element of a pipeline is of, by the numbers that `numbering` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.coverage import Identity
from pipetune.core.pipeline import Node, Pipeline
from pipetune.model.stored import Stored
from pipetune.tf import private
from pipetune.tf.pipelines import live, operators
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.numbering import INSIDE_BITS, in_numbered_order

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_ONE_TO_ONE = frozenset({"MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "OptionsDataset"})
_LEAVING_OUT = ("Shard", "Take", "Filter", "Unique", "IgnoreErrors", "Repeat")  # kinds: or putting out again
_KEEPING = frozenset({"map", "shuffle", "repeat", "cache", "prefetch", "with_options", "assert_cardinality"})
_GROUP = 1_024

Elements = tuple[Any, Any]
"""Of an epoch: numbers and digests, arrays of the same length."""


def stored(made: live.LivePipeline, epochs: Sequence[Elements], key: Identity, *, inside: bool) -> Stored | None:
    """What the elements of these epochs are of; None where they come from no files, or that is not known.

    A record is of its own bytes in the file; of a file that is packed each record takes its share. Where records
    cannot be told from one another, and none is left out, elements share their file evenly.

    Args:
        made: the pipeline.
        key: what they are told apart by, NUMBER or DIGEST; equal digests share evenly.
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
    ends_early = any(node.op in ("take", "take_while") for node in probe.of_elements(made.pipeline))
    if key is Identity.NUMBER:
        of_key = dict(zip(numbers.tolist(), found.tolist(), strict=True))
        return Stored(of_key, tuple(sizes), INSIDE_BITS if inside else 0, ends_early)
    digests, group = np.unique(np.concatenate([one for _, one in epochs]), return_inverse=True)
    shares = np.bincount(group, weights=found) / np.bincount(group)
    of_key = dict(zip(digests.tolist(), shares.tolist(), strict=True))
    return Stored(of_key, tuple(sizes), ends_early=ends_early)


def file_sizes(made: live.LivePipeline) -> tuple[int, ...]:
    """The bytes of each file that the pipeline reads; () where it reads none, or that is not known."""
    try:
        names = _names(made)
        return tuple(_sizes(names)) if names is not None and _reads(made.pipeline) else ()
    except (tf.errors.OpError, UnicodeDecodeError, ValueError):
        return ()


def _sizes(names: list[tuple[str, ...]]) -> list[int]:
    return [sum(int(tf.io.gfile.stat(name).length) for name in of_one) for of_one in names]


def _names(made: live.LivePipeline) -> list[tuple[str, ...]] | None:
    """The names of the files that stand behind each number of the only source, in the order of the numbers."""
    sources = [node for node in made.pipeline if not node.inputs]
    if len(sources) != 1:
        return None
    dataset = made.datasets[sources[0].id]
    found = in_numbered_order(getattr(dataset, "_filenames", dataset))
    if found is not None:
        return [(name.decode(),) for name in found.tolist()]
    texts = [one for one in private.source_tensors(dataset) if one.dtype == tf.string and one.shape.rank == 1]
    columns = [one.numpy().tolist() for one in texts if hasattr(one, "numpy")]
    files = [column for column in columns if column and tf.io.gfile.exists(column[0])]  # others are labels
    return [tuple(name.decode() for name in row) for row in zip(*files, strict=True)] if files else None


def _reads(pipeline: Pipeline) -> bool:
    """Whether anything opens the files that elements name."""
    return _opener(pipeline) is not None or any(
        node.op == "map" and node.function is not None and node.function.reads_files for node in pipeline
    )


def _opener(pipeline: Pipeline) -> Node | None:
    """The operator that makes several elements of what it reads in each file."""
    return next((node for node in pipeline if node.op in operators.READERS or _opens_inside(node)), None)


def _opens_inside(node: Node) -> bool:
    reads = node.function is not None and node.function.reads_files
    return bool(node.inner) and (reads or any(kind.startswith((*_LENGTHS, "FixedLength")) for kind in node.inner))


def _of_records(made: live.LivePipeline, names: list[str], sizes: list[int], numbers: Any) -> Any:
    """The bytes of each numbered record; None where they are not known."""
    opener = _opener(made.pipeline)
    if opener is None:
        return None
    files, places = numbers >> INSIDE_BITS, numbers & (2**INSIDE_BITS - 1)
    whole = opener.op in operators.READERS
    kinds = [opener.op] if whole else list(opener.inner)
    told = [kind for kind in kinds if kind.startswith(tuple(_LENGTHS))]
    if len(told) == 1 and all(kind in _ONE_TO_ONE for kind in kinds if kind not in told):
        kind = next(name for name in _LENGTHS if told[0].startswith(name))
        packing = getattr(made.datasets[opener.id], "_compression_type", None) if whole else None
        records = _LENGTHS[kind](names, packing)
        if (places >= np.asarray([len(one) for one in records])[files]).any():
            return None
        shares = [_shares(one, size) for one, size in zip(records, sizes, strict=True)]
        return np.concatenate(shares)[np.cumsum([0, *map(len, records)])[files] + places]
    others = [node for node in probe.of_elements(made.pipeline) if node.inputs and node.op != opener.op]
    if any(node.op not in _KEEPING for node in others) or any(kind.startswith(_LEAVING_OUT) for kind in kinds):
        return None
    counts = np.bincount(np.unique(numbers) >> INSIDE_BITS, minlength=len(names))
    return np.asarray(sizes)[files] / counts[files]


def _shares(lengths: Any, size: int) -> Any:
    """The bytes of a file over its records, by their lengths; together they are all of it."""
    total = lengths.sum()
    return np.diff(np.rint(np.cumsum(lengths) * (size / total)).astype(int), prepend=0) if total else lengths


def _lengths_of(read: Callable[..., Any], around: int, names: list[str], packing: Any) -> list[Any]:
    """The length of every record of every file, as far as a reader takes it apart.

    Args:
        around: bytes beside what a record holds.
        packing: as a reader is told; None: not known.
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
    # Two lengths with their checksums; the end of the line.
    "TFRecord": partial(_lengths_of, tf.data.TFRecordDataset, 16),
    "TextLine": partial(_lengths_of, tf.data.TextLineDataset, 1),
}
