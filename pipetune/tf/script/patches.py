"""Names of TensorFlow and Keras that are replaced while the user's script runs, and put back at the end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Around = Callable[..., Any]
"""Called in place of a method with the original, then with the arguments it was called with."""


class Patches:
    """What is replaced so far, and how to undo it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Puts `new` in the place of an attribute."""
        self.at_the_end(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def wrap(self, owner: Any, name: str, around: Around) -> None:
        """Has `around` called in the place of a method."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        # Without the mark, AutoGraph would convert pipetune's own code while it traces the user's.
        self.replace(owner, name, tf.autograph.experimental.do_not_convert(wrapped))

    def at_the_end(self, undo: Callable[[], None]) -> None:
        """Has `undo` called when everything is put back, the last one first."""
        self._undo.append(undo)

    def put_back(self) -> None:
        """Everything is as it was."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
