"""A Gloo rendezvous server for the ranks of Horovod, a new one for every start of the ranks.

The server of `horovodrun` is meant for a single start. A rank that exits before the rendezvous is complete leaves its
address there; the next rank with that number is then looked up at the stale address, and all ranks hang. The protocol
is that of Horovod 0.28.1 (`horovod/runner/http/http_server.py`): PUT and GET of a value at /SCOPE/KEY, 404 while there
is none, and DELETE by a rank that has found all others. DELETE does nothing here: the values end with the server.
"""

from __future__ import annotations

import contextlib
import http.server
import socketserver
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pipetune.core.cluster import RENDEZVOUS_HOST, RENDEZVOUS_PORT
from pipetune.core.errors import PipetuneError

_REQUEST_SECONDS = 30.0  # without data, by judgement: less cuts off a slow rank, more keeps threads of dead ones
_MOST_BYTES = 1 << 20  # of a value; ranks send a few hundred
_SHUTDOWN_POLL_SECONDS = 0.05  # by judgement: `shutdown` takes up to this long; shorter costs idle CPU time


@contextlib.contextmanager
def rendezvous_server(host: str) -> Iterator[str]:
    """Runs a server on an address of this machine and yields "host:port"; on exit, the server and its values are gone.

    Raises:
        PipetuneError: the server cannot listen on `host`.
    """
    try:
        server = _Server((host, 0), _RequestHandler)
    except OSError as error:
        raise PipetuneError(
            f"Horovod ranks cannot be started: cannot listen on {host}: {error.strerror or error}.",
            hint=(
                "This is the address of this machine in the network that horovodrun uses; see its option "
                "--network-interfaces."
            ),
            exit_code=1,
        ) from error
    with server:
        serving = threading.Thread(target=server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), daemon=True)
        serving.start()
        try:
            yield f"{host}:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def rendezvous_environment(address: str) -> Mapping[str, str]:
    """Returns the environment variables that name the server at "host:port" to a rank; none if `address` is ""."""
    host, _, port = address.rpartition(":")
    return {RENDEZVOUS_HOST: host, RENDEZVOUS_PORT: port} if host else {}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128  # ranks poll for the peers that are not there yet

    def __init__(self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        self.values: dict[str, bytes] = {}
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a rank killed during a request: its supervisor reports that."""


class _RequestHandler(http.server.BaseHTTPRequestHandler):
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
        if len(value) < int(length):  # cut off: the rank has exited
            return None
        self.server.values[self.path] = value
        return self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(200)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: the terminal belongs to the command."""

    def _answer(self, status: int, value: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)
