"""Gives every element of a pipeline a number as early as it is read, and carries it through to the end.

Two elements of equal value stay two that way. An element of the source is numbered by its place, the name of a file
by its place among the sorted names, and what is read from a file by the file's number and its own place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Node
from pipetune.tf import private
from pipetune.tf.pipelines import live, operators

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

INSIDE_BITS = 32
"""A number's lower bits say which element of a file it is, where there are files."""

_MOST_NAMES = 10_000
_as_it_is = tf.autograph.experimental.do_not_convert
_SOURCES = frozenset({"range", "from_tensor_slices", "from_tensors", "from_generator", "load"})


@dataclass(frozen=True)
class Numbered:
    """A dataset of (number, element)."""

    dataset: Any
    inside: bool = False  # whether the numbers name a file, or another element that became several, and a place in it


def numbered(dataset: Any) -> Numbered:
    """The same elements in the same order, each with its number.

    Raises:
        CannotReplay: an operator does not keep the numbers of its elements; the message names it.
    """
    found = live.read(dataset)
    built: dict[str, Numbered] = {}
    for node in found.pipeline:
        above = [built[name] for name in node.inputs]
        built[node.id] = _numbered(node, found.datasets[node.id], above)
    return built[found.pipeline.output.id]


def _numbered(node: Node, original: Any, above: list[Numbered]) -> Numbered:
    if node.op in operators.READERS:
        return _reader(node, original, above[0] if above else _names(original._filenames))
    if node.op in _SOURCES and not above:
        return _names(original) if _are_names(original) else Numbered(original.enumerate())
    if node.op in ("interleave", "flat_map") and len(above) == 1:
        return _opened(above[0], lambda element: private.call_traced(original._map_func, element), node.arguments)
    build = _SAME_NUMBERS.get(node.op)
    if build is None or len(above) != 1:
        raise CannotReplay(f"The numbers of elements do not come through {node.title}.")
    return Numbered(build(node, original, above[0].dataset), above[0].inside)


def _names(dataset: Any) -> Numbered:
    """Names of files by their place among the sorted names: the same wherever a list of them came from."""
    names = in_numbered_order(dataset)
    if names is None or not _by_name(names):
        return Numbered(dataset.enumerate())

    def number(name: Any) -> Any:
        return tf.where(tf.equal(tf.constant(names), name))[0, 0], name

    return Numbered(dataset.map(_as_it_is(number)))


def in_numbered_order(dataset: Any) -> Any:
    """The elements of a source of single texts, as an array, in the order of their numbers; None for other sources."""
    if not _are_names(dataset):
        return None
    given = dataset._tensors[0].numpy()
    names = np.sort(given)
    return names if _by_name(names) else given


def _by_name(names: Any) -> bool:
    return len(names) <= _MOST_NAMES and len(np.unique(names)) == len(names)


def _are_names(dataset: Any) -> bool:
    tensors = private.source_tensors(dataset)
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
    names = ("compression_type", "buffer_size", "record_bytes", "header_bytes", "footer_bytes")
    kept = {name: getattr(original, f"_{name}") for name in names if hasattr(original, f"_{name}")}
    cycle = {"cycle_length": parallel, "block_length": 1, "num_parallel_calls": None} if parallel else {}
    return _opened(files, lambda name: type(original)(name, **kept), cycle)


def _opened(above: Numbered, opened: Callable[[Any], Any], arguments: Mapping[str, Any]) -> Numbered:
    """Elements that each become several, with their places in it."""
    if above.inside:
        raise CannotReplay("Elements become several more than once.")

    def inside(number: Any, element: Any) -> Any:
        first = tf.bitwise.left_shift(number, tf.constant(INSIDE_BITS, tf.int64))
        places = tf.data.Dataset.range(first, first + 2**INSIDE_BITS)  # no function for each element: there are many
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
    def mapped(number: Any, element: Any) -> Any:
        return number, private.call_traced(original._map_func, element)

    return above.map(_as_it_is(mapped))


def _filter(_node: Node, original: Any, above: Any) -> Any:
    def kept(_number: Any, element: Any) -> Any:
        return private.call_traced(original._predicate, element)

    return above.filter(_as_it_is(kept))


def _take_while(_node: Node, original: Any, above: Any) -> Any:
    def goes_on(_number: Any, element: Any) -> Any:
        return private.call_traced(original._predicate, element)

    return above.take_while(_as_it_is(goes_on))


def _shuffle(node: Node, original: Any, above: Any) -> Any:
    """Seeded as the original, and so in its order."""
    with private.seeds_given(original._seed, original._seed2):
        return above.shuffle(
            node.argument("buffer_size"), reshuffle_each_iteration=node.argument("reshuffle_each_iteration")
        )


def _unchanged(_node: Node, _original: Any, above: Any) -> Any:
    return above


_SAME_NUMBERS: Mapping[str, Callable[[Node, Any, Any], Any]] = {
    "map": _map,
    "filter": _filter,
    "take_while": _take_while,
    "shuffle": _shuffle,
    "take": lambda node, original, above: above.take(node.argument("count")),
    "skip": lambda node, original, above: above.skip(node.argument("count")),
    "shard": lambda node, original, above: above.shard(node.argument("num_shards"), node.argument("index")),
    "repeat": lambda node, original, above: above.repeat(node.argument("count")),
    "ignore_errors": lambda node, original, above: above.ignore_errors(),
    "prefetch": _unchanged,
    "cache": _unchanged,
    "with_options": _unchanged,
    "assert_cardinality": _unchanged,
}
