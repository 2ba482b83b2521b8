"""Batches of elements of about one length: the call of `bucket_by_sequence_length` that an edit asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.pipeline import Node

REPLAYS = True  # datasets made below this module are pipetune's, not the user's


def bucketed(node: Node, above: Any) -> Any:
    """`above` in batches as `node` says; padded as `padded_batch` does where it is told nothing."""
    boundaries, path = node.argument("bucket_boundaries"), node.argument("element_length_func")
    assert isinstance(boundaries, tuple) and isinstance(path, tuple)
    sizes = [node.argument("batch_size")] * (len(boundaries) + 1)
    return above.bucket_by_sequence_length(length_of(path, above.element_spec), list(boundaries), sizes)


def length_of(path: tuple[Any, ...], spec: Any) -> Callable[..., Any]:
    """The function from an element of this spec to the first dimension of the component that `path` leads to."""

    def length(*element: Any) -> Any:
        return tf.shape(at(path, element if type(spec) is tuple else element[0]))[0]

    return length


def at(path: tuple[Any, ...], structure: Any) -> Any:
    """What stands in nested tuples and dictionaries at these positions and keys."""
    for step in path:
        structure = structure[step]
    return structure
