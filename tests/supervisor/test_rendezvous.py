"""The rendezvous server of Horovod ranks, over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.supervisor import remote_cluster

HOST = "127.0.0.1"


@pytest.fixture
def address() -> Iterator[str]:
    with remote_cluster.rendezvous_server(HOST) as found:
        yield found


def ask(address: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=20)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("value", [b"", b"\0\xff\r\n\r\n" * 40], ids=["empty", "of any bytes"])
def test_value_is_stored_per_scope_and_kept(address: str, value: bytes) -> None:
    assert ask(address, "PUT", "/global/0", value) == (200, b"")
    assert ask(address, "GET", "/global/0") == (200, value)
    assert ask(address, "GET", "/local_here/0") == (404, b"")
    ask(address, "PUT", "/global/0", b"another")
    assert ask(address, "GET", "/global/0") == (200, b"another")
    assert ask(address, "DELETE", "/global/0") == (200, b"")
    assert ask(address, "GET", "/global/0") == (200, b"another"), "for the other ranks"


def test_new_server_is_empty() -> None:
    for _ in range(2):
        with remote_cluster.rendezvous_server(HOST) as address:
            assert ask(address, "GET", "/global/0") == (404, b"")
            ask(address, "PUT", "/global/0", b"here")
    with pytest.raises(OSError):
        ask(address, "GET", "/global/0")


@pytest.mark.parametrize("length", ["many", "-1", str(1 << 30)])
def test_invalid_content_length_is_rejected(address: str, length: str) -> None:
    assert ask(address, "PUT", "/global/0", **{"Content-Length": length})[0] == 400
    assert ask(address, "GET", "/global/0")[0] == 404


def test_incomplete_request_is_dropped_silently(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as cut_off:
        cut_off.sendall(b"PUT /global/0 HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        cut_off.shutdown(socket.SHUT_WR)
        assert cut_off.recv(100) == b""
    assert ask(address, "GET", "/global/0")[0] == 404
    assert capfd.readouterr() == ("", "")


def test_silent_client_does_not_block_server() -> None:
    before = set(threading.enumerate())
    with remote_cluster.rendezvous_server(HOST) as address:
        host, _, port = address.rpartition(":")
        silent = socket.create_connection((host, int(port)))
        assert ask(address, "GET", "/global/0")[0] == 404
    silent.close()
    for thread in set(threading.enumerate()) - before:  # each ends a moment after its connection
        thread.join(20)
        assert not thread.is_alive()


def test_unavailable_address_is_reported() -> None:
    with pytest.raises(PipetuneError, match=r"cannot listen on 192\.0\.2\.1"):
        remote_cluster.rendezvous_server("192.0.2.1").__enter__()


def test_rendezvous_environment_variables() -> None:
    assert remote_cluster.rendezvous_environment("") == {}
    names = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
    assert remote_cluster.rendezvous_environment("10.0.0.1:80") == dict(zip(names, ("10.0.0.1", "80"), strict=True))
