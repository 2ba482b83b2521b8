"""The names of a notebook, and what the steps of a loop change of what they refer to."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

_MOST_BYTES = 64 * 2**20  # of one array, by judgement: what a step changes is a counter or a weight, no data set

_COPIED = (list, dict, set, bytearray, deque)


class NamespaceCopy:
    """A copy of the names, and of the contents of the lists, dictionaries, sets and arrays that they refer to.

    Objects of other kinds keep what is changed in them.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace, self._names = namespace, dict(namespace)
        own = (value for name, value in namespace.items() if not name.startswith("__"))  # not `__builtins__`
        values = {id(value): value for value in own if value is not namespace and _can_be_copied(value)}
        self._contents = [(value, copy.copy(value)) for value in values.values()]

    def restore(self) -> None:
        """Binds the names as they were, and puts the contents back."""
        for value, content in self._contents:
            _put_back(value, content)
        _put_back(self._namespace, self._names)


def _can_be_copied(value: Any) -> bool:
    if type(value) is np.ndarray:  # no subclass, whose items may have their own meaning
        return bool(value.flags.writeable) and value.nbytes <= _MOST_BYTES
    return type(value) in _COPIED


def _put_back(value: Any, content: Any) -> None:
    """Makes the contents of `value` those of its copy; what both have stays all the time, as others may use it."""
    if isinstance(value, np.ndarray):
        value[...] = content
    elif isinstance(value, dict):
        for key in value.keys() - content.keys():
            del value[key]
        value.update(content)
    elif isinstance(value, set):
        value.intersection_update(content)
        value.update(content)
    elif isinstance(value, deque):
        value.clear()
        value.extend(content)
    else:
        value[:] = content
