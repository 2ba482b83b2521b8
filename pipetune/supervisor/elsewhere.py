"""The tasks of a cluster that exists, from its first one: it tells the others' commands what to start, and hears them.

Each of them starts the worker of its own task, with its own script and its own `TF_CONFIG`, and sends on what that
worker says. Between the workers goes a connection of their own, as between those of one machine.
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

_COME_SECONDS = 60.0  # for the connections between the workers, once their commands were told
_END_SECONDS = 60.0  # for workers to be gone: their addresses are wanted again


@dataclass(frozen=True)
class Begin:
    """Start a worker; paths in the job are not used, nor its script."""

    number: int
    job: Job
    session: str = ""  # what stands in the file of `Job.session`
    rendezvous: str = ""  # where ranks of Horovod find each other in this start, "host:port"


@dataclass(frozen=True)
class End:
    """End the worker."""


@dataclass(frozen=True)
class Dismiss:
    """Nothing more is wanted; the first command ends with this exit status, and, where that is not 0, this reason."""

    exit_code: int
    why: str = ""


Told = Begin | End | Dismiss


@dataclass(frozen=True)
class LogEnds:
    """The worker is lost; so its log ends. Comes before what else is heard of that."""

    text: str


@dataclass(frozen=True)
class Said:
    """The worker has said something."""

    message: Message


@dataclass(frozen=True)
class Gone:
    """The worker's process has ended."""

    status: int


@dataclass(frozen=True)
class Idle:
    """It and all it started are gone."""


Heard = LogEnds | Said | Gone | Idle


class FarOther:
    """A worker of another machine, heard through the command there."""

    def __init__(self, worker: int, lines: JsonLines) -> None:
        self.conversation = Conversation(worker=worker)
        self._lines = lines

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait for."""
        return (self._lines.fileno(),)

    def hear(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Takes note of what is said of it; whether it is lost, or can be heard no more."""
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
    """The other tasks, each at the far end of a connection to its command."""

    def __init__(self, door: Door, commands: Mapping[int, JsonLines], *, rendezvous_host: str = "") -> None:
        """`rendezvous_host`: where ranks of Horovod look for each other, an address of this machine; "" for others."""
        self._door, self._commands, self._begun = door, commands, 0
        self._rendezvous_host = rendezvous_host

    def __len__(self) -> int:
        """Workers in all, the first among them."""
        return len(self._commands) + 1

    @contextlib.contextmanager
    def started(self, job: Job, *, log: Path, command: Sequence[str]) -> Iterator[Cluster]:
        """A worker on every task, at work on `job`; on leaving, all of them have ended.

        Raises:
            PipetuneError: the one here cannot be started, or nothing can listen where ranks would find each other.
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
                    link.close()  # the worker holds it now: whose process ends is heard by the other
            yield Cluster(chief, tuple(others))

    @property
    def whole(self) -> bool:
        """Whether every task can be told to start another worker."""
        return not any(lines.ended for lines in self._commands.values())

    def dismiss(self, exit_code: int, why: str) -> None:
        """The others need not wait any more."""
        self._tell(Dismiss(exit_code, why))

    def _links(self, stack: contextlib.ExitStack) -> dict[int, JsonLines]:
        """A connection to the worker of each task; one that has ended where none came."""
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
            with contextlib.suppress(LinkBroken):  # who is gone is found to be lost when it is heard
                lines.send(encode(told, Told))

    def _end(self) -> None:
        self._tell(End())
        end = time.monotonic() + _END_SECONDS
        for lines in self._commands.values():
            with contextlib.suppress(LinkBroken, PipetuneError):
                while not isinstance(heard(lines.receive(max(0.0, end - time.monotonic()))), Idle):
                    pass


def heard(data: object) -> Heard:
    """What the command of another task says.

    Raises:
        PipetuneError: it is nothing that is said.
    """
    return cast(Heard, decode_union(cast(Any, Heard), data))


def told(data: object) -> Told:
    """What the first command wants.

    Raises:
        PipetuneError: it is nothing that can be wanted.
    """
    return cast(Told, decode_union(cast(Any, Told), data))
