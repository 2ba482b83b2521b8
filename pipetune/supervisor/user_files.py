"""Restores and reports the user files that the script changed, once the workers have ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core import files, restoration
from pipetune.core.restoration import Restoration

if TYPE_CHECKING:
    from pipetune.report.console import Progress as Screen

_MOST_LISTED = 5  # of the files changed by an unknown process, which may be thousands


class UserFiles:
    """Restores the user's files and counts them, over all starts of workers in one command."""

    def __init__(self, screen: Screen, results: Path) -> None:
        """Unexplained changes in the folder `results` are not reported: pipetune itself writes there."""
        self._screen, self._results = screen, results
        self._counts: Counter[str] = Counter()
        self._warnings: list[str] = []

    @contextlib.contextmanager
    def restored_on_exit(self) -> Iterator[str]:
        """Yields the folder for the undo journals of one start of workers, and restores the files on exit.

        The workers have to be ended before that. The folder is "" if it cannot be created.
        """
        with restoration.journal_folder() as folder:
            try:
                yield folder
            finally:
                ignored = (os.path.realpath(self._results),)
                done = restoration.restore(folder, ignored_folders=ignored, ended=time.time())
                self._counts += Counter(files_restored=len(done.restored), files_removed=len(done.removed))
                for warning in warnings(done):
                    self._screen.warn(warning)
                    self._warnings.append(warning)

    @property
    def side_effects(self) -> dict[str, int]:
        """The numbers of files restored and removed, for `Session.side_effects`; counts of 0 are left out."""
        return {name: count for name, count in self._counts.items() if count}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was restored, and all warnings, for the notes of the session."""
        put_back = _put_back(self._counts["files_restored"], self._counts["files_removed"])
        return tuple(filter(None, (put_back, *self._warnings)))


def recover() -> list[str]:
    """Cleans up after killed commands: restores files, ends processes, removes temporary folders.

    Returns:
        Sentences for the user; [] if there was nothing to do.
    """
    files.remove_abandoned()
    sentences = []
    for done in restoration.recover():
        found = (_put_back(len(done.restored), len(done.removed)), *warnings(done))
        sentences += [f"An earlier command was killed during its measurements. {text}" for text in found if text]
    return sentences


def warnings(done: Restoration) -> Iterator[str]:
    """Yields one or two sentences on each file that was not restored, with the reason."""
    for path, copy in done.left_alone:
        kept = f"Its previous content is in {copy}." if copy else "The training loop had created it."
        yield (
            f"{path} was changed by another process after the training loop had changed it, so it was not "
            f"restored. {kept}"
        )
    for path, copy, why in done.failed:
        kept = f" Its previous content is in {copy}." if copy else ""
        yield f"{path} was changed by the training loop and could not be restored: {why}.{kept}"
    if done.unexplained:
        named = ", ".join(done.unexplained[:_MOST_LISTED])
        more = f" and {len(done.unexplained) - _MOST_LISTED} more" if len(done.unexplained) > _MOST_LISTED else ""
        yield (
            "Changed during the measurements by something that pipetune cannot track (a child process, a "
            f"library that writes files in C, another user), and not restored: {named}{more}."
        )


def _put_back(restored: int, removed: int) -> str:
    changed = f"{restored} file{'s' if restored > 1 else ''} changed by the training loop" if restored else ""
    made = "created by it" if restored else f"file{'s' if removed > 1 else ''} created by the training loop"
    parts = [f"Restored: {changed}" if changed else "", f"removed: {removed} {made}" if removed else ""]
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""
