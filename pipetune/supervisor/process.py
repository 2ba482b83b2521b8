"""A worker process: detached from the terminal, sends messages over its own pipe, ended with all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from pipetune.core import scratch
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, write_job
from pipetune.core.restoration import VARIABLE
from pipetune.supervisor.offspring import adopted, kill_group

# -P: the user's folder is added to `sys.path` when the script runs, not before.
WORKER_COMMAND = (sys.executable, "-P", "-m", "pipetune.worker")


@dataclass(frozen=True)
class WorkerProcess:
    """A running worker."""

    process: subprocess.Popen[bytes]
    messages: int  # descriptor: the read end of its pipe
    ended: int  # descriptor: becomes readable when the process has exited
    attached: bool  # it shares our terminal and our process group

    def ask_to_stop(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if self.attached:
            self.process.kill()
        else:
            kill_group(self.process.pid)


@contextlib.contextmanager
def worker(
    job: Job,
    *,
    log: Path | None,
    command: Sequence[str] = WORKER_COMMAND,
    attached: bool = False,
    alone: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[WorkerProcess]:
    """Start a worker on `job`; on exit, it and everything it started have ended.

    Args:
        job: the task; `message_descriptor` is filled in here, and the descriptors of its sockets are inherited.
        log: file for what the user's script prints; None: the worker prints to our output.
        command: starts a worker; the path of the job file is appended.
        attached: keep the terminal: its input and its Ctrl-C.
        alone: no other worker runs in parallel. Of several, the caller that starts them adopts their orphans.
        environment: variables to set in addition to ours.

    Raises:
        PipetuneError: the process cannot be started.
    """
    with contextlib.ExitStack() as stack:
        read_end, write_end = os.pipe()
        stack.callback(os.close, read_end)
        os.set_blocking(read_end, False)
        try:
            folder = Path(stack.enter_context(scratch.folder("job")))
            path = folder / "job.json"
            write_job(replace(job, message_descriptor=write_end), path)
            if job.undo:
                environment = {**(environment or {}), VARIABLE: job.undo}
            if alone and not attached:  # an unsupervised script manages its own children
                stack.enter_context(adopted())
            orders = (job.orders,) if job.orders >= 0 else ()
            handed_down = (write_end, *orders, *(job.task.link if job.task else ()))
            with _output(log) as output:
                process = _start([*command, str(path)], job, output, handed_down, environment, attached=attached)
        finally:
            os.close(write_end)  # now only the worker holds it: end of file once it has exited
        ended_read, ended_write = os.pipe()
        stack.callback(os.close, ended_read)
        running = WorkerProcess(process, read_end, ended_read, attached)
        stack.callback(process.wait)
        stack.callback(running.kill)
        threading.Thread(target=_wait, args=(process, ended_write), daemon=True).start()
        yield running


def _start(
    command: Sequence[str],
    job: Job,
    output: IO[bytes] | None,
    handed_down: tuple[int, ...],
    environment: Mapping[str, str] | None,
    *,
    attached: bool,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=None if attached else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            pass_fds=handed_down,
            cwd=job.directory or None,
            env={**os.environ, **environment} if environment else None,
            start_new_session=not attached,
        )
    except OSError as error:
        raise PipetuneError(f"The worker process cannot be started: {error}.", exit_code=1) from error


@contextlib.contextmanager
def _output(log: Path | None) -> Iterator[IO[bytes] | None]:
    if log is None:
        yield None
        return
    with log.open("ab") as stream:
        yield stream


def _wait(process: subprocess.Popen[bytes], ended: int) -> None:
    process.wait()
    os.close(ended)  # end of file wakes any waiter
