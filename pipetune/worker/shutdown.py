"""Exits a worker after measuring without unwinding the script: none of its `finally`, `atexit` or `except` code runs.

That code would do what it is meant to do after training (save, overwrite, remove), but with the state of a training
that never happened. What the process itself holds is freed first: iterators (one that fills a cache then deletes its
lock file), child processes, and what the script created with `tempfile`. The script's files were flushed before its
loop began (`tf.script.buffers`), and are restored by the command (`core.restoration`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from multiprocessing import resource_tracker
from typing import NoReturn

import psutil

from pipetune.core.messages import Finished, MessageWriter
from pipetune.core.undo import UndoJournal
from pipetune.tf.script.objects import free_iterators

_FREEING_SECONDS = 20.0  # an iterator may wait for a step of the script that never ends; exiting then loses nothing
_CHILDREN_SECONDS = 2.0  # wait for killed processes to exit


def end(code: int, writer: MessageWriter | None, journal: UndoJournal | None) -> NoReturn:
    """Exits this process with status `code`, whatever its threads do.

    Args:
        writer: sends `Finished` to the command; None to send nothing.
        journal: the undo journal of the script's files, which is closed; None if there is none.
    """
    last = threading.Timer(_FREEING_SECONDS, _leave, (code, writer))
    last.daemon = True
    last.start()
    with contextlib.suppress(Exception):  # no failure may keep the process from exiting
        free_iterators()
    with contextlib.suppress(Exception):
        _end_children()
    with contextlib.suppress(Exception):
        _leave_ranks()
    if journal is not None:
        with contextlib.suppress(OSError):
            journal.close()
        for path in journal.temporaries:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    _leave(code, writer)


def _leave(code: int, writer: MessageWriter | None) -> NoReturn:
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    if writer is not None:
        writer.send(Finished(code))
    os._exit(code)


def _leave_ranks() -> None:
    """Shuts Horovod down, as its own exit handler would; otherwise MPI kills the other ranks."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized():
        horovod.shutdown()


def _end_children() -> None:
    """Kills pools, queues, servers and whatever else the script has started, without letting them finish.

    Except for Python's resource tracker, which removes leftover shared memory once this process has exited, and exits.
    """
    helper = getattr(resource_tracker._resource_tracker, "_pid", None)
    children = [child for child in psutil.Process().children(recursive=True) if child.pid != helper]
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=_CHILDREN_SECONDS)
