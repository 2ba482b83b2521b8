"""A map's Python function in the form that an edit asks for; `source/forms.py` says the same in source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.functions import FunctionForm


def in_form(function: Callable[..., Any], form: FunctionForm, spec: Any, *, loops: bool = True) -> Callable[..., Any]:
    """What to give to `map` in place of `function`.

    Args:
        spec: of the elements the map gets: a tuple is given to the function as several arguments.
        loops: whether `tf.vectorized_map` may go through the rows one by one where it has to; else it raises.
    """
    if form is not FunctionForm.VECTORIZED:
        return function
    if type(spec) is not tuple:
        return lambda batch: tf.vectorized_map(function, batch, fallback_to_while_loop=loops)
    return lambda *batch: tf.vectorized_map(lambda row: function(*row), batch, fallback_to_while_loop=loops)
