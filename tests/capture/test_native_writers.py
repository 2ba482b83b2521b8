"""Files written by native code are reported to the undo journal: TensorFlow's file operations, h5py, parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import native_writers, protection
from pipetune.capture.patches import Patches
from pipetune.core import file_events, restoration, undo
from tests.files import writes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[undo.UndoJournal]:
    (tmp_path / "journals").mkdir()
    patches, journal = Patches(), undo.UndoJournal(str(tmp_path / "journals"))
    file_events.set_journal(journal)
    native_writers.watch(patches)
    yield journal
    patches.undo_all()
    file_events.set_journal(None)


def test_files_written_by_native_code_are_restored(tmp_path: Path, journal: undo.UndoJournal) -> None:
    base = tmp_path / "own"
    kinds = writes.prepared(base, native=True)
    before = writes.trees(base, kinds)
    writer = writes.Writer(base, native=True)
    protection.flush()
    journal.confirm_training(journal.begin_generation())
    for name in kinds:
        writer.change(name)
    journal.close()
    assert set(writes.lost(base, before)) == {name for name, kind in kinds.items() if not kind.stays}
    done = restoration.restore(str(tmp_path / "journals"))
    assert writes.lost(base, before) == {} and done.left_alone == done.failed == done.unexplained == []
    writer.close()


def test_buffered_data_is_flushed_before_the_loop_and_kept(tmp_path: Path, journal: undo.UndoJournal) -> None:
    h5py = pytest.importorskip("h5py")
    log = open(tmp_path / "log", "w")  # noqa: SIM115
    gfile, records = tf.io.gfile.GFile(str(tmp_path / "gfile"), "w"), tf.io.TFRecordWriter(str(tmp_path / "records"))
    arrays = h5py.File(tmp_path / "arrays", "w")
    events = tf.summary.create_file_writer(str(tmp_path / "events"), max_queue=1000)

    def write(text: str) -> None:
        log.write(text)
        gfile.write(text)
        records.write(text.encode())
        arrays[text] = text
        with events.as_default():
            tf.summary.write(text, 1.0, step=0)

    write("before")
    protection.flush()
    journal.confirm_training(journal.begin_generation())
    write("in the loop")
    protection.flush()
    journal.close()
    restoration.restore(str(tmp_path / "journals"))
    assert (tmp_path / "log").read_text() == (tmp_path / "gfile").read_text() == "before"
    assert list(tf.data.TFRecordDataset(str(tmp_path / "records")).as_numpy_iterator()) == [b"before"]
    (event_file,) = (tmp_path / "events").iterdir()
    assert b"before" in event_file.read_bytes() and b"in the loop" not in event_file.read_bytes()
    (tmp_path / "copy").write_bytes((tmp_path / "arrays").read_bytes())  # h5py still has the original open
    with h5py.File(tmp_path / "copy") as copy:
        assert list(copy) == ["before"]
    for opened in (log, gfile, records, arrays, events):
        opened.close()
