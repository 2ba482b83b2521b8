"""Messages: every kind comes through the pipe whole, whoever sends, whoever listens."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pipetune.core.accuracy import Claim, Figure
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import (
    Failed,
    FigureMeasured,
    Finished,
    Job,
    Log,
    Message,
    MessageWriter,
    Mode,
    Progress,
    ScriptExited,
    ScriptFailed,
    SessionSaved,
    Started,
    Suppressed,
    TrialEnded,
    TrialStarted,
    VerdictKnown,
    WorkloadMeasured,
    from_line,
    read_job,
    to_line,
    write_job,
)
from pipetune.core.settings import Settings
from tests.core.invented_benchmarks import result
from tests.core.sessions import MACHINE, session

EVERY_KIND: list[Message] = [
    Started("Runs the script."),
    Progress("trials", "trying prefetch", "prefetch, 1.20x", 3.0, 57.0),
    TrialStarted("prefetch@n3", session().plan),
    TrialEnded("prefetch@n3"),
    VerdictKnown("Waits.", "input-bound"),
    SessionSaved(session()),
    Suppressed("saves_suppressed", 2),
    ScriptFailed('File "träin.py"\nValueError: \u2028 \x00'),
    ScriptExited(3, "bye"),
    Failed("No GPU.", "Leave it out.", 5),
    Log("text"),
    FigureMeasured(
        "overhead",
        Figure({"text": {"low": 0.1, "pairs": 3}}, (Claim("text", "1 %", "below 2 %", True),), ("a note",)),
    ),
    WorkloadMeasured(result("digits", 3.0, bare=2.0), MACHINE),
    Finished(0),
]


@pytest.mark.parametrize("message", EVERY_KIND, ids=lambda message: type(message).__name__)
def test_every_kind_comes_through_on_one_line(message: Message) -> None:
    line = to_line(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert from_line(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"type": "Explode"}', b'{"type": "Finished"}', b"3"]
)
def test_what_is_no_message_is_an_error(line: bytes) -> None:
    with pytest.raises(PipetuneError):
        from_line(line)


def test_threads_do_not_cut_into_each_others_lines() -> None:
    read_end, write_end = os.pipe()
    writer = MessageWriter(write_end)
    text = "x" * 20_000  # more than a pipe takes in one piece with others writing

    def send_many() -> None:
        for _ in range(20):
            writer.send(Log(text))

    threads = [threading.Thread(target=send_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    received = b""
    while received.count(b"\n") < 80:
        received += os.read(read_end, 1 << 16)
    for thread in threads:
        thread.join()
    assert all(from_line(line) == Log(text) for line in received.splitlines())
    os.close(read_end)
    os.close(write_end)


def test_a_supervisor_that_is_gone_is_no_error() -> None:
    read_end, write_end = os.pipe()
    writer = MessageWriter(write_end)
    os.close(read_end)
    writer.send(Log("to nobody"))
    os.close(write_end)


def test_programs_the_script_starts_do_not_get_the_pipe() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    MessageWriter(write_end)
    assert not os.get_inheritable(write_end)
    os.close(read_end)
    os.close(write_end)


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    job = Job(Mode.ANALYZE, 7, Settings(seed=3), script="/train.py", command={"arguments": ["--epochs", "3"]})
    write_job(job, tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == job
