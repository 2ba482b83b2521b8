"""Turns an exception raised while a user's function is probed into the result that nothing is known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pipetune.tf.error_text import first_line

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def unknown_on_error(
    unknown: Callable[[str], _Answer],
) -> Callable[[Callable[_Given, _Answer]], Callable[_Given, _Answer]]:
    """Decorates a probe to return `unknown(reason)` where it raises; the reason is the last clause of a sentence.

    A user's function may return anything (an `Optional`, `IndexedSlices`, a dataset, an object of the user's own), and
    is traced here on inputs that it was not written for.
    """

    def guarded(ask: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
        @functools.wraps(ask)
        def answer(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            try:
                return ask(*args, **kwargs)
            except Exception as error:  # whatever the user's function or TensorFlow raises on it
                return unknown(f"it cannot be examined ({type(error).__name__}: {first_line(error)})")

        return answer

    return guarded
