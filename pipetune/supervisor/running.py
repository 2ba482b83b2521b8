"""Workers that measure nothing: run a script with a plan, or read the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, Log, Message, Mode
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.supervisor.conversation import Conversation
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.limits import Limits
from pipetune.supervisor.process import WORKER_COMMAND, worker
from pipetune.supervisor.target import Target
from pipetune.supervisor.watch import watch


def run_with_plan(target: Target, plan: Path, *, worker_command: Sequence[str] = WORKER_COMMAND) -> int:
    """Run `target` on our terminal with `plan` applied. Returns the exit status.

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
        if isinstance(message, Log):
            print(f"pipetune: {message.text}", file=sys.stderr)

    with Interrupts() as interrupts, worker(job, log=None, command=worker_command, attached=True) as running:
        conversation = watch(running, limits=Limits.none(), interrupts=interrupts, on_message=on_message)
    if conversation.script_failed:
        sys.stderr.write(f"{conversation.script_failed.traceback.rstrip()}\n")
    _raise_failure(conversation)
    return 130 if interrupts.count else conversation.exit_code


def read_machine(
    device: str = "auto", *, limits: Limits | None = None, worker_command: Sequence[str] = WORKER_COMMAND
) -> Session:
    """A session that holds only the machine, as TensorFlow sees it.

    Raises:
        PipetuneError: TensorFlow cannot be imported, the device is absent, or the worker was lost.
    """
    job = Job(Mode.DOCTOR, message_descriptor=-1, settings=Settings(device=device), directory=os.getcwd())
    with Interrupts() as interrupts, worker(job, log=Path(os.devnull), command=worker_command) as running:
        conversation = watch(
            running, limits=limits or Limits(), interrupts=interrupts, on_message=lambda _message: None
        )
    _raise_failure(conversation)
    if conversation.session is None:
        raise PipetuneError(
            f"The machine could not be read: the worker {conversation.why or 'said nothing'}.",
            hint="Try `python -c 'import tensorflow'`.",
            exit_code=130 if interrupts.count else 1,
        )
    return conversation.session


def _raise_failure(conversation: Conversation) -> None:
    if conversation.failed:
        failed = conversation.failed
        raise PipetuneError(failed.message, hint=failed.hint, exit_code=failed.exit_code)
