"""What writes in C is told to the undo journal by name: TensorFlow's file operations, h5py, parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core import file_events, restoration, undo
from pipetune.tf.script import buffers, native_writers
from pipetune.tf.script.patches import Patches
from tests.files import writes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[undo.UndoJournal]:
    (tmp_path / "journals").mkdir()
    patches, journal = Patches(), undo.UndoJournal(str(tmp_path / "journals"))
    file_events.tell(journal)
    native_writers.watch(patches)
    yield journal
    patches.put_back()
    file_events.tell(None)


def test_what_writes_in_c_is_undone(tmp_path: Path, journal: undo.UndoJournal) -> None:
    base = tmp_path / "own"
    kinds = writes.prepared(base, native=True)
    before = writes.trees(base, kinds)
    writer = writes.Writer(base, native=True)
    buffers.flush()
    journal.begin(journal.mark())
    for name in kinds:
        writer.change(name)
    journal.close()
    assert set(writes.lost(base, before)) == {name for name, kind in kinds.items() if not kind.stays}
    done = restoration.restore(str(tmp_path / "journals"))
    assert writes.lost(base, before) == {}
    assert done.left == done.failed == done.unknown == []
    writer.close()


def test_what_waits_in_buffers_is_written_before_the_loop_and_stays(
    tmp_path: Path, journal: undo.UndoJournal
) -> None:
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
    buffers.flush()
    journal.begin(journal.mark())
    write("in the loop")
    buffers.flush()
    journal.close()
    restoration.restore(str(tmp_path / "journals"))
    assert (tmp_path / "log").read_text() == (tmp_path / "gfile").read_text() == "before"
    assert list(tf.data.TFRecordDataset(str(tmp_path / "records")).as_numpy_iterator()) == [b"before"]
    (event_file,) = (tmp_path / "events").iterdir()
    assert b"before" in event_file.read_bytes() and b"in the loop" not in event_file.read_bytes()
    (tmp_path / "copy").write_bytes((tmp_path / "arrays").read_bytes())  # h5py knows the other one to be open
    with h5py.File(tmp_path / "copy") as copy:
        assert list(copy) == ["before"]
    for opened in (log, gfile, records, arrays, events):
        opened.close()
