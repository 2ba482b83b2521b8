"""The handshake between the commands of one cluster: success, timeouts and rejected connections."""

from __future__ import annotations

import contextlib
import json
import os
import signal
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

from pipetune.core.cluster import ClusterTask
from pipetune.core.codec import decode, encode
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection
from pipetune.supervisor import handshake
from pipetune.supervisor.monitoring import Interrupts

pytestmark = pytest.mark.slow

WHERE = "127.0.0.1"


def place(index: int, workers: int = 2) -> ClusterTask:
    return ClusterTask("worker", index, workers, coordinator_host=WHERE)


@contextmanager
def second(folder: Path, *, workers: int = 2) -> Iterator[Any]:
    """Another command in its own thread; `found` holds its outcome when it has ended."""
    done, found = threading.Event(), SimpleNamespace(together=None)

    def run() -> None:
        with (
            Interrupts() as interrupts,
            handshake.agent_handshake(folder, place(1, workers), interrupts, wait_seconds=20) as first,
        ):
            found.together = first is not None
            if first is not None:
                first[0].connect(1, start=7).close()
            done.wait(20)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


@contextmanager
def coordinator(folder: Path, *, workers: int = 2, wait_seconds: float = 20) -> Iterator[Any]:
    with (
        Interrupts() as interrupts,
        handshake.coordinator_handshake(folder, place(0, workers), interrupts, wait_seconds=wait_seconds) as others,
    ):
        yield others


@pytest.mark.one_core
def test_agents_connect_and_reconnect_for_a_job(tmp_path: Path) -> None:
    with second(tmp_path) as found, coordinator(tmp_path) as others:
        door, commands = others
        assert list(commands) == [1]
        assert stat.S_IMODE((tmp_path / handshake.FILE).stat().st_mode) == 0o600
        again = door.accept(start=7, seconds=20)
        assert list(again) == [1]
        again[1].close()
    assert found.together is True
    assert not list(tmp_path.iterdir()), "the secret is gone"


def test_missing_agent_makes_all_commands_continue_alone(tmp_path: Path) -> None:
    with second(tmp_path, workers=3) as found, coordinator(tmp_path, workers=3, wait_seconds=1) as others:
        assert others is None
    assert found.together is False


def test_agent_without_coordinator_continues_alone(tmp_path: Path) -> None:
    with socket.create_server((WHERE, 0)) as closed:
        port = closed.getsockname()[1]
    earlier = handshake.ConnectionInfo(WHERE, port, "of an earlier run")
    (tmp_path / handshake.FILE).write_text(json.dumps(encode(earlier)))
    with Interrupts() as one, handshake.agent_handshake(tmp_path, place(1), one, wait_seconds=0.5) as first:
        assert first is None


@pytest.mark.parametrize(
    ("secret", "worker", "job"),
    [("a guess", 1, 0), ("", 0, 0), ("", 2, 0), ("", 1, 3)],
    ids=["secret", "the first", "unknown", "another job"],
)
def test_client_with_wrong_proof_is_rejected(tmp_path: Path, secret: str, worker: int, job: int) -> None:
    def ask(invitation: handshake.ConnectionInfo) -> None:
        hello = handshake.Hello(worker, job, "0")
        with socket.create_connection((invitation.host, invitation.port)) as connected:
            lines = JsonLinesConnection(connected)
            lines.send(encode(hello))
            challenge = decode(handshake.Challenge, lines.receive(10))
            proof = handshake._proof(secret or invitation.secret, "comes", challenge.nonce, hello)
            lines.send(encode(handshake.AgentProof(proof)))
            lines.receive(10)

    assert stranger(tmp_path, ask) == "ConnectionLost"


@pytest.mark.parametrize("words", [b'{"anything": "else"}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000])
def test_invalid_hello_is_rejected(tmp_path: Path, words: bytes) -> None:
    def ask(invitation: handshake.ConnectionInfo) -> None:
        with socket.create_connection((invitation.host, invitation.port)) as connected:
            connected.sendall(words)
            JsonLinesConnection(connected).receive(10)

    assert stranger(tmp_path, ask) == "ConnectionLost"


def stranger(folder: Path, ask: Callable[[handshake.ConnectionInfo], None]) -> str:
    """The error that a client gets which connects in this way while the chief waits for a worker."""

    def come() -> None:
        while (invitation := handshake._read(folder / handshake.FILE)) is None:
            time.sleep(0.01)
        try:
            ask(invitation)
        except Exception as error:
            raised.append(type(error).__name__)
        os.kill(os.getpid(), signal.SIGINT)  # the chief would wait for others

    raised: list[str] = []
    thread = threading.Thread(target=come)
    with Interrupts():
        thread.start()
        with coordinator(folder) as others:
            assert others is None
        thread.join()
    return ", ".join(raised)


@pytest.mark.parametrize(
    "answer",
    [handshake.Challenge("0", "no proof"), handshake.Challenge("0", "\u00e9"), handshake.Welcome(True)],
    ids=["wrong", "not ASCII", "none"],
)
def test_coordinator_without_proof_is_rejected_and_receives_no_secret(tmp_path: Path, answer: Any) -> None:
    heard: list[object] = []

    def pretend(listening: socket.socket) -> None:
        lines = JsonLinesConnection(listening.accept()[0])
        heard.append(lines.receive(10))
        lines.send(encode(answer))
        with contextlib.suppress(ConnectionLost):
            heard.append(lines.receive(10))
        lines.close()

    with socket.create_server((WHERE, 0)) as listening:
        invitation = handshake.ConnectionInfo(WHERE, listening.getsockname()[1], "secret of an earlier run")
        thread = threading.Thread(target=pretend, args=(listening,))
        thread.start()
        with pytest.raises(ConnectionLost):
            invitation.connect(1)
        thread.join()
    assert len(heard) == 1 and "secret" not in str(heard)
