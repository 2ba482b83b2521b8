"""Commands of one cluster that find each other, or do not."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.core.cluster import Place
from pipetune.core.codec import decode, encode
from pipetune.core.json_lines import JsonLines, LinkBroken
from pipetune.supervisor import meeting
from pipetune.supervisor.interrupts import Interrupts

pytestmark = pytest.mark.slow

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


def test_unless_all_come_each_goes_on_by_itself(tmp_path: Path) -> None:
    with (
        second(tmp_path, workers=3) as found,
        Interrupts() as interrupts,
        meeting.called(tmp_path, place(0, 3), interrupts, wait_seconds=2) as others,
    ):
        assert others is None
    assert found.together is False


def test_where_nobody_calls_one_goes_on_by_itself(tmp_path: Path) -> None:
    with socket.create_server((WHERE, 0)) as closed:
        port = closed.getsockname()[1]
    (tmp_path / meeting.FILE).write_text(json.dumps(encode(meeting.Invitation(WHERE, port, "of an earlier run"))))
    with Interrupts() as interrupts, meeting.joined(tmp_path, place(1), interrupts, wait_seconds=0.5) as first:
        assert first is None


@pytest.mark.parametrize(
    ("secret", "worker", "job"),
    [("a guess", 1, 0), ("", 0, 0), ("", 2, 0), ("", 1, 3)],
    ids=["secret", "the first", "unknown", "another job"],
)
def test_nobody_else_is_let_in(tmp_path: Path, secret: str, worker: int, job: int) -> None:
    def ask(invitation: meeting.Invitation) -> None:
        hello = meeting.Hello(worker, job, "0")
        with socket.create_connection((invitation.host, invitation.port)) as connected:
            lines = JsonLines(connected)
            lines.send(encode(hello))
            challenge = decode(meeting.Challenge, lines.receive(10))
            proof = meeting._proof(secret or invitation.secret, "comes", challenge.nonce, hello)
            lines.send(encode(meeting.Proof(proof)))
            lines.receive(10)

    assert stranger(tmp_path, ask) == "LinkBroken"


@pytest.mark.parametrize("words", [b'{"anything": "else"}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000])
def test_what_is_no_hello_is_not_let_in(tmp_path: Path, words: bytes) -> None:
    def ask(invitation: meeting.Invitation) -> None:
        with socket.create_connection((invitation.host, invitation.port)) as connected:
            connected.sendall(words)
            JsonLines(connected).receive(10)

    assert stranger(tmp_path, ask) == "LinkBroken"


def stranger(folder: Path, ask: Callable[[meeting.Invitation], None]) -> str:
    """What becomes of one who comes in this way while another worker is awaited."""

    def come() -> None:
        while (invitation := meeting._read(folder / meeting.FILE)) is None:
            time.sleep(0.01)
        try:
            ask(invitation)
        except Exception as error:
            raised.append(type(error).__name__)

    raised: list[str] = []
    thread = threading.Thread(target=come)
    thread.start()
    with Interrupts() as interrupts, meeting.called(folder, place(0), interrupts, wait_seconds=1) as others:
        assert others is None
    thread.join()
    return ", ".join(raised)


@pytest.mark.parametrize(
    "answer",
    [meeting.Challenge("0", "no proof"), meeting.Challenge("0", "\u00e9"), meeting.Welcome(True)],
    ids=["wrong", "not ASCII", "none"],
)
def test_who_only_listens_at_the_port_is_not_obeyed_and_learns_nothing(tmp_path: Path, answer: Any) -> None:
    heard: list[object] = []

    def pretend(listening: socket.socket) -> None:
        lines = JsonLines(listening.accept()[0])
        heard.append(lines.receive(10))
        lines.send(encode(answer))
        with contextlib.suppress(LinkBroken):
            heard.append(lines.receive(10))
        lines.close()

    with socket.create_server((WHERE, 0)) as listening:
        invitation = meeting.Invitation(WHERE, listening.getsockname()[1], "secret of an earlier run")
        thread = threading.Thread(target=pretend, args=(listening,))
        thread.start()
        with pytest.raises(LinkBroken):
            invitation.connected(1)
        thread.join()
    assert len(heard) == 1 and "secret" not in str(heard)
