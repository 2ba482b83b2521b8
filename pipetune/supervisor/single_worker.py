"""Workers that analyze nothing: the script of `pipetune run`, on the user's terminal, and the machine for `doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, LogLine, Message, Mode
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.supervisor.monitoring import Interrupts, Timeouts, WorkerMonitor
from pipetune.supervisor.process import WORKER_COMMAND, worker
from pipetune.supervisor.target import Target
from pipetune.supervisor.worker_state import WorkerState

_STDERR = 2  # its file descriptor


def run_with_plan(
    target: Target, plan: Path, *, prints_to_stderr: bool = False, worker_command: Sequence[str] = WORKER_COMMAND
) -> int:
    """Runs `target` on this terminal with `plan` applied and returns the exit status.

    Args:
        target: what to run.
        plan: a plan.json.
        prints_to_stderr: what the script prints to standard output goes to standard error.
        worker_command: starts the worker; the path of the job file is appended.

    Raises:
        PipetuneError: the plan does not match the pipeline, or the worker failed without a traceback of the script.
    """
    job = Job(
        mode=Mode.RUN,
        message_descriptor=-1,
        script=target.script,
        module=target.module,
        arguments=target.arguments,
        directory=target.directory,
        plan=str(plan),
    )

    def on_message(message: Message) -> None:
        if isinstance(message, LogLine):
            print(f"pipetune: {message.text}", file=sys.stderr)

    output = _STDERR if prints_to_stderr else None
    with Interrupts() as interrupts, worker(job, log=output, command=worker_command, attached=True) as running:
        limits = Timeouts.unlimited()
        watched = WorkerMonitor(running, limits=limits, interrupts=interrupts, on_message=on_message)
        conversation = watched.wait_and_end()
    if conversation.script_failed:
        sys.stderr.write(f"{conversation.script_failed.traceback.rstrip()}\n")
    if conversation.script_exited and conversation.script_exited.detail:  # `sys.exit("why")`, which Python prints
        sys.stderr.write(f"{conversation.script_exited.detail}\n")
    _raise_failure(conversation)
    return 130 if interrupts.count else conversation.exit_code


def read_machine(
    device: str = "auto", *, limits: Timeouts | None = None, worker_command: Sequence[str] = WORKER_COMMAND
) -> Session:
    """Returns a session that holds only the machine, as TensorFlow sees it.

    Raises:
        PipetuneError: TensorFlow cannot be imported, the device is absent, or the worker was lost.
    """
    job = Job(Mode.DOCTOR, message_descriptor=-1, settings=Settings(device=device), directory=os.getcwd())
    with Interrupts() as interrupts, worker(job, log=Path(os.devnull), command=worker_command) as running:
        limits = limits or Timeouts()
        watched = WorkerMonitor(running, limits=limits, interrupts=interrupts, on_message=lambda _message: None)
        conversation = watched.wait_and_end()
    _raise_failure(conversation)
    if conversation.session is None:
        raise PipetuneError(
            f"The machine could not be read: the worker {conversation.exit_reason or 'sent no message'}.",
            hint="Try `python -c 'import tensorflow'`.",
            exit_code=130 if interrupts.count else 1,
        )
    return conversation.session


def _raise_failure(conversation: WorkerState) -> None:
    if failed := conversation.failure:
        raise PipetuneError(failed.message, hint=failed.hint, exit_code=failed.exit_code)
