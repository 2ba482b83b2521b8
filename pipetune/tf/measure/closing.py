"""Closes a window of training steps: waits until the work that the steps queued is done.

On an accelerator a step returns when its work is queued. A window is therefore opened and closed by reading a value
that a step produced: the work queued by the warm-up is done when the clock starts, and the work queued in the window
when it stops. The value is read after the next step has been queued, so the device never idles for the read, and a
window of N steps takes N times the steady-state step time. Where the outputs of a step cannot be seen (the body of the
user's own loop), all devices are synchronized and variables that training changes are read; the first element of such
a window is fetched while the device idles, which lengthens the window by at most the time of that fetch.

Source: `tf.test.experimental.sync_devices` (TensorFlow 2.21, python/framework/test_util.py), which explains why the
return of an operation does not prove that it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.script.objects import live_objects

_SMALL = 1024  # values in a tensor that is read whole; of a larger one only the first value is copied to the host
_READ = 4  # variables read per device, at most


def close(produced: Any = None, *, variables: Sequence[Any] = ()) -> None:
    """Waits until the work that produces `produced`, and everything queued before it, is done.

    Args:
        produced: what the last step returned, in any structure; None where it cannot be seen.
        variables: variables that the step changes; they are read too.

    Raises:
        Exception: whatever the queued work of the step raised; it surfaces here at the latest.
    """
    for value in (*_values(produced), *variables):
        _read(value)
    if tf.executing_eagerly():
        private.sync_devices()


class Closer:
    """Closes the windows of one consumer, by reading what its step returned or else variables that training changes."""

    def __init__(self) -> None:
        self._variables: tuple[Any, ...] | None = None

    def __call__(self, produced: Any = None) -> None:
        """Waits as `close` does; without `produced`, reads `training_variables`."""
        if produced is not None:
            close(produced)
            return
        if self._variables is None:
            self._variables = training_variables()
        close(variables=self._variables)


def training_variables() -> tuple[Any, ...]:
    """Some trainable variables of every device, smallest first; reading one waits for the steps queued before."""
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
    """Yields the leaves of what a step returned; plain containers are opened, objects of any library are kept whole."""
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
    """Waits for one value by copying it, or a part of it, to the host, whatever library it belongs to."""
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
