"""Files that a script writes: those of a dataset while it trains, by the code that has written them; by native code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import protection, written_files
from pipetune.capture.patches import Patches
from pipetune.capture.written_files import WrittenFiles
from pipetune.core import file_events, restoration, undo
from pipetune.pipelines import call_sites, live
from tests.files import writes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[undo.UndoJournal]:
    (tmp_path / "journals").mkdir()
    patches, journal = Patches(), undo.UndoJournal(str(tmp_path / "journals"))
    file_events.set_journal(journal)
    written_files.watch(patches)
    yield journal
    patches.close()
    file_events.set_journal(None)


CODE: list[tuple[str, bool]] = [
    # Before it trains.
    ("write(games)\nfor epoch in range(2):\n    train()\n", False),
    ("for number in range(3):\n    write(games)\nfor epoch in range(2):\n    train()\n    write(log)\n", True),
    ("for number in range(3):\n    open(games, 'w').close()\nfor epoch in range(2):\n    train()\n    write(log)\n",
     False),
    ("def main():\n    write(games)\n    for epoch in range(2):\n        train()\nmain()\n", False),
    ("write(games)\ntrain()\nwrite(log)\n", False),
    # Files of others.
    ("write(log)\nfor epoch in range(2):\n    train()\n    write(log)\n", False),
    # For each dataset its own.
    ("for fold in range(3):\n    write(games)\n    data = read(games)\n    for epoch in range(9):\n        train()\n",
     False),
    # While it trains.
    ("for fold in range(3):\n    write(games)\n    data = read(games)\n    for epoch in range(9):\n        train()\n"
     "        write(games)\n", True),
    ("write(games)\nfor epoch in range(2):\n    train()\n    write(games)\n", True),
    ("for epoch in range(2):\n    open(games, 'w').close()\n    train()\n", True),
    ("def main():\n    for epoch in range(2):\n        write(games)\n        run()\ndef run():\n    train()\nmain()\n",
     True),
    ("def play(n):\n    write(games)\nplay(0)\nclass Agent:\n    def run(self):\n        train()\n        play(1)\n"
     "agent = Agent()\nwhile True:\n    agent.run()\n", True),
    ("def play(n):\n    write(games)\nplay(0)\ndef run():\n    train()\n    play(1)\nrun()\n", False),
    ("def first():\n    write(games)\ndef play():\n    for n in range(3):\n        write(log)\nfirst()\n"
     "while True:\n    train()\n    play()\n", True),
    ("write(games)\nsteps = dict(on_epoch_end=lambda epoch, logs: write(games))\ntrain()\n", True),
    ("class Play:\n    def on_epoch_end(self, epoch, logs=None):\n        write(games)\nwrite(games)\ntrain()\n", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CODE)
def test_code_that_writes_again_is_found(tmp_path: Path, journal: undo.UndoJournal, text: str, expected: bool) -> None:
    written, seen = WrittenFiles(), list[call_sites.CallPath]()
    script, games, log = (tmp_path / name for name in ("train.py", "games", "log"))
    script.write_text("def write(path):\n    with open(path, 'w') as file:\n        file.write('x')\n" + text)
    journal.on_write = written.add
    names: dict[str, Any] = {"games": str(games), "log": str(log)}

    def train() -> None:
        seen.append(call_sites.path_from(sys._getframe(1)))
        raise KeyboardInterrupt  # what comes behind has not run yet

    names["train"] = train
    names["read"] = tf.data.TextLineDataset
    with contextlib.suppress(KeyboardInterrupt), call_sites.Recorder():
        exec(compile(script.read_text(), str(script), "exec"), names)
    data = names.get("data") or tf.data.TextLineDataset(str(games))
    found = written.written_again(live.read(data), seen[0])
    assert found == (str(games) if expected else "")


# -- native code: TensorFlow's file operations, h5py, parquet


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
