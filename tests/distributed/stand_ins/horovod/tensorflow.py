"""The part of `horovod.tensorflow` that scripts use; rank and size come from the variables that horovodrun sets.

Nothing is communicated: gradients and variables stay those of the rank.
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

_begun = False


def init() -> None:
    global _begun
    _begun = True


def is_initialized() -> bool:
    return _begun


def rank() -> int:
    return _told("HOROVOD_RANK", "0")


def size() -> int:
    return _told("HOROVOD_SIZE", "1")


def local_rank() -> int:
    return _told("HOROVOD_LOCAL_RANK", os.environ.get("HOROVOD_RANK", "0"))


def broadcast_variables(variables: Any, root_rank: int) -> None:
    assert root_rank == 0 and all(isinstance(variable, tf.Variable) for variable in variables)


def DistributedGradientTape(tape: tf.GradientTape) -> tf.GradientTape:
    return tape


def _told(name: str, alone: str) -> int:
    if not _begun:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return int(os.environ.get(name, alone))
