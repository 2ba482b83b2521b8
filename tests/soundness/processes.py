"""The supervisor's side of workers: requests, answers within a time limit, and regular restarts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""The checkout that contains the suite."""

_CASES = 120  # of one worker: TensorFlow keeps some 3 MB of each
_MOST_BYTES = 2_500_000_000  # resident, after which a worker is renewed too
_START_SECONDS = 30.0  # of processor time, until TensorFlow is imported
_WAITING = 10.0  # the elapsed time of a case may be so many times its limit of processor time


class Hung(Exception):
    """No answer arrived in time, or the worker died; it was ended."""


class Worker:
    """One process at a time that runs cases on one checkout of pipetune."""

    def __init__(self, checkout: Path = ROOT) -> None:
        self._checkout = checkout
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None  # a killed process does not remove it
        self._buffer = b""
        self._answered = 0

    def ask(self, request: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            Hung: none arrived within these seconds of processor time, or within `_WAITING` times as many seconds; the
                next request starts a new process.
        """
        if self._process is None or self._answered >= _CASES or self._large():
            self.end()
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._line(seconds + (_START_SECONDS if self._answered == 0 else 0))
        except (OSError, ValueError, Hung) as error:
            self.end()
            raise Hung(f"no answer within {seconds:.0f} s" if isinstance(error, Hung) else "the worker died") from error
        self._answered += 1
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _start(self) -> None:
        path = os.pathsep.join(dict.fromkeys((str(self._checkout), str(ROOT))))
        self._temporary = tempfile.TemporaryDirectory(prefix="soundness-", ignore_cleanup_errors=True)
        fixed = {"TMPDIR": self._temporary.name, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
        python = self._checkout / ".venv" / "bin" / "python"
        command = [str(python) if python.exists() else sys.executable, "-P", "-m", "tests.soundness.worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | fixed, cwd=self._checkout,
        )  # fmt: skip
        self._buffer, self._answered = b"", 0

    def _line(self, seconds: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        handle = self._process.stdout.fileno()
        end, most = time.monotonic() + _WAITING * seconds, self._cpu_seconds() + seconds
        while b"\n" not in self._buffer:
            if time.monotonic() > end or self._cpu_seconds() > most:
                raise Hung
            ready, _, _ = select.select([handle], [], [], 1.0)
            if not ready:
                continue
            chunk = os.read(handle, 1 << 20)
            if not chunk:
                raise Hung
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _cpu_seconds(self) -> float:
        process = self._process
        if process is None:
            raise Hung  # ended meanwhile
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def _large(self) -> bool:
        assert self._process is not None
        with contextlib.suppress(OSError, ValueError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") > _MOST_BYTES
        return True
