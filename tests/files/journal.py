"""An undo journal of tests: where pytest writes into a file, that file is not the script's."""

from __future__ import annotations

import os

from pipetune.core import open_files, undo

_PYTESTS = {os.fstat(descriptor).st_ino for descriptor, _flags, _size in open_files.for_writing()}


class Journal(undo.UndoJournal):
    def open_files(self) -> list[tuple[int, int, int]]:
        return [found for found in super().open_files() if os.fstat(found[0]).st_ino not in _PYTESTS]
