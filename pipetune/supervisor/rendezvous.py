"""Where ranks of Horovod that are started together find each other: a server of their own for every start.

That of `horovodrun` is meant for one start. A rank that ends before all have found each other leaves its address there,
and the next one of that number is looked for where nobody is: then all of them wait. The protocol is that of 0.28.1
(`horovod/runner/http/http_server.py`): PUT and GET of a value at /SCOPE/KEY, 404 while there is none, and DELETE by who
has found all others; what is said to the server ends with the server, so that nothing need be taken away.
"""

from __future__ import annotations

import contextlib
import http.server
import socketserver
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pipetune.core.errors import PipetuneError
from pipetune.core.ranks import RENDEZVOUS_HOST, RENDEZVOUS_PORT

_REQUEST_SECONDS = 30.0
_MOST_BYTES = 1 << 20  # of a value; a rank says some hundred
_END_LOOK_SECONDS = 0.05


@contextlib.contextmanager
def opened(host: str) -> Iterator[str]:
    """A server at this address of ours, as "host:port"; on leaving it is gone, with all it was told.

    Raises:
        PipetuneError: nothing can listen there.
    """
    try:
        server = _Server((host, 0), _Request)
    except OSError as error:
        raise PipetuneError(
            f"Ranks of Horovod cannot be started: nothing can listen on {host}: {error.strerror or error}.",
            hint="The address is that of this machine in the network of horovodrun: see its --network-interfaces.",
            exit_code=1,
        ) from error
    with server:
        serving = threading.Thread(target=server.serve_forever, args=(_END_LOOK_SECONDS,), daemon=True)
        serving.start()
        try:
            yield f"{host}:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def variables(address: str) -> Mapping[str, str]:
    """What tells a rank of it; nothing without an address, "host:port"."""
    host, _, port = address.rpartition(":")
    return {RENDEZVOUS_HOST: host, RENDEZVOUS_PORT: port} if host else {}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128  # ranks ask again and again for who is not there yet

    def __init__(self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        self.values: dict[str, bytes] = {}
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A rank that was killed in the middle of a request: said by who has started it."""


class _Request(http.server.BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _Server

    def do_GET(self) -> None:
        value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            return self._answer(400)
        value = self.rfile.read(int(length))
        if len(value) < int(length):  # cut off: the rank is gone
            return None
        self.server.values[self.path] = value
        return self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(200)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal is the command's."""

    def _answer(self, status: int, value: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)
