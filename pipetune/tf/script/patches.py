"""Replaces attributes of TensorFlow and Keras while the user's script runs, and restores them at the end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Around = Callable[..., Any]
"""Called in place of a method, with the original method and then the arguments of the call."""


class Patches:
    """The patches applied so far, and how to undo them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Replaces an attribute by `new`."""
        self.at_the_end(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def wrap(self, owner: Any, name: str, around: Around) -> None:
        """Has `around` called in place of a method."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        # Without the mark, AutoGraph would convert pipetune's own code while it traces the user's.
        self.replace(owner, name, tf.autograph.experimental.do_not_convert(wrapped))

    def at_the_end(self, undo: Callable[[], None]) -> None:
        """Registers a callback for `put_back`; the last one registered is called first."""
        self._undo.append(undo)

    def put_back(self) -> None:
        """Undoes all patches."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
