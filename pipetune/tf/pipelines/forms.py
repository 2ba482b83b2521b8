"""Builds the variant of a map's Python function that an edit asks for; `source/forms.py` writes it as source code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from pipetune.core.functions import FunctionForm


def in_form(function: Callable[..., Any], form: FunctionForm, spec: Any, *, loops: bool = True) -> Callable[..., Any]:
    """Returns the function to pass to `map` in place of `function`.

    Args:
        spec: element spec of the map's input: of batches, whose components have the shape [rows, ...]. A tuple is
            passed to the function as several arguments.
        loops: whether `tf.vectorized_map` may fall back to a loop over the rows of a batch; otherwise it raises.
    """
    if form is FunctionForm.PARSING:
        return _parsing_batches(function)
    if form is not FunctionForm.VECTORIZED:
        return function
    if type(spec) is not tuple:
        return lambda batch: tf.vectorized_map(function, batch, fallback_to_while_loop=loops)
    return lambda *batch: tf.vectorized_map(lambda row: function(*row), batch, fallback_to_while_loop=loops)


def one_after_another(
    first: Callable[..., Any], second: Callable[..., Any], *, several: bool
) -> Callable[..., Any]:
    """Returns the function that calls `second` on the result of `first`, unpacked into arguments if `several`."""
    if several:
        return lambda *element: second(*first(*element))
    return lambda *element: second(first(*element))


def _parsing_batches(function: Callable[..., Any]) -> Callable[..., Any]:
    def parsing(*batch: Any) -> Any:
        with _parse_example_in_place():
            return function(*batch)

    return parsing


@contextmanager
def _parse_example_in_place() -> Iterator[None]:
    """While open, `tf.io.parse_single_example` is `tf.io.parse_example`, which takes a 1-D tensor of examples."""
    places = [(tf.io, tf.io.parse_example), (tf.compat.v1.io, tf.compat.v1.io.parse_example)]
    originals = [module.parse_single_example for module, _ in places]
    for module, parse in places:
        module.parse_single_example = parse
    try:
        yield
    finally:
        for (module, _), original in zip(places, originals, strict=True):
            module.parse_single_example = original
