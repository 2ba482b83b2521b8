"""Messages to the supervisor: every kind is passed through the pipe unchanged."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pipetune.core import messages
from pipetune.core.edits import Consent, Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import LogLine, MessageWriter, from_line, to_line
from pipetune.core.settings import Command, Settings
from tests.core.sessions import MACHINE, session

EVERY_KIND: list[messages.Message] = [
    messages.WorkerStarted("Runs the script."),
    messages.Progress("trials", "trying prefetch", "prefetch, 1.20x", 57.0),
    messages.TrialStarted(Plan("tuned")),
    messages.TrialEnded("prefetch@n3"),
    messages.VerdictKnown("Waits.", "input-bound"),
    messages.SessionSaved(session()),
    messages.ActionSuppressed("saves_suppressed", 2),
    messages.ScriptFailed('File "träin.py"\nValueError: \u2028 \x00'),
    messages.ScriptExited(3, "bye"),
    messages.AnalysisFailed("No GPU.", "Leave it out.", 5),
    LogLine("text"),
    messages.FigureMeasured("overhead", {"text": {"low": 0.1, "pairs": 3}, "notes": ["a note"], "met": None}, MACHINE),
    messages.FigureMeasured("photos-0-0", {"right": True}, None),
    messages.WorkerFinished(0),
]


@pytest.mark.parametrize("message", EVERY_KIND, ids=lambda message: type(message).__name__)
def test_every_message_round_trips_on_one_line(message: messages.Message) -> None:
    line = to_line(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert from_line(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"type": "Explode"}', b'{"type": "WorkerFinished"}', b"3"]
)
def test_invalid_message_is_rejected(line: bytes) -> None:
    with pytest.raises(PipetuneError):
        from_line(line)


def test_lines_of_concurrent_threads_are_not_interleaved() -> None:
    read_end, write_end = os.pipe()
    writer = MessageWriter(write_end)
    text = "x" * 20_000  # more than a pipe writes atomically

    def send_many() -> None:
        for _ in range(20):
            writer.send(LogLine(text))

    threads = [threading.Thread(target=send_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    received = b""
    while received.count(b"\n") < 80:
        received += os.read(read_end, 1 << 16)
    for thread in threads:
        thread.join()
    assert all(from_line(line) == LogLine(text) for line in received.splitlines())
    os.close(read_end)
    os.close(write_end)


def test_pipe_is_not_inherited_and_message_to_exited_supervisor_is_ignored() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    writer = MessageWriter(write_end)
    assert not os.get_inheritable(write_end)
    os.close(read_end)
    writer.send(LogLine("to nobody"))
    os.close(write_end)


def test_job_round_trip(tmp_path: Path) -> None:
    settings = Settings(seed=3, allow=frozenset({Consent.REORDER}))
    command = Command(arguments=("--epochs", "3"))
    job = messages.Job(
        messages.Mode.VERIFY, 7, settings, script="/train.py", overlay={"a.py": "x = 1\n"}, command=command
    )
    messages.write_job(job, tmp_path / "job.json")
    assert messages.read_job(tmp_path / "job.json") == job
