"""Attributes and methods of other libraries that are replaced for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Wrapper = Callable[..., Any]
"""Called in place of a method, with the original method and then the arguments of the call."""


class Patches:
    """The patches applied so far, and how to undo them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Replaces an attribute by `new`."""
        self.add_undo(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def wrap(self, owner: Any, name: str, around: Wrapper) -> None:
        """Replaces a method by a call of `around`."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        # Without the mark, AutoGraph would convert pipetune's own code while it traces the user's.
        self.replace(owner, name, tf.autograph.experimental.do_not_convert(wrapped))

    def add_undo(self, undo: Callable[[], None]) -> None:
        """Registers a callback for `undo_all`; the last one registered is called first."""
        self._undo.append(undo)

    def undo_all(self) -> None:
        """Undoes all patches."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
