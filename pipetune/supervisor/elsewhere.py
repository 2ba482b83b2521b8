"""Drives the tasks of an existing cluster from the first one, the coordinator: starts and ends workers remotely.

The command of each other task (an agent, `supervisor.following`) starts the worker of its own task, with its own script
and `TF_CONFIG`, and forwards that worker's messages. The workers have connections of their own, as on one machine.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pipetune.core.cluster import Task
from pipetune.core.codec import decode_union, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.json_lines import JsonLines, LinkBroken
from pipetune.core.messages import Job, Message
from pipetune.supervisor import rendezvous
from pipetune.supervisor.cluster import Cluster
from pipetune.supervisor.conversation import Conversation
from pipetune.supervisor.meeting import Door
from pipetune.supervisor.others import why_lost
from pipetune.supervisor.process import worker

_COME_SECONDS = 60.0  # for the workers' own connections, once the agents were told to start
_END_SECONDS = 60.0  # for workers to exit: the next start reuses their addresses


@dataclass(frozen=True)
class Begin:
    """Start a worker. The agent replaces the script and all paths of the job by its own."""

    number: int  # of this start, from 1
    job: Job
    session: str = ""  # content of the file `Job.session`
    rendezvous: str = ""  # the server for Horovod's ranks in this start, "host:port"; "" if there are none


@dataclass(frozen=True)
class End:
    """End the worker."""


@dataclass(frozen=True)
class Dismiss:
    """The analysis is over: the exit status of the coordinator and, if that is not 0, the reason."""

    exit_code: int
    why: str = ""


Told = Begin | End | Dismiss


@dataclass(frozen=True)
class LogEnds:
    """The end of the log of a lost worker. Sent before any other message about the loss."""

    text: str


@dataclass(frozen=True)
class Said:
    """A message of the worker, forwarded."""

    message: Message


@dataclass(frozen=True)
class Gone:
    """The worker's process has exited."""

    status: int  # as `subprocess.Popen.returncode`


@dataclass(frozen=True)
class Idle:
    """The worker and everything it started have ended."""


Heard = LogEnds | Said | Gone | Idle


class FarOther:
    """A worker on another machine; its agent there forwards its messages."""

    def __init__(self, worker: int, lines: JsonLines) -> None:
        self.conversation = Conversation(worker=worker)
        self._lines = lines

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait for."""
        return (self._lines.fileno(),)

    def hear(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Process what its agent sent. Returns whether the worker is lost or its agent disconnected."""
        said = self.conversation
        if self._lines.fileno() in ready:
            for data in self._lines.arrived():
                match heard(data):
                    case LogEnds(text=text):
                        said.last_lines = text
                    case Said(message=message):
                        said.hear(message)
                    case Gone(status=status):
                        said.status = status
            if self._lines.ended:
                selector.unregister(self._lines.fileno())
                said.status = said.status if said.status is not None else 1
                said.why = "can be heard no more: the command there has ended, or its machine is gone"
                return True
        said.why = said.why or why_lost(said)
        return bool(said.why)


class Tasks:
    """The other tasks of the cluster, each reached over a connection to its agent."""

    def __init__(self, door: Door, commands: Mapping[int, JsonLines], *, rendezvous_host: str = "") -> None:
        """Keeps the connections.

        Args:
            door: accepts the connections of the workers.
            commands: the connection to each agent, by the number of its task.
            rendezvous_host: this machine's address for the rendezvous of Horovod's ranks; "" if there are none.
        """
        self._door, self._commands, self._begun = door, commands, 0
        self._rendezvous_host = rendezvous_host

    def __len__(self) -> int:
        """The number of workers, including the coordinator's own."""
        return len(self._commands) + 1

    @contextlib.contextmanager
    def started(self, job: Job, *, log: Path, command: Sequence[str]) -> Iterator[Cluster]:
        """Start a worker on every task; on exit, all of them have ended.

        Args:
            job: what each worker does.
            log: file for what the script prints in the worker on this machine.
            command: starts the worker on this machine; the path of the job file is appended.

        Raises:
            PipetuneError: the local worker cannot be started, or the rendezvous server cannot listen.
        """
        self._begun += 1
        session = Path(job.session).read_text() if job.session else ""
        host = self._rendezvous_host
        with contextlib.ExitStack() as stack:
            where = stack.enter_context(rendezvous.opened(host)) if host else ""
            stack.callback(self._end)
            self._tell(Begin(self._begun, replace(job, session="", orders=-1), session, where))
            links = self._links(stack)
            descriptors = tuple(one.fileno() for _, one in sorted(links.items()))
            task = Task(0, len(self), descriptors, elsewhere=True)
            of_ranks = rendezvous.variables(where)
            chief = stack.enter_context(worker(replace(job, task=task), log=log, command=command, environment=of_ranks))
            others = []
            for number, link in sorted(links.items()):
                others.append(FarOther(number, link if link.ended else self._commands[number]))
                if not link.ended:
                    link.close()  # now only the worker holds it: its peer sees the link close when it exits
            yield Cluster(chief, tuple(others))

    @property
    def whole(self) -> bool:
        """Whether all agents are still connected, so that every task can start another worker."""
        return not any(lines.ended for lines in self._commands.values())

    def dismiss(self, exit_code: int, why: str) -> None:
        """Tell all agents that the analysis is over.

        Args:
            exit_code: of the coordinator.
            why: the reason, if `exit_code` is not 0.
        """
        self._tell(Dismiss(exit_code, why))

    def _links(self, stack: contextlib.ExitStack) -> dict[int, JsonLines]:
        """A connection to the worker of each task; an already closed one for each that did not connect."""
        links = self._door.admitted(job=self._begun, seconds=_COME_SECONDS if self.whole else 0.0)
        for number in set(self._commands) - set(links):
            near, far = socket.socketpair()
            far.close()
            links[number] = JsonLines(near)
            links[number].arrived()
        for link in links.values():
            stack.callback(link.close)
        return links

    def _tell(self, told: Told) -> None:
        for lines in self._commands.values():
            with contextlib.suppress(LinkBroken):  # a disconnected agent is reported as lost at the next receive
                lines.send(encode(told, Told))

    def _end(self) -> None:
        self._tell(End())
        end = time.monotonic() + _END_SECONDS
        for lines in self._commands.values():
            with contextlib.suppress(LinkBroken, PipetuneError):
                while not isinstance(heard(lines.receive(max(0.0, end - time.monotonic()))), Idle):
                    pass


def heard(data: object) -> Heard:
    """Decode a message of an agent.

    Raises:
        PipetuneError: it is not a valid message.
    """
    return cast(Heard, decode_union(cast(Any, Heard), data))


def told(data: object) -> Told:
    """Decode a message of the coordinator.

    Raises:
        PipetuneError: it is not a valid message.
    """
    return cast(Told, decode_union(cast(Any, Told), data))
