"""The agent of a cluster task other than the first: starts its worker on command and forwards its messages."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core.cluster import Place, Task
from pipetune.core.codec import encode
from pipetune.core.json_lines import JsonLines, LinkBroken
from pipetune.core.messages import Job, Message
from pipetune.supervisor import rendezvous
from pipetune.supervisor.elsewhere import Begin, Dismiss, End, Gone, Heard, Idle, LogEnds, Said, told
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.meeting import Invitation
from pipetune.supervisor.others import Other
from pipetune.supervisor.process import worker
from pipetune.supervisor.user_files import UserFiles

GONE = Dismiss(1, "The command of the first task has ended, or its machine is gone.")
INTERRUPTED = Dismiss(130, "Interrupted; the connection to the first task was closed.")


@dataclass(frozen=True)
class Follower:
    """Runs the worker of this task for the coordinator, which is the command of the first task.

    Args:
        own: a job with the script, the arguments and the folders of this task.
        place: the position of this task in the cluster.
        invitation: where the worker's own connection goes.
        lines: the connection to the coordinator.
        interrupts: Ctrl-C and other signals, as something to wait for.
        log: file for what the script prints.
        private: a folder that nobody else reads.
        command: starts a worker.
        files: restores what the script changes on this machine.
    """

    own: Job
    place: Place
    invitation: Invitation
    lines: JsonLines
    interrupts: Interrupts
    log: Path
    private: Path
    command: Sequence[str]
    files: UserFiles

    def follow(self) -> Dismiss:
        """Follow the coordinator's messages until it ends or the user interrupts. Returns how it ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.lines, selectors.EVENT_READ)
            selector.register(self.interrupts.descriptor, selectors.EVENT_READ)
            waiting: list[object] = []
            while True:
                waiting += self.lines.arrived()  # part of it may have been buffered with the handshake
                while waiting:
                    match told(waiting.pop(0)):
                        case Begin() as begin:
                            ended = self._work(begin, selector, waiting)
                            if ended is not None:
                                return ended
                        case Dismiss() as dismissed:
                            return dismissed
                if self.lines.ended:
                    return GONE
                selector.select()
                if self.interrupts.count:
                    return INTERRUPTED

    def _work(self, begin: Begin, selector: selectors.BaseSelector, waiting: list[object]) -> Dismiss | None:
        """Run one worker until the coordinator ends it.

        Returns:
            None; or the reason to end the agent too: the coordinator has exited, or the user interrupts.
        """
        try:
            link = self.invitation.connected(self.place.number, job=begin.number)
        except (OSError, LinkBroken):
            return GONE
        said: list[Message] = []
        with contextlib.ExitStack() as stack:
            stack.callback(self._tell, Idle())
            undo = stack.enter_context(self.files.kept())
            with contextlib.closing(link):
                job = replace(self._job(begin, link.fileno()), undo=undo)
                of_ranks = rendezvous.variables(begin.rendezvous)
                running = stack.enter_context(worker(job, log=self.log, command=self.command, environment=of_ranks))
            other = Other(self.place.number, running, log=self.log, on_message=said.append)
            for descriptor in other.descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
                stack.callback(_forget, selector, descriptor)
            lost = gone = False
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self.interrupts.count:
                    return INTERRUPTED
                if other.hear(ready, selector) and not lost:
                    lost = True
                    self._tell(LogEnds(other.conversation.last_lines))
                while said:
                    self._tell(Said(said.pop(0)))
                if other.conversation.status is not None and not gone:
                    gone = True
                    self._tell(Gone(other.conversation.status))
                if self.lines.fileno() in ready:
                    waiting += self.lines.arrived()
                    if waiting and isinstance(told(waiting[0]), End):
                        del waiting[0]
                        return None
                    if self.lines.ended:
                        return GONE

    def _job(self, begin: Begin, link: int) -> Job:
        """The coordinator's job with the script, arguments and folders of this task."""
        own, session = self.own, self.private / "session.json"
        if begin.session:
            session.write_text(begin.session)
        return replace(
            begin.job,
            settings=replace(begin.job.settings, out=own.settings.out),
            script=own.script,
            module=own.module,
            arguments=own.arguments,
            directory=own.directory,
            out=own.out,
            session=str(session) if begin.session else "",
            task=Task(self.place.number, self.place.workers, (link,), elsewhere=True),
        )

    def _tell(self, heard: Heard) -> None:
        with contextlib.suppress(LinkBroken):  # the next read reports the closed connection
            self.lines.send(encode(heard, Heard))


def _forget(selector: selectors.BaseSelector, descriptor: int) -> None:
    with contextlib.suppress(KeyError):
        selector.unregister(descriptor)
