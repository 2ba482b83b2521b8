"""Closes a window of training steps: waits until the work the steps queued is done.

On an accelerator a step returns when its work is queued. A window is therefore opened and closed by reading a
value a step produced: what the warm-up queued is done when the clock starts, what the window queued when it stops.
The value is read once the next step is queued: the device never stands idle for the reading, and a window of N
steps lasts N times what a step takes in the long run. Where the step's outputs cannot be seen (the body of the
user's own loop) every device is waited for, and variables that training changes are read; the first element of
such a window is fetched beside an idle device, which lengthens it by that much at most.

Source: `tf.test.experimental.sync_devices` (TensorFlow 2.21, python/framework/test_util.py), which says why the
return of an operation proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.script.objects import live_objects

_SMALL = 1024  # elements of a tensor that is read whole; of a larger one only the first is copied to the host
_READ = 4  # variables read for each device, at most


def close(produced: Any = None, *, variables: Sequence[Any] = ()) -> None:
    """Returns when the work behind `produced` and everything queued before it is done.

    Args:
        produced: what the last step returned, in any structure; None where it cannot be seen.
        variables: variables the step changes, read too.

    Raises:
        Exception: what the step's queued work raised; it shows here at the latest.
    """
    for value in (*_values(produced), *variables):
        _read(value)
    if tf.executing_eagerly():
        private.sync_devices()


class Closer:
    """Closes the windows of one consumer: by what its step returned, else by variables that training changes."""

    def __init__(self) -> None:
        self._variables: tuple[Any, ...] | None = None

    def __call__(self, produced: Any = None) -> None:
        """As `close`."""
        if produced is not None:
            close(produced)
            return
        if self._variables is None:
            self._variables = training_variables()
        close(variables=self._variables)


def training_variables() -> tuple[Any, ...]:
    """Some trainable variables of every device, the smallest first: reading one waits for the steps before."""
    found: dict[str, list[Any]] = {}
    for candidate in live_objects():
        kind = type(candidate)
        own = issubclass(kind, tf.Variable) and not issubclass(kind, private.DistributedVariable)
        if own and _readable(candidate):
            found.setdefault(str(candidate.device), []).append(candidate)
    return tuple(
        variable
        for of_device in found.values()
        for variable in sorted(of_device, key=lambda one: one.shape.num_elements() or 0)[:_READ]
    )


def _readable(variable: Any) -> bool:
    try:
        return bool(variable.trainable) and hasattr(variable.handle, "numpy") and bool(variable.is_initialized())
    except (AttributeError, ValueError, tf.errors.OpError):
        return False


def _values(produced: Any) -> Iterator[Any]:
    """The leaves of what a step returned: plain containers are opened, objects of any library kept whole."""
    if isinstance(produced, Mapping):
        for value in produced.values():
            yield from _values(value)
    elif isinstance(produced, tuple | list):
        for value in produced:
            yield from _values(value)
    elif isinstance(produced, tf.RaggedTensor | tf.SparseTensor):
        yield from tf.nest.flatten(produced, expand_composites=True)
    elif produced is not None:
        yield produced


def _read(value: Any) -> None:
    """Waits for one value by bringing (some of) it to the host, whatever library it belongs to."""
    if isinstance(value, tf.Tensor):
        if hasattr(value, "numpy") and value.dtype not in (tf.variant, tf.resource):
            count = value.shape.num_elements()
            (value if count is not None and count <= _SMALL else tf.reshape(value, [-1])[:1]).numpy()
    elif hasattr(value, "block_until_ready"):  # JAX
        value.block_until_ready()
    elif hasattr(value, "detach"):  # PyTorch
        value.detach().cpu()
    elif hasattr(value, "numpy"):
        value.numpy()
    elif hasattr(value, "__array__"):
        np.asarray(value)
