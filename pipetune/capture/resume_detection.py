"""Detects how the script resumes where an earlier run stopped: iterators in checkpoints, Keras's BackupAndRestore.

Methods that the pipeline itself shows (`skip`, ids) are detected in `pipelines/resume_points.py`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites

ResumeCallback = Callable[[ResumePoint], None]

_CHECKPOINT = ("__init__", "save", "write", "read", "restore")
_ITERATOR = ("save", "restore")


class ResumeWatch:
    """Context manager: calls `found` if a checkpoint holds an iterator, or an iterator itself is saved or restored."""

    def __init__(self, found: ResumeCallback) -> None:
        self._found = found
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> ResumeWatch:
        for name in _CHECKPOINT:
            self._watch(tf.train.Checkpoint, name, self._inspect_checkpoint)
        for name in _ITERATOR:
            self._watch(tensorflow_private.NumpyIterator, name, functools.partial(self._report_iterator, name))
        return self

    def __exit__(self, *_error: object) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _watch(self, owner: type, name: str, look: Callable[[Any], None]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(instance: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(instance, *args, **kwargs)
            look(instance)
            return result

        setattr(owner, name, watched)
        self._undo.append(functools.partial(setattr, owner, name, original))

    def _inspect_checkpoint(self, checkpoint: Any) -> None:
        for name, value in _saved_objects(checkpoint):
            if isinstance(value, _ITERATORS):
                self._report(f"tf.train.Checkpoint({name}=...)")

    def _report_iterator(self, name: str, _iterator: Any) -> None:
        self._report(f"iterator.{name}()")

    def _report(self, what: str) -> None:
        frame, _ = call_sites.user_frame(sys._getframe(1))
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
        self._found(ResumePoint(ResumeMethod.ITERATOR_STATE, what, file, line))


_ITERATORS = (tf.data.Iterator, tensorflow_private.NumpyIterator, tf.distribute.DistributedIterator)


def _saved_objects(checkpoint: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a checkpoint saves, with its name there; two levels deep."""
    for name, value in _attributes(checkpoint):
        yield name, value
        yield from _attributes(value)


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, _ITERATORS):
        return ()
    if isinstance(value, Mapping):
        return [(str(name), one) for name, one in value.items()]
    if isinstance(value, tuple | list):
        return [(str(position), one) for position, one in enumerate(value)]
    return [(name, one) for name, one in getattr(value, "__dict__", {}).items() if not name.startswith("_")]


def find_backup_callbacks(callbacks: Any, *, file: str, line: int) -> list[ResumePoint]:
    """Returns a resume point if Keras's BackupAndRestore is among the callbacks of `fit`; else [].

    It saves the epoch, not the position in the data.
    """
    held = getattr(callbacks, "callbacks", callbacks)
    listed = held if isinstance(held, tuple | list) else [held]
    named = {base.__name__ for one in listed for base in type(one).__mro__}
    return [ResumePoint(ResumeMethod.EPOCHS, "BackupAndRestore", file, line)] if "BackupAndRestore" in named else []
