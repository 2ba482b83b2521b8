"""Attributes and methods of other libraries that are replaced for a while, and calls once a module is imported.

Keras is patched before other code can hold references to its methods.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Collection, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf


class Patches(contextlib.ExitStack):
    """The patches applied so far; `close` undoes them."""

    def replace(self, owner: Any, name: str, new: Any) -> None:
        self.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, new)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replaces a method by a call of `around`, with the original method and then the arguments of the call."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        # Without the mark, AutoGraph would convert pipetune's own code while it traces the user's.
        self.replace(owner, name, tf.autograph.experimental.do_not_convert(wrapped))


class ImportWatcher(importlib.abc.MetaPathFinder):
    """Context manager: calls `on_import(module)` for each of `names`, immediately for those already imported."""

    def __init__(self, names: Collection[str], on_import: Callable[[ModuleType], None]) -> None:
        self._names, self._on_import = frozenset(names), on_import
        self._finding: set[str] = set()

    def __enter__(self) -> ImportWatcher:
        for name in self._names:
            if name in sys.modules:
                self._on_import(sys.modules[name])
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_error: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec that another finder finds for a watched module, with its loader wrapped; else None."""
        if fullname not in self._names or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            for finder in sys.meta_path:
                spec = finder.find_spec(fullname, path, target) if finder is not self else None
                if spec is not None:
                    self._watch(spec)
                    return spec
        finally:
            self._finding.discard(fullname)
        return None

    def _watch(self, spec: importlib.machinery.ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            self._on_import(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
