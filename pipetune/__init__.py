"""pipetune: finds what holds a tf.data input pipeline back, and proves what makes it faster.

Importing this package does not import TensorFlow; its functions do when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pipetune.core.errors import PipetuneError, PlanMismatch, StepFailed
from pipetune.core.version import VERSION as __version__

if TYPE_CHECKING:
    from pipetune.api import apply_plan, load, profile, record, tune

__all__ = [
    "PipetuneError",
    "PlanMismatch",
    "StepFailed",
    "__version__",
    "apply_plan",
    "load",
    "profile",
    "record",
    "tune",
]


def load_ipython_extension(shell: object) -> None:
    """Loads the magic `%%pipetune`: `%load_ext pipetune`."""
    from pipetune.notebook import extension

    extension.load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Takes the magic out again: `%unload_ext pipetune`."""
    from pipetune.notebook import extension

    extension.unload(shell)


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module("pipetune.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
