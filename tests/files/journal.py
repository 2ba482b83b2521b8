"""An undo journal for tests: ignores the files that pytest itself writes to."""

from __future__ import annotations

import os

from pipetune.core import files, undo

_PYTESTS = {os.fstat(descriptor).st_ino for descriptor, _flags, _size in files.writable_descriptors()}


class Journal(undo.UndoJournal):
    def open_files(self) -> list[tuple[int, int, int]]:
        return [found for found in super().open_files() if os.fstat(found[0]).st_ino not in _PYTESTS]
