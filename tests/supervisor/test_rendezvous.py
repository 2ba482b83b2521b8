"""Where ranks of Horovod find each other; over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.supervisor import rendezvous

HOST = "127.0.0.1"


@pytest.fixture
def address() -> Iterator[str]:
    with rendezvous.opened(HOST) as found:
        yield found


def ask(address: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=20)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_where_no_rank_was_yet_there_is_nothing(address: str) -> None:
    assert ask(address, "GET", "/global/1") == (404, b"")


@pytest.mark.parametrize("value", [b"", b"\0\xff\r\n\r\n" * 40], ids=["empty", "of any bytes"])
def test_a_value_is_found_in_its_scope_alone(address: str, value: bytes) -> None:
    assert ask(address, "PUT", "/global/0", value) == (200, b"")
    assert ask(address, "GET", "/global/0") == (200, value)
    assert ask(address, "GET", "/local_here/0") == (404, b"")
    ask(address, "PUT", "/global/0", b"another")
    assert ask(address, "GET", "/global/0") == (200, b"another")


def test_a_rank_that_has_found_all_takes_nothing_from_one_that_has_not(address: str) -> None:
    ask(address, "PUT", "/global/0", b"here")
    assert ask(address, "DELETE", "/global/0") == (200, b"")
    assert ask(address, "GET", "/global/0") == (200, b"here")


def test_each_start_begins_with_nothing() -> None:
    for _ in range(2):
        with rendezvous.opened(HOST) as address:
            assert ask(address, "GET", "/global/0") == (404, b"")
            ask(address, "PUT", "/global/0", b"here")
    with pytest.raises(OSError):
        ask(address, "GET", "/global/0")


@pytest.mark.parametrize("length", ["many", "-1", str(1 << 30)])
def test_what_no_rank_says_is_not_kept(address: str, length: str) -> None:
    assert ask(address, "PUT", "/global/0", **{"Content-Length": length})[0] == 400
    assert ask(address, "GET", "/global/0")[0] == 404


def test_a_rank_that_is_killed_in_the_middle_leaves_no_part_and_no_word(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as cut_off:
        cut_off.sendall(b"PUT /global/0 HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        cut_off.shutdown(socket.SHUT_WR)
        assert cut_off.recv(100) == b""
    assert ask(address, "GET", "/global/0")[0] == 404
    assert capfd.readouterr() == ("", "")


def test_one_that_says_nothing_keeps_nobody_waiting() -> None:
    before = threading.active_count()
    with rendezvous.opened(HOST) as address:
        host, _, port = address.rpartition(":")
        silent = socket.create_connection((host, int(port)))
        assert ask(address, "GET", "/global/0")[0] == 404
    silent.close()
    assert threading.active_count() <= before + 1, "but for that of who is silent"


def test_where_nothing_can_listen_it_is_said() -> None:
    with pytest.raises(PipetuneError, match=r"nothing can listen on 192\.0\.2\.1"), rendezvous.opened("192.0.2.1"):
        pass


def test_a_rank_is_told_by_its_variables() -> None:
    assert rendezvous.variables("") == {}
    assert rendezvous.variables("10.0.0.1:80") == {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "80",
    }
