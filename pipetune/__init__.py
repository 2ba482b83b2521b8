"""pipetune: finds what holds a tf.data input pipeline back, and proves what makes it faster.

Importing this package does not import TensorFlow; its functions do when they are first used.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING

from pipetune.core import requirements
from pipetune.core.errors import PipetuneError, PlanMismatch, StepFailed
from pipetune.core.version import VERSION as __version__

if TYPE_CHECKING:
    from pipetune import keras
    from pipetune.api import apply_plan, load, profile, record, tune
    from pipetune.monitoring import monitor

__all__ = [
    "PipetuneError",
    "PlanMismatch",
    "StepFailed",
    "__version__",
    "apply_plan",
    "keras",
    "load",
    "monitor",
    "profile",
    "record",
    "tune",
]


def load_ipython_extension(shell: object) -> None:
    """Loads the magic `%%pipetune`: `%load_ext pipetune`."""
    from pipetune import notebook

    notebook.load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Takes the magic out again: `%unload_ext pipetune`."""
    from pipetune import notebook

    notebook.unload(shell)


def __getattr__(name: str) -> object:
    if name == "keras":
        _look_for_tensorflow()
        return importlib.import_module("pipetune.keras")
    if name in __all__:
        requirements.require_python()
        if name != "load":  # a session can be read anywhere
            _look_for_tensorflow()
        module = "pipetune.monitoring" if name == "monitor" else "pipetune.api"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _look_for_tensorflow() -> None:
    warning = requirements.require_tensorflow()
    if warning:
        warnings.warn(warning, stacklevel=3)


def __dir__() -> list[str]:
    return __all__
