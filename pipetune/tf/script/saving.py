"""Disables saving: from the start of training to the end of the process no model, checkpoint or summary is saved.

Saving may take gigabytes and minutes, and nothing reads the result before the process ends. What a script writes in
other ways is written, because it may read it again, and undone afterwards (`core.undo`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import tensorflow as tf

from pipetune.core import file_events
from pipetune.tf.script.imports import ImportWatcher

_MODEL = ("save", "save_weights", "export")
_KERAS: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # module: class ('' for the module): functions
    "keras.src.models.model": {"Model": _MODEL},
    "keras.src.callbacks.model_checkpoint": {"ModelCheckpoint": ("_save_model",)},
    "keras.src.saving.saving_api": {"": ("save_model", "save_weights")},
    "keras.src.export.saved_model_export_archive": {"SavedModelExportArchive": ("write_out",)},
    "tf_keras.src.engine.training": {"Model": _MODEL},
    "tf_keras.src.callbacks": {"ModelCheckpoint": ("_save_model",)},
    "tf_keras.src.saving.saving_api": {"": ("save_model",)},
    "tf_keras.src.export.export_lib": {"ExportArchive": ("write_out",)},
}
_ONE_FILE = frozenset({"Model.save", "Model.save_weights", "keras.save_model", "keras.save_weights"})
_SUMMARIES = ("scalar", "image", "histogram", "text", "audio", "write", "graph", "flush")

_listener: Callable[[str], None] = lambda _name: None  # noqa: E731 - replaced by `switch_off`


def switch_off(on_suppressed: Callable[[str], None]) -> None:
    """Makes every function that saves a model, checkpoint, summary or dataset only report its calls.

    The function bodies are replaced, not the names that refer to them: the script may hold its own reference, as after
    `from keras.models import save_model`. Those of a Keras module imported later are replaced on import.
    This cannot be undone: the process is to end without saving. `on_suppressed` gets the name of each call.
    """
    global _listener
    _listener = on_suppressed
    _empty(tf.train.Checkpoint, ("save", "write"), "Checkpoint", "")
    _empty(tf.train.CheckpointManager, ("save",), "CheckpointManager")
    _empty(tf.compat.v1.train.Saver, ("save",), "Saver")
    _empty(tf.saved_model, ("save",), "saved_model")
    _empty(tf.data.Dataset, ("save",), "Dataset")
    _empty(tf.summary, _SUMMARIES, "tf.summary", False)
    ImportWatcher(_KERAS, _empty_keras).__enter__()


def suppressed(name: str, arguments: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None) -> None:
    """Called in place of a disabled function.

    Creates the single file that would have been saved, empty, for what the script does next: most rename or remove it.
    """
    _listener(name)
    path = arguments[1] if len(arguments) > 1 else (named or {}).get("filepath")
    recorded = file_events.journal() is not None  # so the undo journal removes the empty file
    if name in _ONE_FILE and isinstance(path, str | os.PathLike) and recorded:
        with contextlib.suppress(OSError), open(path, "xb"):
            pass


def _empty_keras(module: ModuleType) -> None:
    for class_name, names in _KERAS[module.__name__].items():
        owner = getattr(module, class_name, None) if class_name else module
        if owner is not None:
            _empty(owner, names, class_name or "keras")


_COUNTING = """
def emptied(*arguments, **named):
    from pipetune.tf.script import saving
    saving.suppressed({name!r}, arguments, named)
    return {result!r}
"""


def _empty(owner: Any, names: tuple[str, ...], prefix: str, result: object = None) -> None:
    """Replaces the code of the functions: they report the call and return `result`."""
    for name in names:
        function: Any = getattr(owner, name, None)
        while hasattr(function, "__wrapped__"):  # decorators stay: they call what they wrap
            function = function.__wrapped__
        if isinstance(function, FunctionType):
            code = _code(_COUNTING.format(name=f"{prefix}.{name}", result=result))
            # A function keeps its closure, so its new code must declare the same number of free variables.
            function.__code__ = code.replace(co_freevars=function.__code__.co_freevars)
            function.__defaults__ = function.__kwdefaults__ = None


def _code(text: str) -> CodeType:
    """Returns the code of the function `emptied` in `text`, which takes any arguments and needs no globals."""
    space: dict[str, Any] = {}
    exec(text, space)
    code = space["emptied"].__code__
    assert isinstance(code, CodeType)
    return code
