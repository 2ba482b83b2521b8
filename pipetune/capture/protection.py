"""Protects the user's state while pipetune measures: variables are restored, nothing is saved, files can be undone.

What a step changes and cannot be put back, objects of PyTorch and JAX, is named.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import inspect
import io
import os
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, Self

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.consumption import Consumer, NoConsumer
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.capture.patches import ImportWatcher
from pipetune.core import file_events
from pipetune.core.undo import UndoJournal
from pipetune.pipelines import files
from pipetune.pipelines.objects import inherits, live_instances
from pipetune.timing.windows import is_readable, is_variable_type


class Snapshot:
    """Host copies of every live variable and mutable table of the process, and the states of its random generators."""

    def __init__(self) -> None:
        live = live_instances(lambda kind: is_variable_type(kind) or inherits(kind, *_TABLES))
        variables = [one for one in live if is_variable_type(type(one))]
        self.variables = [(one, one.numpy()) for one in variables if is_readable(one)]
        tables = (one for one in live if not is_variable_type(type(one)))
        # One in a graph has nothing to read.
        self._tables = [(one, *_entries(one)) for one in tables if hasattr(one.resource_handle, "numpy")]
        self._python, self._numpy = random.getstate(), np.random.get_state()
        generator = tensorflow_private.op_seed_generator()
        self._op_seeds = generator.getstate() if generator is not None else None

    def restore(self) -> None:
        """Restores every value that may have changed since the snapshot; may be called repeatedly."""
        for variable, value in self.variables:
            variable.assign(value)
        for table, keys, values in self._tables:
            now, _ = _entries(table)
            table.remove(now)
            table.insert(keys, values)
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        generator = tensorflow_private.op_seed_generator()
        if generator is not None and self._op_seeds is not None:
            generator.setstate(self._op_seeds)


_TABLES = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)


def _entries(table: Any) -> tuple[Any, Any]:
    """Returns keys and values of a mutable table, without the unused buckets that a dense table also exports."""
    keys, values = table.export()
    marks = tensorflow_private.reserved_keys(table)
    if not marks:
        return keys, values
    rows = keys.numpy().reshape(len(keys), -1)
    used = ~np.any([np.all(rows == mark.reshape(1, -1), axis=1) for mark in marks], axis=0)
    return keys.numpy().reshape(len(keys), *marks[0].shape)[used], tensorflow_private.table_values(table, values)[used]


class CreatedVariables(contextlib.ExitStack):
    """Context manager: copies the initial value of each variable that is created while it is active.

    A snapshot taken before has no value for them; a training step creates them, and changes them at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: list[tuple[weakref.ref[Any], Any]] = []

    def __enter__(self) -> Self:
        self.enter_context(tensorflow_private.watching_new_variables(self._add))
        return self

    @property
    def count(self) -> int:
        return len(self._values)

    def restore(self, first: int = 0) -> None:
        """Gives the variables their initial values again, those that still exist.

        Args:
            first: `count` before the first of them.
        """
        for reference, value in reversed(self._values[first:]):  # the first value of a variable is the initial one
            variable = reference()
            if variable is not None:
                variable.assign(value)

    def _add(self, variable: Any) -> None:
        self._values.append((weakref.ref(variable), variable.numpy()))


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
_NAMED = frozenset({"Model.save", "Model.save_weights", "keras.save_model", "keras.save_weights"})
_ONE_FILE = (".keras", ".h5", ".hdf5", ".json")  # ends of the names of files; tf_keras saves a folder by any other name
_SUMMARIES = ("scalar", "image", "histogram", "text", "audio", "write", "graph", "flush")

_listener: Callable[[str], None] = lambda _name: None  # noqa: E731 - replaced by `disable_saving`


def disable_saving(on_suppressed: Callable[[str], None]) -> Callable[[], None]:
    """Makes every function that saves a model, checkpoint, summary or dataset report its calls and save nothing.

    The function bodies are replaced, not the names that refer to them: the script may hold its own reference, as after
    `from keras.models import save_model`. Those of a Keras module imported later are replaced on import.

    Args:
        on_suppressed: called with the name of each suppressed call.

    Returns:
        A function that makes them save again, for a process that goes on: the kernel of a notebook.
    """
    global _listener
    _listener = on_suppressed
    _disable(tf.train.Checkpoint, ("save", "write"), "Checkpoint", "")
    _disable(tf.train.CheckpointManager, ("save",), "CheckpointManager", "")  # a script may join it with other text
    _disable(tf.compat.v1.train.Saver, ("save",), "Saver", "")
    _disable(tf.saved_model, ("save",), "saved_model")
    _disable(tf.data.Dataset, ("save",), "Dataset")
    _disable(tf.summary, _SUMMARIES, "tf.summary", False)
    stop = tf.profiler.experimental.stop  # it still ends the profile
    _disabled.append((stop, stop.__code__, stop.__defaults__, stop.__kwdefaults__))
    stop.__defaults__ = (False,)  # `save`
    watcher = ImportWatcher(_KERAS, _disable_keras).__enter__()

    def enable() -> None:
        watcher.__exit__()
        while _disabled:
            function, code, defaults, keyword_defaults = _disabled.pop()
            function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keyword_defaults

    return enable


_disabled: list[tuple[FunctionType, CodeType, Any, Any]] = []
"""Functions that save nothing at the moment, with the code and the defaults that they had."""


def on_suppressed_call(name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Called in place of a disabled function.

    If a single file or a folder would have been saved, creates it empty, because most scripts then rename or remove it.
    """
    _listener(name)
    path = arguments[1] if len(arguments) > 1 else named.get("filepath")
    recorded = file_events.current_journal() is not None  # so the undo journal removes the empty file
    if name in _NAMED and isinstance(path, str | os.PathLike) and recorded:
        with contextlib.suppress(OSError):
            open(path, "xb").close() if str(path).endswith(_ONE_FILE) else os.mkdir(path)


def _disable_keras(module: ModuleType) -> None:
    for class_name, names in _KERAS[module.__name__].items():
        owner = getattr(module, class_name, None) if class_name else module
        if owner is not None:
            _disable(owner, names, class_name or "keras")


_DISABLED_SOURCE = """
def emptied(*arguments, **named):
    from pipetune.capture import protection
    protection.on_suppressed_call({name!r}, arguments, named)
    return {result!r}
"""


def _disable(owner: Any, names: tuple[str, ...], prefix: str, result: object = None) -> None:
    """Replaces the code of the functions: they report the call and return `result`."""
    for name in names:
        function: Any = getattr(owner, name, None)
        while hasattr(function, "__wrapped__"):  # decorators stay: they call what they wrap
            function = function.__wrapped__
        if isinstance(function, FunctionType):
            _disabled.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
            space: dict[str, Any] = {}
            exec(_DISABLED_SOURCE.format(name=f"{prefix}.{name}", result=result), space)
            # A function keeps its closure, so its new code must declare the same number of free variables.
            function.__code__ = space["emptied"].__code__.replace(co_freevars=function.__code__.co_freevars)
            function.__defaults__ = function.__kwdefaults__ = None


_FLUSHED: tuple[type, ...] = (
    io.TextIOWrapper,
    io.BufferedWriter,
    io.BufferedRandom,
    tf.io.gfile.GFile,
    tf.io.TFRecordWriter,
    tf.summary.SummaryWriter,
)


def flush() -> None:
    """Flushes every open file object; those that cannot be flushed are skipped."""
    h5py_file = getattr(sys.modules.get("h5py"), "File", None)
    kinds = (*_FLUSHED, h5py_file) if isinstance(h5py_file, type) else _FLUSHED
    for file in live_instances(lambda kind: inherits(kind, *kinds)):
        with contextlib.suppress(Exception):  # closed or read-only
            file.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


_MAX_FLUSHES = 16  # each scans all live objects, which takes a tenth of a second; a script may begin many loops

TOO_LARGE = (
    "Its loop changes more than 1 GB of files, too much to back up first: {}. It was stopped there, and no training "
    "steps were measured."
)


class FileProtection:
    """Records in a journal what the loops of a script change in files; None: there is no place for a journal."""

    def __init__(self, journal: UndoJournal | None) -> None:
        self._journal = journal
        self._flushes = 0

    def begin(self, dataset: Any) -> int:
        """Begins a new generation of the journal, after flushing buffered writes; returns its number.

        Args:
            dataset: is about to be iterated, which writes its caches and snapshots.
        """
        if self._journal is None:
            return 0
        if self._flushes < _MAX_FLUSHES and self._journal.open_files():
            self._flushes += 1
            flush()
        generation = self._journal.begin_generation()
        for name in files.files_written_by(dataset):
            self._journal.before_files_named(os.path.abspath(name), changing=False)
        return generation

    def confirm(self, consumer: Consumer, generation: int, *, on_too_large: Callable[[str], None]) -> Consumer:
        """Protects the user's files from `generation` on; returns the consumer that may train.

        Args:
            consumer: what was found to train.
            generation: what `begin` returned before it took its first element.
            on_too_large: as in `UndoJournal`.
        """
        large = self._journal.confirm_training(generation) if self._journal is not None else ()
        if not isinstance(consumer, LoopConsumer):
            return consumer
        if self._journal is None:
            return NoConsumer("There is no place to back up the files that the script's loop may overwrite.")
        self._journal.on_too_large = on_too_large
        return NoConsumer(TOO_LARGE.format(large[0])) if large else consumer


_DEPTH = 3  # attributes and items that are followed: self.trainer.model


def unrestorable_state(step: Callable[..., Any]) -> list[str]:
    """Returns what a step can reach and change, and pipetune cannot restore, in words: "model (PyTorch)".

    Looked at: what the function closes over, the globals that it names, its defaults and bound arguments, and the
    object it is a method of. A JAX array is listed where the step can rebind or replace it: it is in a container, in
    an object, or in a variable that the step declares `global` or `nonlocal`.
    """
    found: dict[str, None] = {}
    for name, value, rebound in _reachable(step):
        found |= dict.fromkeys(_states(name, value, _DEPTH, held=rebound))
    return list(found)


def unrestorable_names(code: CodeType, namespace: Mapping[str, Any]) -> list[str]:
    """Returns the same of what the code of a cell can change: by the names in it, and in functions among them.

    Args:
        code: of the cell.
        namespace: the names of the notebook, which pipetune can bind as they were.
    """
    found: dict[str, None] = {}
    for name in code.co_names:
        value = namespace.get(name)
        if inspect.isfunction(value):
            found |= dict.fromkeys(unrestorable_state(value))
        else:
            found |= dict.fromkeys(_states(name, value, _DEPTH, held=False))
    return list(found)


def _reachable(step: Callable[..., Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yields the name and value of each variable that the step uses from outside, and whether it may rebind it."""
    while isinstance(step, functools.partial):
        yield from ((f"argument {index}", value, False) for index, value in enumerate(step.args, 1))
        yield from ((name, value, False) for name, value in step.keywords.items())
        step = step.func
    owner = getattr(step, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        yield "self", owner, True
    function = inspect.unwrap(getattr(step, "__func__", step))
    if not inspect.isfunction(function):
        if not inspect.isbuiltin(function):
            yield type(step).__name__, step, True  # an object with __call__
        return
    variables = inspect.getclosurevars(function)
    names = {**variables.globals, **variables.nonlocals}
    stored = {one.argval for one in dis.get_instructions(function) if one.opname in ("STORE_GLOBAL", "STORE_DEREF")}
    yield from ((name, value, name in stored) for name, value in names.items())
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    usual = zip(reversed(arguments), reversed(function.__defaults__ or ()), strict=False)
    yield from ((name, value, False) for name, value in usual)


def _states(name: str, value: Any, depth: int, *, held: bool) -> Iterator[str]:
    """Yields path and library of each state in a value; `held`: the step can put another object in its place."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        yield f"{name} (PyTorch)"
    elif backend := _other_backend(value):
        yield f"{name} (Keras on {backend})"
    elif jax is not None and isinstance(value, jax.Array):
        if held:
            yield f"{name} (JAX)"
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _states(f"{name}[{key!r}]", item, depth - 1, held=True)
    elif depth and isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _states(f"{name}[{index}]", item, depth - 1, held=held or isinstance(value, list))
    elif depth and not inspect.ismodule(value) and not inspect.isroutine(value) and not inspect.isclass(value):
        for key, item in getattr(value, "__dict__", {}).items():
            yield from _states(f"{name}.{key}", item, depth - 1, held=True)


def _other_backend(value: Any) -> str:
    """Returns what holds the weights of a Keras layer, model or optimizer where that is not TensorFlow; else ""."""
    keras: Any = sys.modules.get("keras")
    if not hasattr(getattr(keras, "config", None), "backend") or not isinstance(value, (keras.Layer, keras.Optimizer)):
        return ""  # Keras 2 has TensorFlow alone
    name = str(keras.config.backend())
    return "" if name == "tensorflow" else name
