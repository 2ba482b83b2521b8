"""Initial values of the variables that are created while a cell runs: those of optimizers, and of models built late."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from pipetune import tensorflow_private


class CreatedVariables:
    """Context manager: copies the initial value of each variable that is created while it is active.

    A snapshot taken before has no value for them; a training step creates them, and changes them at once.
    """

    def __init__(self) -> None:
        self._values: list[tuple[weakref.ref[Any], Any]] = []
        self._watching = contextlib.ExitStack()

    def __enter__(self) -> CreatedVariables:
        self._watching.enter_context(tensorflow_private.watching_new_variables(self._add))
        return self

    def __exit__(self, *_error: object) -> None:
        self._watching.close()

    @property
    def count(self) -> int:
        """How many have been created so far."""
        return len(self._values)

    def restore(self, first: int = 0) -> None:
        """Gives the variables their initial values again, those that still exist.

        Args:
            first: `count` before the first of them.
        """
        for reference, value in reversed(self._values[first:]):  # the first value of a variable is the initial one
            variable = reference()
            if variable is not None:
                variable.assign(value)

    def _add(self, variable: Any) -> None:
        self._values.append((weakref.ref(variable), variable.numpy()))
