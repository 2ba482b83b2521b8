"""Commands of one cluster that find each other, or do not."""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.core.cluster import Place
from pipetune.core.codec import encode
from pipetune.core.json_lines import JsonLines, LinkBroken
from pipetune.supervisor import meeting
from pipetune.supervisor.interrupts import Interrupts

WHERE = "127.0.0.1"


def place(index: int, workers: int = 2) -> Place:
    return Place("worker", index, workers, host=WHERE)


@contextmanager
def second(folder: Path, *, index: int = 1, workers: int = 2, wait_seconds: float = 20) -> Iterator[Any]:
    """Another command, in a thread of its own; what it came to stands in `found` when it has ended."""
    done, found = threading.Event(), SimpleNamespace(together=None)

    def run() -> None:
        with (
            Interrupts() as interrupts,
            meeting.joined(folder, place(index, workers), interrupts, wait_seconds=wait_seconds) as first,
        ):
            found.together = first is not None
            if first is not None:
                first[0].connected(index, job=7).close()
            done.wait(20)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


@pytest.mark.one_core
def test_all_come_and_come_again_for_a_job(tmp_path: Path) -> None:
    with (
        second(tmp_path) as found,
        Interrupts() as interrupts,
        meeting.called(tmp_path, place(0), interrupts, wait_seconds=20) as others,
    ):
        assert others is not None
        door, commands = others
        assert list(commands) == [1]
        assert stat.S_IMODE((tmp_path / meeting.FILE).stat().st_mode) == 0o600
        again = door.admitted(job=7, seconds=20)
        assert list(again) == [1]
        again[1].close()
    assert found.together is True
    assert not list(tmp_path.iterdir()), "the secret is gone"


@pytest.mark.one_core
def test_unless_all_come_each_goes_on_by_itself(tmp_path: Path) -> None:
    with (
        second(tmp_path, workers=3) as found,
        Interrupts() as interrupts,
        meeting.called(tmp_path, place(0, 3), interrupts, wait_seconds=2) as others,
    ):
        assert others is None
    assert found.together is False


@pytest.mark.one_core
def test_where_nobody_calls_one_goes_on_by_itself(tmp_path: Path) -> None:
    with socket.create_server((WHERE, 0)) as closed:
        port = closed.getsockname()[1]
    (tmp_path / meeting.FILE).write_text(json.dumps(encode(meeting.Invitation(WHERE, port, "of an earlier run"))))
    with Interrupts() as interrupts, meeting.joined(tmp_path, place(1), interrupts, wait_seconds=0.5) as first:
        assert first is None


@pytest.mark.parametrize(
    "hello",
    [
        encode(meeting.Hello("a guess", 1)),
        encode(meeting.Hello("{secret}", 0)),
        encode(meeting.Hello("{secret}", 2)),
        encode(meeting.Hello("{secret}", 1, job=3)),
        {"anything": "else"},
    ],
    ids=["secret", "the first", "unknown", "another job", "no hello"],
)
def test_nobody_else_is_let_in(tmp_path: Path, hello: Any) -> None:
    def stranger() -> None:
        while not (tmp_path / meeting.FILE).exists():
            pass
        invitation = meeting._read(tmp_path / meeting.FILE)
        assert invitation is not None
        words = json.loads(json.dumps(hello).replace("{secret}", invitation.secret))
        lines = JsonLines(socket.create_connection((invitation.host, invitation.port)))
        try:
            lines.send(words)
            lines.receive(10)
        except LinkBroken:
            refused.append(True)
        lines.close()

    refused: list[bool] = []
    thread = threading.Thread(target=stranger)
    thread.start()
    with Interrupts() as interrupts, meeting.called(tmp_path, place(0), interrupts, wait_seconds=1) as others:
        assert others is None
    thread.join()
    assert refused == [True]
