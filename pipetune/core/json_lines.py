"""JSON values over a connected stream socket, one per line; every wait has a time limit."""

from __future__ import annotations

import json
import socket
import time

from pipetune.core.errors import PipetuneError

_CHUNK = 1 << 16
_SEND_SECONDS = 60.0  # data fits into the socket buffer at once, unless the peer has stopped reading
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6))


class LinkBroken(Exception):
    """The other end is closed or was silent for too long; the message says which."""


class JsonLines:
    """One end of a connection; for use by one thread at a time."""

    def __init__(self, connected: socket.socket) -> None:
        """Takes ownership of the socket, and keeps processes that are started later from inheriting it."""
        self._socket, self._rest = connected, b""
        connected.set_inheritable(False)
        self.ended = False  # the other end is closed, and all its data was read

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: object) -> None:
        """Sends one value.

        Raises:
            LinkBroken: the other end is closed.
        """
        try:
            self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendall(json.dumps(data, allow_nan=False).encode() + b"\n")
        except OSError as error:
            raise LinkBroken("is gone") from error

    def receive(self, limit_seconds: float, *, most_bytes: int | None = None) -> object:
        """Waits for the next value and returns it.

        Args:
            most_bytes: maximum length of a line from an untrusted sender; None: no limit.

        Raises:
            LinkBroken: the other end is closed, sends nothing within the limit, or sends too much.
            PipetuneError: the line is not JSON.
        """
        end = time.monotonic() + limit_seconds
        while b"\n" not in self._rest:
            if most_bytes is not None and len(self._rest) > most_bytes:
                raise LinkBroken("says too much")
            left = end - time.monotonic()
            if left <= 0:
                raise LinkBroken(f"did not answer for {limit_seconds:.0f} s")
            try:
                self._socket.settimeout(left)
                self._take()
            except TimeoutError:
                continue
            except OSError as error:
                raise LinkBroken("is gone") from error
            if self.ended:
                raise LinkBroken("is gone")
        return self._next()

    def arrived(self) -> list[object]:
        """Returns the values that have arrived, without waiting; afterwards `ended` says whether more can follow.

        Raises:
            PipetuneError: a line is not JSON.
        """
        try:
            self._socket.setblocking(False)
            while not self.ended:
                self._take()
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        found = []
        while b"\n" in self._rest:
            found.append(self._next())
        return found

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        data = self._socket.recv(_CHUNK)
        self.ended = not data
        self._rest += data

    def _next(self) -> object:
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise PipetuneError(f"A worker said something that is no message: {line[:80]!r}.", exit_code=1) from error


def keep_alive(connected: socket.socket) -> socket.socket:
    """Enables keep-alive on a TCP socket and returns it: an unreachable peer is then noticed within a minute."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # not every system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected
