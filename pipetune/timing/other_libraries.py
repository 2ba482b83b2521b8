"""JAX and PyTorch: their steps are queued, as TensorFlow's are on a GPU, and TensorFlow knows nothing of them.

JAX queues on processors too: a loop that reads no value is up to 32 steps ahead there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def run_ahead() -> bool:
    """Whether steps of these libraries may still be queued when the loop goes on."""
    return bool(_waits())


def wait() -> None:
    """Waits until everything that is queued in these libraries is done.

    Raises:
        Exception: the exception of a queued step; it surfaces here at the latest.
    """
    for one in _waits():
        one()


def _waits() -> list[Callable[[], object]]:
    """Returns what waits for each library that the script uses; for the others, there is nothing to wait for."""
    found: list[Callable[[], object]] = []
    jax = sys.modules.get("jax")
    # To ask JAX for arrays before it has any would start its devices and take the memory of a GPU; a private name.
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", lambda: True)
    if jax is not None and hasattr(jax, "live_arrays") and started():
        found.append(lambda: jax.block_until_ready(jax.live_arrays()))
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found.append(cuda.synchronize)
    return found
