"""Finds what the function given to `create_per_worker_dataset` captures from the process of the script.

TensorFlow traces the function once, in this process. A captured dataset exists only here and cannot be sent to another
process. A captured iterator, table or variable stays here as well, and steps on workers access it over the network
(observed with TensorFlow 2.21), unless it was created on a worker or a parameter server.

Source: the "Parameter server training" guide of TensorFlow, section on `create_per_worker_dataset`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pipetune.core.handover import Captured, CapturedKind
from pipetune.tf import private
from pipetune.tf.script.mentions import mentioned

_ELSEWHERE = ("/job:ps/", "/job:worker/")


def find(made: Any, given: Any, *, file: str, line: int) -> tuple[Captured, ...]:
    """Returns what a per-worker dataset captures from this process, without duplicates, with names from the script.

    Args:
        made: the result of `create_per_worker_dataset(given)`.
        given: a dataset function or a distributed dataset.
        file: file of that call, the location of captures whose name is not found.
        line: line of that call.
    """
    held = [tensor for tensor in private.captured_by(made) if _stays_here(tensor)]
    if not held:
        return ()
    names = list(mentioned(private.dataset_function(given)))
    found: dict[int, Captured] = {}
    for mention in names:
        for name, value in mention.parts():
            for tensor in held:
                if id(tensor) not in found and any(tensor is one for one in private.stands_for(value)):
                    found[id(tensor)] = Captured(_kind(tensor, value), name, mention.file, mention.line)
    for tensor in held:
        found.setdefault(id(tensor), Captured(_kind(tensor), "", file, line))
    return tuple(dict.fromkeys(found.values()))


def _stays_here(tensor: Any) -> bool:
    """Whether the tensor stands for an object in the script's process that cannot be copied to a worker."""
    if tensor.dtype not in (tf.variant, tf.resource):
        return False
    device = str(getattr(tensor, "device", ""))
    return tensor.dtype == tf.variant or not any(job in device for job in _ELSEWHERE)


def _kind(tensor: Any, value: Any = None) -> CapturedKind:
    if tensor.dtype == tf.variant:
        return CapturedKind.DATASET
    return CapturedKind.ITERATOR if isinstance(value, tf.data.Iterator) else CapturedKind.STATE
