"""What a function that the workers of a coordinator call for their dataset takes from the script's own process.

TensorFlow traces the function once, here. A dataset from outside it then is one that exists in this process, and none
can be sent to another. An iterator, a table or a variable from outside it stays here as well, unless it was made on a
worker or a parameter server: a step on a worker asks for it over the network (seen with TensorFlow 2.21).

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
    """What a per-worker dataset holds of this process, each once and by its name in the script where that is found.

    Args:
        made: what `create_per_worker_dataset` made of `given`.
        file: of that call, the place of what is not found by name.
        line: of that call.
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
    """Whether it stands for something that no copy can be made of, in the process of the script."""
    if tensor.dtype not in (tf.variant, tf.resource):
        return False
    device = str(getattr(tensor, "device", ""))
    return tensor.dtype == tf.variant or not any(job in device for job in _ELSEWHERE)


def _kind(tensor: Any, value: Any = None) -> CapturedKind:
    if tensor.dtype == tf.variant:
        return CapturedKind.DATASET
    return CapturedKind.ITERATOR if isinstance(value, tf.data.Iterator) else CapturedKind.STATE
