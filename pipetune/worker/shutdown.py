"""Ends a worker once measuring is over, without unwinding the script: none of its `finally`, `atexit` or `except` runs.

They would do, on what is left of a training that never was, what they are to do at its end: save, overwrite, remove.
What the process itself holds is freed first: iterators (one that fills a cache deletes its lock file then), child
processes, and what the script made by `tempfile`. Its files were flushed before its loop began (`tf.script.buffers`),
and are put back by the command (`core.restoration`).
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

_FREEING_SECONDS = 20.0  # an iterator may wait for a step of the script that never ends; nothing is lost then
_CHILDREN_SECONDS = 2.0  # for killed processes to be gone


def end(code: int, writer: MessageWriter | None, journal: UndoJournal | None) -> NoReturn:
    """Ends this process with exit status `code`, whatever its threads do.

    Args:
        writer: tells the command that this was all; None where it is not to be told.
        journal: of the script's files; the last entry is made.
    """
    last = threading.Timer(_FREEING_SECONDS, _leave, (code, writer))
    last.daemon = True
    last.start()
    with contextlib.suppress(Exception):  # nothing of it may keep the process from ending
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
    """Lets Horovod take its leave, as its own handler for the end of a process does: else MPI ends the other ranks."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized():
        horovod.shutdown()


def _end_children() -> None:
    """Ends pools, queues, servers and whatever else the script has started, without asking them to finish anything.

    But for Python's own helper, which removes shared memory that is left when this process has ended, and then ends.
    """
    helper = getattr(resource_tracker._resource_tracker, "_pid", None)
    children = [child for child in psutil.Process().children(recursive=True) if child.pid != helper]
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=_CHILDREN_SECONDS)
