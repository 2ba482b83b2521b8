"""The user's files while a loop runs that may train: from its first element on, what it changes can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pipetune.capture import consumption, loop_consumer, protection
from pipetune.core.undo import UndoJournal
from pipetune.pipelines import files

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
            protection.flush()
        generation = self._journal.begin_generation()
        for name in files.files_written_by(dataset):
            self._journal.before_files_named(os.path.abspath(name), changing=False)
        return generation

    def confirm(
        self, consumer: consumption.Consumer, generation: int, *, on_too_large: Callable[[str], None]
    ) -> consumption.Consumer:
        """Protects the user's files from `generation` on; returns the consumer that may train.

        Args:
            consumer: what was found to train.
            generation: what `begin` returned before it took its first element.
            on_too_large: as in `UndoJournal`.
        """
        large = self._journal.confirm_training(generation) if self._journal is not None else ()
        if not isinstance(consumer, loop_consumer.LoopConsumer):
            return consumer
        if self._journal is None:
            return consumption.NoConsumer(
                "There is no place to back up the files that the script's loop may overwrite."
            )
        self._journal.on_too_large = on_too_large
        return consumption.NoConsumer(TOO_LARGE.format(large[0])) if large else consumer
