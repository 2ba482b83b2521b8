"""An undo journal: whatever a script does to files, they are as they were once it has ended."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipetune.core import file_events, restoration, undo
from tests.files import writes

TIMES = 4


def in_another_process(work: Callable[[], object]) -> int:
    """Does `work` in a process that ends without unwinding; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def recording(folder: Path) -> Iterator[undo.UndoJournal]:
    journal = undo.UndoJournal(str(folder))
    file_events.tell(journal)
    try:
        yield journal
    finally:
        file_events.tell(None)


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    folder = tmp_path / "journals"
    folder.mkdir()
    return folder


def test_every_kind_of_writing_is_undone(tmp_path: Path, journals: Path) -> None:
    base = tmp_path / "own"
    kinds = writes.prepared(base, native=False)
    before = writes.trees(base, kinds)

    def script() -> None:
        with recording(journals) as journal:
            writer = writes.Writer(base, native=False)
            journal.begin(journal.mark())
            for _ in range(TIMES):
                for name in kinds:
                    writer.change(name)
            journal.close()

    assert in_another_process(script) == 0
    assert len(kinds) > 40 and set(writes.lost(base, before)) == set(kinds)
    done = restoration.restore(str(journals))
    assert writes.lost(base, before) == {}
    assert done.left == done.failed == done.unknown == []
