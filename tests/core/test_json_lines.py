"""Lines of JSON between processes: whole, in order, and with an end that is noticed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.json_lines import JsonLines, LinkBroken, keep_alive


@pytest.fixture
def ends() -> Iterator[tuple[JsonLines, socket.socket]]:
    near, far = socket.socketpair()
    lines = JsonLines(near)
    yield lines, far
    lines.close()
    far.close()


def test_what_came_together_is_read_one_by_one(ends: tuple[JsonLines, socket.socket]) -> None:
    lines, far = ends
    far.sendall(b'{"a": 1}\n[2]\n"hal')
    assert lines.receive(5) == {"a": 1}
    assert lines.arrived() == [[2]], "what was read with the first, and no half line"
    far.sendall(b'f"\n')
    assert lines.receive(5) == "half"
    assert not lines.ended


def test_an_end_is_noticed_behind_what_was_said(ends: tuple[JsonLines, socket.socket]) -> None:
    lines, far = ends
    assert lines.arrived() == [] and not lines.ended
    far.sendall(b"1\n2\n")
    far.close()
    assert (lines.arrived(), lines.ended) == ([1, 2], True)
    with pytest.raises(LinkBroken, match="is gone"):
        lines.receive(5)
    with pytest.raises(LinkBroken, match="is gone"):
        lines.send("anybody?")


def test_silence_ends_too(ends: tuple[JsonLines, socket.socket]) -> None:
    with pytest.raises(LinkBroken, match="did not answer for 0 s"):
        ends[0].receive(0.05)


def test_a_stranger_may_not_say_much(ends: tuple[JsonLines, socket.socket]) -> None:
    lines, far = ends
    far.sendall(b"x" * 5000)
    with pytest.raises(LinkBroken, match="says too much"):
        lines.receive(5, most_bytes=4096)


def test_what_is_no_json_is_an_error(ends: tuple[JsonLines, socket.socket]) -> None:
    lines, far = ends
    far.sendall(b"GET / HTTP/1.1\n")
    with pytest.raises(PipetuneError, match=r"said something that is no message: b'GET / HTTP/1\.1'"):
        lines.receive(5)


def test_a_machine_that_is_gone_is_to_be_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        assert keep_alive(one).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
