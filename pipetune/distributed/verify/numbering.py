"""Attaches a number to every element of a pipeline when it is read, and passes it on to the output; by these numbers,
determines the bytes and the file that each element comes from.

Elements of equal value stay distinct in this way. An element of the source is numbered by its position, a file name by
its position among the sorted names, and what is read from a file by the number of the file and the position in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import ElementIdentity
from pipetune.core.edits import Edit, Insert, Remove, SetArgument, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.operators import READERS
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.emit.sharding import below_batch
from pipetune.model.coverage import StoredBytes
from pipetune.pipelines import live
from pipetune.pipelines.replay import build_shuffle, call_method, reader_arguments, replay

INSIDE_BITS = 32
"""Number of lower bits that hold the position in a file, if elements come from files."""

_MOST_NAMES = 10_000  # file names looked up in a constant, by judgement: each lookup compares with all of them
_as_it_is = tf.autograph.experimental.do_not_convert
_SOURCES = frozenset({"range", "from_tensor_slices", "from_tensors", "from_generator", "load"})


@dataclass(frozen=True)
class Numbered:
    """A dataset of (number, element)."""

    dataset: Any
    inside: bool = False  # whether a number consists of a file (or another expanded element) and a position in it


def numbered(dataset: Any) -> Numbered:
    """Returns a dataset of the same elements in the same order, each with its number.

    Raises:
        CannotReplay: an operator does not keep the numbers of its elements; the message names it.
    """
    found = live.read(dataset)
    built: dict[str, Numbered] = {}
    for node in found.pipeline:
        built[node.id] = _numbered(node, found.datasets[node.id], [built[name] for name in node.inputs])
    return built[found.pipeline.output.id]


def _numbered(node: Node, original: Any, above: list[Numbered]) -> Numbered:
    if node.op in READERS:
        return _reader(node, original, above[0] if above else _names(original._filenames))
    if node.op in _SOURCES and not above:
        return _names(original) if _are_names(original) else Numbered(original.enumerate())
    if node.op in ("interleave", "flat_map") and len(above) == 1:
        return _opened(
            above[0], lambda element: tensorflow_private.call_traced(original._map_func, element), node.arguments
        )
    build = _SAME_NUMBERS.get(node.op)
    if build is None or len(above) != 1:
        raise CannotReplay(f"The numbers of elements do not come through {node.title}.")
    return Numbered(build(node, original, above[0].dataset), above[0].inside)


def _names(dataset: Any) -> Numbered:
    """Numbers file names by their position among the sorted names, which is the same for every order of the list."""
    names = in_numbered_order(dataset)
    if names is None or not _by_name(names):
        return Numbered(dataset.enumerate())

    def number(name: Any) -> Any:
        return tf.where(tf.equal(tf.constant(names), name))[0, 0], name

    return Numbered(dataset.map(_as_it_is(number)))


def in_numbered_order(dataset: Any) -> Any:
    """Returns the elements of a source of scalar strings in the order of their numbers, as an object array of bytes.

    None for other sources.
    """
    if not _are_names(dataset):
        return None
    given = dataset._tensors[0].numpy()
    names = np.sort(given)
    return names if _by_name(names) else given


def _by_name(names: Any) -> bool:
    return len(names) <= _MOST_NAMES and len(np.unique(names)) == len(names)


def _are_names(dataset: Any) -> bool:
    tensors = tensorflow_private.source_tensors(dataset)
    return (
        len(tensors) == 1
        and tensors[0].dtype == tf.string
        and tensors[0].shape.rank == 1
        and hasattr(tensors[0], "numpy")
    )


def _reader(node: Node, original: Any, files: Numbered) -> Numbered:
    parallel = node.argument("num_parallel_reads")
    if parallel == tf.data.AUTOTUNE:
        raise CannotReplay(f"How many files {node.title} reads at once is for TensorFlow to choose.")
    cycle = {"cycle_length": parallel, "block_length": 1, "num_parallel_calls": None} if parallel else {}
    return _opened(files, lambda name: type(original)(name, **reader_arguments(original)), cycle)


def _opened(above: Numbered, opened: Callable[[Any], Any], arguments: Mapping[str, Any]) -> Numbered:
    """Numbers the elements into which each element of `above` is expanded, by their position in it."""
    if above.inside:
        raise CannotReplay("Elements become several more than once.")

    def inside(number: Any, element: Any) -> Any:
        first = tf.bitwise.left_shift(number, tf.constant(INSIDE_BITS, tf.int64))
        places = tf.data.Dataset.range(first, first + 2**INSIDE_BITS)  # cheaper than a function call per element
        return tf.data.Dataset.zip((places, opened(element)))

    if "cycle_length" not in arguments:
        return Numbered(above.dataset.flat_map(_as_it_is(inside)), inside=True)
    calls = arguments.get("num_parallel_calls")
    dataset = above.dataset.interleave(
        _as_it_is(inside),
        cycle_length=arguments["cycle_length"],
        block_length=arguments.get("block_length"),
        num_parallel_calls=calls,
        deterministic=arguments.get("deterministic") if calls is not None else None,
    )
    return Numbered(dataset, inside=True)


def _map(_node: Node, original: Any, above: Any) -> Any:
    return above.map(
        _as_it_is(lambda number, element: (number, tensorflow_private.call_traced(original._map_func, element)))
    )


def _method(node: Node, original: Any, above: Any) -> Any:
    def of_element(predicate: Any) -> Any:
        return _as_it_is(lambda _number, element: tensorflow_private.call_traced(predicate, element))

    return call_method(node, original, [above], wrap=of_element)


_SAME_NUMBERS: Mapping[str, Callable[[Node, Any, Any], Any]] = {
    "map": _map,
    "shuffle": lambda node, original, above: build_shuffle(node, original, [above]),
    **dict.fromkeys(("filter", "take_while", "take", "skip", "shard", "repeat", "ignore_errors"), _method),
    **dict.fromkeys(("prefetch", "cache", "with_options", "assert_cardinality"), lambda node, original, above: above),
}

_ALWAYS_OUT = frozenset({"repeat", "cache", "prefetch", "with_options", "assert_cardinality"})
_ONE_TO_ONE = frozenset({"map", "shuffle"})
KEEPING = _ALWAYS_OUT | _ONE_TO_ONE
"""Operators that output as many elements as they get, each made of one; `repeat` those of an epoch."""

_WITH_FUNCTION = frozenset({"filter", "flat_map", "interleave", "scan", "take_while", "group_by_window", "unbatch"})
_TEXTS = (tf.string, tf.int64, tf.int32, tf.uint8)


def of_elements(pipeline: Pipeline, *, in_order: bool = False) -> Pipeline:
    """Returns the part of a pipeline that outputs the elements to count.

    Args:
        pipeline: the complete pipeline.
        in_order: keep the shuffles, because the elements are divided downstream of them.
    """
    below, batches = below_batch(pipeline)
    single = [name for name in below if len(pipeline[name].inputs) == 1]
    reduced = apply_edits(pipeline, [Remove(name) for name in (*single, *batches)] if batches else [])
    reduced = apply_edits(reduced, _unrecognisable(reduced))
    node = reduced.output
    while len(node.inputs) == 1 and node.op in _ONE_TO_ONE:
        above = reduced[node.inputs[0]]
        if not (in_order and node.op == "shuffle"):
            reduced = apply_edits(reduced, [Remove(node.id)])
        node = above
    return reduced


def of_files(pipeline: Pipeline) -> Pipeline | None:
    """Returns the part of a pipeline that outputs the names of the files to read; None if there is no such part."""
    reduced = of_elements(pipeline)
    while reduced.output.op in {*READERS, "interleave", "flat_map", *_ONE_TO_ONE, "filter"}:
        if len(reduced.output.inputs) != 1:
            return None
        reduced = apply_edits(reduced, [Remove(reduced.output.id)])
    known = {"from_tensor_slices", "shuffle", "shard"}
    return reduced if all(len(node.inputs) <= 1 and node.op in known for node in reduced) else None


def reads_records(pipeline: Pipeline) -> bool:
    """Whether the pipeline opens files."""
    return any(node.op in READERS or node.inner for node in pipeline)


def with_most(pipeline: Pipeline, elements: int) -> Pipeline:
    """Returns the pipeline with at most `elements` elements upstream of each `shard`."""
    shards = (node for node in pipeline if node.op == "shard")
    return apply_edits(pipeline, [Insert(at.inputs[0], "take", f"take@{at.id}", {"count": elements}) for at in shards])


_MOST_SHUFFLED = 64  # elements in a shuffle buffer, by judgement: filling a larger one delays the first batch


def of_batches(pipeline: Pipeline) -> Pipeline:
    """Returns the complete pipeline without caches, and with small shuffle buffers."""
    edits: list[Edit] = [Remove(node.id) for node in pipeline if node.op == "cache"]
    edits += [
        SetArgument(node.id, "buffer_size", _MOST_SHUFFLED)
        for node in pipeline
        if node.op == "shuffle" and isinstance(size := node.argument("buffer_size"), int) and size > _MOST_SHUFFLED
    ]
    return apply_edits(pipeline, edits)


def fingerprints(source: live.LivePipeline, pipeline: Pipeline) -> tf.data.Dataset:
    """Returns a dataset of the fingerprints (int64 scalars) of the elements of `pipeline`, an edited form of `source`.

    Raises:
        CannotReplay: an operator cannot be rebuilt.
    """
    return _comparable(source, pipeline).map(_as_it_is(fingerprint))


def numbered_groups(source: live.LivePipeline, pipeline: Pipeline, size: int) -> tuple[tf.data.Dataset, bool, bool]:
    """Returns the numbers and fingerprints of the elements of `pipeline`, in batches of `size`.

    Returns:
        A dataset of int64 matrices with one row per element (number and fingerprint, or only the fingerprint if an
        operator does not keep the numbers), whether it has numbers, and `Numbered.inside`.

    Raises:
        CannotReplay: an operator cannot be rebuilt.
    """
    dataset = _comparable(source, pipeline)
    together = _of_scalars(dataset.element_spec)  # one call per batch instead of one per element

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
    """Returns a dataset of the numbers (int64 scalars) of the elements of `pipeline`, an edited form of `source`.

    Raises:
        CannotReplay: an operator cannot be rebuilt, or does not keep the numbers.
    """
    found = numbered(_comparable(source, pipeline))
    return found.dataset.map(_as_it_is(lambda number, _element: number))


def _grouped(dataset: tf.data.Dataset, look: Any, size: int, *, together: bool) -> tf.data.Dataset:
    look = _as_it_is(look)
    return dataset.batch(size).map(look) if together else dataset.map(look).batch(size)


def _of_scalars(spec: object) -> bool:
    parts = tf.nest.flatten(spec)
    return all(isinstance(part, tf.TensorSpec) and part.shape.rank == 0 and part.dtype in _TEXTS for part in parts)


def _fingerprints(elements: object) -> tf.Tensor:
    """Returns the fingerprint of each scalar in a batch, equal to that of the scalar alone."""
    return _joined([_as_text(part) for part in tf.nest.flatten(elements)])


def _comparable(source: live.LivePipeline, pipeline: Pipeline) -> tf.data.Dataset:
    dataset = replay(source, pipeline)
    if live.holds_datasets(dataset):
        raise CannotReplay("The elements are datasets, which cannot be compared.")
    return dataset


def fingerprint(*element: object) -> tf.Tensor:
    """Returns an int64 scalar of 62 bits, a hash of all components of an element."""
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


def _unrecognisable(pipeline: Pipeline) -> Iterable[Edit]:
    changed: set[str] = set()  # nodes downstream of a function that was removed
    for node in pipeline:
        below = any(name in changed for name in node.inputs)
        leave = node.op in _ALWAYS_OUT and len(node.inputs) == 1
        if node.op == "map" and (below or not (node.function is None or node.function.stateless)):
            leave, below = True, True
        elif below and node.op in _WITH_FUNCTION:
            leave = True
        if below:
            changed.add(node.id)
        if leave:
            yield Remove(node.id)


_ONE_TO_ONE_DATASETS = frozenset({"MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "OptionsDataset"})
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
        inside: as in `Numbered`.
    """
    numbers = np.concatenate([one for one, _ in epochs])
    try:
        names = _file_names(made)
        if names is None or not _reads(made.pipeline):
            return None
        sizes = _sizes(names)
        found = _of_records(made, [one for (one,) in names], sizes, numbers) if inside else np.asarray(sizes)[numbers]
    except (tf.errors.OpError, UnicodeDecodeError, ValueError, IndexError):
        return None
    if found is None:
        return None
    ends_early = any(node.op in ("take", "take_while") for node in of_elements(made.pipeline))
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
        names = _file_names(made)
        return tuple(_sizes(names)) if names is not None and _reads(made.pipeline) else ()
    except (tf.errors.OpError, UnicodeDecodeError, ValueError):
        return ()


def _sizes(names: list[tuple[str, ...]]) -> list[int]:
    return [sum(int(tf.io.gfile.stat(name).length) for name in of_one) for of_one in names]


def _file_names(made: live.LivePipeline) -> list[tuple[str, ...]] | None:
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
    if len(readers) == 1 and all(kind in _ONE_TO_ONE_DATASETS for kind in kinds if kind not in readers):
        kind = next(name for name in _LENGTHS if readers[0].startswith(name))
        packing = getattr(made.datasets[opener.id], "_compression_type", None) if whole else None
        records = _LENGTHS[kind](names, packing)
        if (places >= np.asarray([len(one) for one in records])[files]).any():
            return None
        shares = [_shares(one, size) for one, size in zip(records, sizes, strict=True)]
        return np.concatenate(shares)[np.cumsum([0, *map(len, records)])[files] + places]
    others = [node for node in of_elements(made.pipeline) if node.inputs and node.op != opener.op]
    if any(node.op not in KEEPING for node in others) or any(kind.startswith(_LEAVING_OUT) for kind in kinds):
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
