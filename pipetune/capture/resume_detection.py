"""Detects how the script resumes where an earlier run stopped: iterators in checkpoints, Keras's BackupAndRestore.

Methods that the pipeline itself shows (`skip`, ids) are detected in `pipelines/resume_points.py`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.observed_script import ObservedScript
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites

_CHECKPOINT = ("__init__", "save", "write", "read", "restore")
_ITERATOR = ("save", "restore")


def watch(script: ObservedScript) -> None:
    """Records checkpoints that hold an iterator, and saved or restored iterators, until the patches are undone."""
    for name in _CHECKPOINT:
        script.patches.wrap(tf.train.Checkpoint, name, functools.partial(_around_checkpoint, script))
    for name in _ITERATOR:
        script.patches.wrap(tensorflow_private.NumpyIterator, name, functools.partial(_around_iterator, script, name))


def _around_checkpoint(script: ObservedScript, original: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(checkpoint, *args, **kwargs)
    for name, value in _saved_objects(checkpoint):
        if isinstance(value, _ITERATORS):
            _record(script, f"tf.train.Checkpoint({name}=...)")
    return result


def _around_iterator(script: ObservedScript, name: str, original: Any, iterator: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(iterator, *args, **kwargs)
    _record(script, f"iterator.{name}()")
    return result


def _record(script: ObservedScript, what: str) -> None:
    frame, _ = call_sites.user_frame(sys._getframe(1))
    file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
    script.record_resuming(ResumePoint(ResumeMethod.ITERATOR_STATE, what, file, line))


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


def find_backup_callbacks(callbacks: Iterable[Any], *, file: str, line: int) -> list[ResumePoint]:
    """Returns a resume point if Keras's BackupAndRestore is among the callbacks of `fit`; else [].

    It saves the epoch, not the position in the data.
    """
    named = {base.__name__ for one in callbacks for base in type(one).__mro__}
    return [ResumePoint(ResumeMethod.EPOCHS, "BackupAndRestore", file, line)] if "BackupAndRestore" in named else []
