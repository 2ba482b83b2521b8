"""Files of a dataset that the script writes while it trains: seen in the code that has written them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.written_files import WrittenFiles
from pipetune.core import file_events
from pipetune.core.undo import UndoJournal
from pipetune.pipelines import call_sites, live

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
def test_code_that_writes_again_is_found(tmp_path: Path, text: str, expected: bool) -> None:
    written, seen = WrittenFiles(), list[call_sites.CallPath]()
    script, games, log = (tmp_path / name for name in ("train.py", "games", "log"))
    script.write_text("def write(path):\n    with open(path, 'w') as file:\n        file.write('x')\n" + text)
    (tmp_path / "journal").mkdir()
    journal = UndoJournal(str(tmp_path / "journal"))
    journal.on_write = written.add
    names: dict[str, Any] = {"games": str(games), "log": str(log)}

    def train() -> None:
        seen.append(call_sites.path_from(sys._getframe(1)))
        raise KeyboardInterrupt  # what comes behind has not run yet

    names["train"] = train
    names["read"] = tf.data.TextLineDataset
    file_events.set_journal(journal)
    try:
        with contextlib.suppress(KeyboardInterrupt), call_sites.Recorder():
            exec(compile(script.read_text(), str(script), "exec"), names)
    finally:
        file_events.set_journal(None)
        journal.release()
    data = names.get("data") or tf.data.TextLineDataset(str(games))
    found = written.written_again(live.read(data), seen[0])
    assert found == (str(games) if expected else "")
