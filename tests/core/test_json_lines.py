"""Lines of JSON between processes: complete, in order, and with detection of a closed connection."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection, enable_keep_alive

Ends = tuple[JsonLinesConnection, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    with contextlib.closing(JsonLinesConnection(near)) as lines, far:
        yield lines, far


def test_lines_received_together_are_read_one_by_one(ends: Ends) -> None:
    lines, far = ends
    far.sendall(b'{"a": 1}\n[2]\n"hal')
    assert lines.receive(5) == {"a": 1}
    assert lines.receive_available() == [[2]], "what was read with the first, and no half line"
    far.sendall(b'f"\n')
    assert lines.receive(5) == "half"
    assert not lines.peer_closed


def test_closed_connection_is_detected_after_pending_lines(ends: Ends) -> None:
    lines, far = ends
    assert lines.receive_available() == [] and not lines.peer_closed
    far.sendall(b"1\n2\n")
    far.close()
    assert (lines.receive_available(), lines.peer_closed) == ([1, 2], True)
    with pytest.raises(ConnectionLost, match="has closed the connection"):
        lines.receive(5)
    with pytest.raises(ConnectionLost, match="has closed the connection"):
        lines.send("anybody?")


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"", "did not reply within 0 s"),
        (b"x" * 5000, "sent a message that is too long"),
        (b"GET / HTTP/1.1\n", r"sent an invalid message: b'GET / HTTP/1\.1'"),
    ],
    ids=["silent", "above the size limit", "not JSON"],
)
def test_peer_without_valid_message_is_rejected(ends: Ends, sent: bytes, says: str) -> None:
    lines, far = ends
    far.sendall(sent)
    with pytest.raises(PipetuneError if b"GET" in sent else ConnectionLost, match=says):
        lines.receive(0.05 if not sent else 5, max_bytes=4096)


def test_keep_alive_is_enabled_on_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        assert enable_keep_alive(one).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
