"""The user's files around workers: what their script changes is put back once they have ended, and said."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipetune.core import restoration, scratch
from pipetune.core.restoration import Restoration
from pipetune.supervisor.display import Screen

_MOST_NAMED = 5  # of the files that changed, nobody knows by whom: a folder of thousands is one sentence, too


class UserFiles:
    """What happens to the user's files during one command, over all starts of workers."""

    def __init__(self, screen: Screen, results: Path) -> None:
        """Changes in the folder `results`, which pipetune itself writes, are not compared."""
        self._screen, self._results = screen, results
        self._counts: Counter[str] = Counter()
        self._warnings: list[str] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[str]:
        """The folder for the undo journals of one start of workers; they have to end before it is closed."""
        with restoration.folder() as folder:
            try:
                yield folder
            finally:
                done = restoration.restore(folder, unlisted=(os.path.realpath(self._results),))
                self._counts += Counter(files_restored=len(done.restored), files_removed=len(done.removed))
                for warning in warnings(done):
                    self._screen.warn(warning)
                    self._warnings.append(warning)

    @property
    def side_effects(self) -> dict[str, int]:
        """Files put back and removed, for `Session.side_effects`; nothing where there were none."""
        return {name: count for name, count in self._counts.items() if count}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of the session should know."""
        put_back = _put_back(self._counts["files_restored"], self._counts["files_removed"])
        return tuple(filter(None, (put_back, *self._warnings)))


def recover() -> list[str]:
    """Does what killed commands did not come to: files are put back, processes ended, folders removed.

    Returns:
        Sentences for the user; none where there was nothing to do.
    """
    scratch.remove_abandoned()
    said = []
    for done in restoration.recover():
        found = (_put_back(len(done.restored), len(done.removed)), *warnings(done))
        said += [f"An earlier command was killed while it measured. {text}" for text in found if text]
    return said


def warnings(done: Restoration) -> Iterator[str]:
    """What was not put back, and why; each in a sentence or two."""
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
