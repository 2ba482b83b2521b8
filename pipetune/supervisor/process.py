"""A worker process: started detached, sends messages over its own pipe, ended with everything it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from pipetune.core import files
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, write_job
from pipetune.core.restoration import UNDO_VARIABLE

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_TRACKER_SECONDS = 2.0  # they need a few milliseconds

_is_subreaper = False


@contextlib.contextmanager
def orphans_adopted() -> Iterator[None]:
    """Makes orphaned descendants children of this process; on exit, kills those started meanwhile.

    When nested, for workers in parallel, only the outermost does this, for all of them.
    """
    global _is_subreaper
    if _is_subreaper:
        yield
        return
    before = set(_descendants())
    subreaper = _set_subreaper(True)
    _is_subreaper = True
    try:
        yield
    finally:
        _is_subreaper = False
        try:
            orphans = [process for process in _descendants() if process not in before]
            for process in orphans:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(orphans, timeout=5)  # reaps them too
        finally:
            if subreaper:
                _set_subreaper(False)


def kill_group(leader: int) -> None:
    """Kills every process of the group that `leader` leads or led.

    Resource trackers of Python's `multiprocessing` and of joblib are killed last: they exit by themselves once no other
    process is left, and remove the shared memory that the killed processes leaked.
    """
    members = [process for process in psutil.process_iter() if _is_in_group(process, leader)]
    helpers = [process for process in members if _is_resource_tracker(process)]
    for process in members:
        if process not in helpers:
            with contextlib.suppress(psutil.Error):
                process.kill()
    if helpers:
        psutil.wait_procs(helpers, timeout=_TRACKER_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _is_in_group(process: psutil.Process, leader: int) -> bool:
    try:
        return os.getpgid(process.pid) == leader
    except OSError:
        return False


def _is_resource_tracker(process: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _descendants() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def _set_subreaper(on: bool) -> bool:
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) == 0)


# -P: the user's folder is added to `sys.path` when the script runs, not before.
WORKER_COMMAND = (sys.executable, "-P", "-m", "pipetune.worker")


@dataclass(frozen=True)
class WorkerProcess:
    """A running worker."""

    process: subprocess.Popen[bytes]
    message_descriptor: int  # descriptor: the read end of its pipe
    exit_descriptor: int  # descriptor: becomes readable when the process has exited
    attached: bool  # it shares our terminal and our process group

    def ask_to_stop(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kills the process; unless it is attached, with every process of its group."""
        if self.attached:
            self.process.kill()
        else:
            kill_group(self.process.pid)


@contextlib.contextmanager
def worker(
    job: Job,
    *,
    log: Path | int | None,
    command: Sequence[str] = WORKER_COMMAND,
    attached: bool = False,
    alone: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[WorkerProcess]:
    """Starts a worker on `job` and yields it; on exit, it and everything it started have ended.

    Args:
        job: the task; `message_descriptor` is filled in here, and the descriptors of its sockets are inherited.
        log: file or descriptor for what the user's script prints; None: the worker prints to our output.
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
            folder = Path(stack.enter_context(files.temporary_folder("job")))
            path = folder / "job.json"
            write_job(replace(job, message_descriptor=write_end), path)
            variables = {**({} if attached else _SAME_ORDER), **os.environ, **(environment or {})}
            if job.undo:
                variables[UNDO_VARIABLE] = job.undo
            if job.shares_gpu:
                variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
            if alone and not attached:  # an unsupervised script manages its own children
                stack.enter_context(orphans_adopted())
            orders = (job.request_descriptor,) if job.request_descriptor >= 0 else ()
            handed_down = (write_end, *orders, *(job.lockstep_role.link_descriptors if job.lockstep_role else ()))
            with log.open("ab") if isinstance(log, Path) else contextlib.nullcontext(log) as output:
                try:
                    process = subprocess.Popen(
                        [*command, str(path)],
                        stdin=None if attached else subprocess.DEVNULL,
                        stdout=output,
                        stderr=None if output is None else subprocess.STDOUT,
                        pass_fds=handed_down,
                        cwd=job.directory or None,
                        env=variables,
                        start_new_session=not attached,
                    )
                except OSError as error:
                    raise PipetuneError(f"The worker process cannot be started: {error}.", exit_code=1) from error
        finally:
            os.close(write_end)  # now only the worker holds it: end of file once it has exited
        ended_read, ended_write = os.pipe()
        stack.callback(os.close, ended_read)
        running = WorkerProcess(process, read_end, ended_read, attached)
        stack.callback(process.wait)
        stack.callback(running.kill)
        threading.Thread(target=_wait, args=(process, ended_write), daemon=True).start()
        yield running


_SAME_ORDER = {"PYTHONHASHSEED": "0"}
"""The order of a set of strings is then the same in every worker, and so are classes or files that a script puts into
one. A user's own value stays."""


def _wait(process: subprocess.Popen[bytes], ended: int) -> None:
    process.wait()
    os.close(ended)  # end of file wakes any waiter
