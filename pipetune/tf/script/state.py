"""Copies everything a training step may change, and restores it.

Variables (weights, optimizer, metrics, counters, random generators), mutable tables, and the random state of
Python, NumPy and TensorFlow's op seeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.script.objects import live_objects


@dataclass
class Snapshot:
    """Host copies of all live state; `restore` may be called repeatedly."""

    variables: list[tuple[Any, Any]]
    tables: list[tuple[Any, Any, Any]]
    python: Any
    numpy: Any
    op_seeds: Any

    def restore(self) -> None:
        """Restores every value that may have changed since the snapshot."""
        for variable, value in self.variables:
            variable.assign(value)
        for table, keys, values in self.tables:
            now, _ = _entries(table)
            table.remove(now)
            table.insert(keys, values)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        generator = private.op_seed_generator()
        if generator is not None and self.op_seeds is not None:
            generator.setstate(self.op_seeds)


def snapshot() -> Snapshot:
    """Copies every live variable and mutable table of the process to host memory."""
    variables, tables = [], []
    roles: dict[int, str] = {}  # a million objects but a few thousand types: each type is checked once
    for candidate in live_objects():
        kind = type(candidate)  # not isinstance: reading `__class__` of a lazy proxy may run third-party code
        role = roles.get(id(kind))
        if role is None:
            role = roles[id(kind)] = _role(kind)
        if role == _VARIABLE and _initialised(candidate):
            variables.append((candidate, candidate.numpy()))
        elif role == _TABLE:
            tables.append((candidate, *_entries(candidate)))
    generator = private.op_seed_generator()
    return Snapshot(
        variables=variables,
        tables=tables,
        python=random.getstate(),
        numpy=np.random.get_state(),
        op_seeds=generator.getstate() if generator is not None else None,
    )


_TABLES = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)
_VARIABLE, _TABLE, _OTHER = "variable", "table", ""


def _role(kind: type) -> str:
    """Returns how objects of this type are copied: as a variable, as a table, or not at all."""
    bases = kind.__mro__  # not issubclass: as abstract classes these would search all their subclasses each time
    if private.DistributedVariable in bases:
        return _OTHER  # the variables of its replicas are live objects too, readable without other processes
    if tf.Variable in bases:
        return _VARIABLE
    return _TABLE if any(table in bases for table in _TABLES) else _OTHER


def _entries(table: Any) -> tuple[Any, Any]:
    """Returns keys and values of a mutable table, without the unused buckets that a dense table exports too."""
    keys, values = table.export()
    marks = private.unused_keys(table)
    if not marks:
        return keys, values
    rows = keys.numpy().reshape(len(keys), -1)
    used = ~np.any([np.all(rows == mark.reshape(1, -1), axis=1) for mark in marks], axis=0)
    return keys.numpy().reshape(len(keys), *marks[0].shape)[used], private.table_values(table, values)[used]


def _initialised(variable: Any) -> bool:
    try:
        if variable.trainable is None or not hasattr(variable.handle, "numpy"):  # in a graph: nothing to read
            return False
        return bool(variable.handle.dtype == tf.resource and variable.is_initialized())
    except (AttributeError, ValueError, tf.errors.OpError):
        return False
