"""Times the copy of one element from host memory to the target device."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.measurement import RunFailed
from pipetune.core.transfer import Transfer
from pipetune.tf.error_text import first_line
from pipetune.tf.measure import closing, windows

_WARM_UP = 2  # the first copies set up memory on the device
_MOST = 30  # copies


def measure_transfer(dataset: Any, device: str, *, limit_seconds: float = 0.5) -> Transfer | None:
    """Copies the first element of `dataset` to `device` repeatedly, and waits for each copy.

    Args:
        dataset: the dataset that training consumes; if it already ends on a device, its part on the host is used.
        device: TensorFlow's name of the target, such as "/GPU:0".
        limit_seconds: time after which copying ends; at least three copies are made.

    Returns:
        The timings, or None if an element holds nothing that can be copied (strings stay on the host).

    Raises:
        RunFailed: the dataset is empty, or the device accepts no copy; the message says why.
    """
    try:
        element = next(iter(windows.host_part(dataset).take(1)), None)
        if element is None:
            raise RunFailed("The dataset is empty.")
        components = [component for component in tf.nest.flatten(element, expand_composites=True) if _copied(component)]
        if not components:
            return None
        seconds, copied = _time_copies(components, device, limit_seconds)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise RunFailed(f"The copy to {device} could not be timed: {first_line(error)}") from error
    return Transfer(
        device=device,
        element_bytes=sum(int(component.shape.num_elements() or 0) * component.dtype.size for component in components),
        seconds=statistics.median(seconds[_WARM_UP:] or seconds),
        copies=len(seconds[_WARM_UP:] or seconds),
        equal=all(
            np.asarray(one).tobytes() == np.asarray(other).tobytes()
            for one, other in zip(components, copied, strict=True)
        ),
    )


def _copied(component: Any) -> bool:
    return isinstance(component, tf.Tensor) and component.dtype not in (tf.string, tf.variant, tf.resource)


def _time_copies(components: list[Any], device: str, limit_seconds: float) -> tuple[list[float], list[Any]]:
    seconds: list[float] = []
    copied: list[Any] = []
    end = time.perf_counter() + limit_seconds
    while len(seconds) <= _WARM_UP or (len(seconds) < _MOST and time.perf_counter() < end):
        closing.close()
        started = time.perf_counter()
        with tf.device(device):
            copied = [tf.identity(component) for component in components]
        closing.close()
        seconds.append(time.perf_counter() - started)
        # With soft placement, TensorFlow silently ignores a device that does not exist.
        if f"/device:{device.strip('/')}".lower() not in copied[0].device.lower():
            raise RunFailed(f"The copy to {device} could not be timed: TensorFlow put it on {copied[0].device}.")
    return seconds, copied
