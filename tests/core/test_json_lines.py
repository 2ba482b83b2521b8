"""Lines of JSON between processes: complete, in order, and with detection of a closed connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import ConnectionLost, JsonLinesConnection, enable_keep_alive


@pytest.fixture
def ends() -> Iterator[tuple[JsonLinesConnection, socket.socket]]:
    near, far = socket.socketpair()
    lines = JsonLinesConnection(near)
    yield lines, far
    lines.close()
    far.close()


def test_lines_received_together_are_read_one_by_one(ends: tuple[JsonLinesConnection, socket.socket]) -> None:
    lines, far = ends
    far.sendall(b'{"a": 1}\n[2]\n"hal')
    assert lines.receive(5) == {"a": 1}
    assert lines.receive_available() == [[2]], "what was read with the first, and no half line"
    far.sendall(b'f"\n')
    assert lines.receive(5) == "half"
    assert not lines.peer_closed


def test_closed_connection_is_detected_after_pending_lines(ends: tuple[JsonLinesConnection, socket.socket]) -> None:
    lines, far = ends
    assert lines.receive_available() == [] and not lines.peer_closed
    far.sendall(b"1\n2\n")
    far.close()
    assert (lines.receive_available(), lines.peer_closed) == ([1, 2], True)
    with pytest.raises(ConnectionLost, match="has closed the connection"):
        lines.receive(5)
    with pytest.raises(ConnectionLost, match="has closed the connection"):
        lines.send("anybody?")


def test_silent_peer_times_out(ends: tuple[JsonLinesConnection, socket.socket]) -> None:
    with pytest.raises(ConnectionLost, match="did not reply within 0 s"):
        ends[0].receive(0.05)


def test_message_over_size_limit_is_rejected(ends: tuple[JsonLinesConnection, socket.socket]) -> None:
    lines, far = ends
    far.sendall(b"x" * 5000)
    with pytest.raises(ConnectionLost, match="sent a message that is too long"):
        lines.receive(5, max_bytes=4096)


def test_invalid_json_is_rejected(ends: tuple[JsonLinesConnection, socket.socket]) -> None:
    lines, far = ends
    far.sendall(b"GET / HTTP/1.1\n")
    with pytest.raises(PipetuneError, match=r"sent an invalid message: b'GET / HTTP/1\.1'"):
        lines.receive(5)


def test_keep_alive_is_enabled_on_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        assert enable_keep_alive(one).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
