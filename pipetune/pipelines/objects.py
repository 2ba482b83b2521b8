"""Live objects of some types: the variables and tables that the script created, its iterators and open files."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any


def live_instances(wanted: Callable[[type], bool]) -> list[Any]:
    """Returns the objects of these types that the garbage collector tracks, including frozen ones (`gc.freeze`).

    Args:
        wanted: asked once about each type: a process has a million objects of a few thousand types. Types are those of
            `type`, as `isinstance` reads `__class__`, which may run code of a lazy proxy.
    """
    objects = tracked_objects()
    try:
        kinds = set(map(type, objects))
    except TypeError:  # a metaclass of the script makes its types unhashable
        objects = [one for one in objects if type(type(one)).__hash__ is not None]
        kinds = set(map(type, objects))
    found = {kind for kind in kinds if wanted(kind)}
    return [one for one in objects if type(one) in found] if found else []


def tracked_objects() -> list[Any]:
    """Returns all that the garbage collector tracks, including what is frozen: some tenths of a second."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    objects = gc.get_objects()
    if frozen:
        gc.freeze()
    return objects


def inherits(kind: type, *bases: type) -> bool:
    """Whether a type has one of these bases; `issubclass` of an abstract class would search all its subclasses."""
    return any(base in kind.__mro__ for base in bases)
