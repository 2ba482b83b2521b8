"""Restores and reports the user files that the script changed, once the workers have ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipetune.core import restoration, scratch
from pipetune.core.restoration import Restoration
from pipetune.supervisor.display import Screen

_MOST_NAMED = 5  # of the files changed by an unknown process, which may be thousands


class UserFiles:
    """Restores the user's files and counts them, over all starts of workers in one command."""

    def __init__(self, screen: Screen, results: Path) -> None:
        """Unexplained changes in the folder `results` are not reported: pipetune itself writes there."""
        self._screen, self._results = screen, results
        self._counts: Counter[str] = Counter()
        self._warnings: list[str] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[str]:
        """Yield the folder for the undo journals of one start of workers, and restore the files on exit.

        The workers have to be ended before that. The folder is "" if it cannot be created.
        """
        with restoration.folder() as folder:
            try:
                yield folder
            finally:
                unlisted = (os.path.realpath(self._results),)
                done = restoration.restore(folder, unlisted=unlisted, ended=time.time())
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
    """Clean up after killed commands: restore files, end processes, remove temporary folders.

    Returns:
        Sentences for the user; [] if there was nothing to do.
    """
    scratch.remove_abandoned()
    said = []
    for done in restoration.recover():
        found = (_put_back(len(done.restored), len(done.removed)), *warnings(done))
        said += [f"An earlier command was killed while it measured. {text}" for text in found if text]
    return said


def warnings(done: Restoration) -> Iterator[str]:
    """One or two sentences on each file that was not restored, with the reason."""
    for path, copy in done.left:
        kept = f"What it held before is in {copy}." if copy else "The script's loop had made it."
        yield f"{path} was changed by somebody else since the script's loop changed it: it is left as it is. {kept}"
    for path, copy, why in done.failed:
        kept = f" What it held before is in {copy}." if copy else ""
        yield f"{path}, which the script's loop has changed, could not be put back: {why}.{kept}"
    if done.unknown:
        named = ", ".join(done.unknown[:_MOST_NAMED])
        more = f" and {len(done.unknown) - _MOST_NAMED} more" if len(done.unknown) > _MOST_NAMED else ""
        yield (
            f"Changed while pipetune measured, by something that it does not see into (a child process, a library that "
            f"writes in C, somebody else), and left so: {named}{more}."
        )


def _put_back(restored: int, removed: int) -> str:
    changed = f"{restored} file{'s' if restored > 1 else ''} that the script's loop had changed" if restored else ""
    made = f"{removed} that it had made" if restored else f"{removed} file{'s' if removed > 1 else ''} that it had made"
    parts = [f"Put back: {changed}" if changed else "", f"removed: {made}" if removed else ""]
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""
