"""Fake workers of a cluster, which measure nothing: the first argument names the scenario."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core import messages
from pipetune.core.lockstep import NoMoreRequests, RequestLink, StepReply
from pipetune.core.messages import read_job
from tests.supervisor.fake_worker import DONE, TRACEBACK, TRIED, Scenarios

LONG = 600
CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
KIND, INDEX = (CONFIG["task"]["type"], CONFIG["task"]["index"]) if CONFIG else ("", 0)


SENT_BY_THE_SECOND: dict[str, list[messages.Message]] = {
    "one_raises": [messages.ScriptFailed(TRACEBACK), messages.WorkerFinished(3)],
    "one_fails": [messages.AnalysisFailed("No GPU.", "Ask for another device.", 5), messages.WorkerFinished(5)],
    "one_says_out_of_step": [messages.LockstepLost("its input raised")],
    "one_raises_in_a_step": [messages.LockstepLost("its input raised", TRACEBACK)],
}


class Clusters(Scenarios):
    """One method per scenario; each runs in all workers, or in all processes of a job with parameter servers."""

    @property
    def index(self) -> int:
        return self.job.lockstep_role.index

    @property
    def trying(self) -> Path:
        """A file that the chief makes as it tries a plan, in a folder that all tasks share."""
        return Path(self.job.directory, "trying")

    def tries(self) -> None:
        self.start()
        self.verdict()
        self.send(messages.TrialStarted(TRIED))
        self.trying.touch()

    def tell(self) -> None:
        """Writes the identity and configuration of this process to the results folder."""
        known = {
            "pid": os.getpid(),
            "mode": self.job.mode.value,
            "config": CONFIG,
            "rendezvous": os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", ""),
        }
        task = str(self.index) if self.job.lockstep_role is not None else f"{KIND}-{INDEX}"
        with (Path(self.job.out) / f"told-{task}").open("a") as stream:
            stream.write(json.dumps({**known, "group": os.getpgid(0), "attempt": self.job.attempt}) + "\n")
        print(f"{KIND} {INDEX} prints this", flush=True)

    def until_told(self) -> None:
        link = RequestLink(*self.job.lockstep_role.link_descriptors)
        link.send_reply(StepReply(operators=("range",)))
        assert isinstance(link.receive_request(30), NoMoreRequests)

    def in_step(self) -> None:
        self.tell()
        if self.index:
            self.until_told()
            self.send(messages.WorkerFinished(0))
            os._exit(7 if self.job.mode is messages.Mode.ANALYZE else 0)  # as a runtime may during its shutdown
        links = [RequestLink(descriptor) for descriptor in self.job.lockstep_role.link_descriptors]
        for link in links:
            assert link.receive_reply(30) == StepReply(operators=("range",))
            link.send_request(NoMoreRequests())
        time.sleep(0.2)  # the peers exit before this worker sends its last message
        self.normal()

    def ranks(self) -> None:
        """Horovod ranks: each stores its address for the others; one of an earlier start would be found."""
        address = "http://{HOROVOD_GLOO_RENDEZVOUS_ADDR}:{HOROVOD_GLOO_RENDEZVOUS_PORT}/global/".format(**os.environ)
        first = ask(address + str(self.index))
        assert first == "", f"what a rank of an earlier start has left: {first}"
        ask(address + str(self.index), put=str(os.getpid()))
        await_that(lambda: bool(ask(address + str(1 - self.index))))
        os.kill(int(ask(address + str(1 - self.index))), 0)  # it is running
        if self.job.mode is messages.Mode.VERIFY:
            return self.in_step()
        return self.killed_in_a_trial_of_the_chief()

    def hears_of_no_other(self) -> None:
        assert self.job.lockstep_role is None
        self.normal()

    def last_is_killed(self) -> None:
        self.tell()
        self.start()
        if self.index == self.job.lockstep_role.workers - 1:  # type: ignore[union-attr]
            print("out of memory", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def second_sends(self) -> None:
        """All workers start; the second one sends the messages of this scenario, and ends if the last one says so."""
        self.tell()
        self.start()
        if self.index == 1:
            for message in SENT_BY_THE_SECOND[self.job.arguments[0]]:
                self.send(message)
                if isinstance(message, messages.WorkerFinished):
                    return
        time.sleep(LONG)

    one_raises = one_fails = one_says_out_of_step = one_raises_in_a_step = second_sends

    def killed_in_a_trial_of_the_chief(self) -> None:
        self.tell()
        if self.job.attempt > 1:
            return self.in_step()
        if self.index:
            await_that(self.trying.exists)
            os.kill(os.getpid(), signal.SIGKILL)
        self.tries()
        time.sleep(LONG)

    def trial_without_end(self) -> None:
        self.tell()
        if self.index == 0:
            self.tries()
        time.sleep(LONG)

    def out_of_step(self) -> None:
        self.tell()
        if self.index == 0:
            self.start()
            self.verdict()
            self.send(messages.LockstepLost("worker 1 took 4 steps, but worker 0 took 5"))
        time.sleep(LONG)

    def heard_of_before_it_is_gone(self) -> None:
        self.tell()
        self.start()
        said = Path(self.job.directory, "said")
        if self.index == 0:
            self.send(messages.LockstepLost("a step raised", TRACEBACK))
            said.touch()
        else:
            await_that(said.exists)
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def chief_dies(self) -> None:
        self.tell()
        if self.index == 0:
            self.start()
            os._exit(9)
        time.sleep(LONG)

    def hangs(self) -> None:
        self.tell()
        if self.index == 0:
            self.start()
        time.sleep(LONG)

    def others_leave_a_child(self) -> None:
        """The child has its own session, like the processes of a launcher."""
        if self.index:
            child = os.fork()
            if child == 0:
                os.setsid()
                self.tell()
                time.sleep(LONG)
            time.sleep(LONG)
        await_that(lambda: told_lines(Path(self.job.out) / "told-1") > 0)
        self.send(messages.LogLine("the child is there"))
        self.send(messages.WorkerFinished(0))

    # -- jobs with parameter servers

    def serves(self) -> None:
        self.tell()
        if self.job.mode is messages.Mode.SERVE:
            time.sleep(LONG)
        own, *others = (Path(self.job.out) / f"told-{name}" for name in ("chief-0", "worker-0", "worker-1", "ps-0"))
        await_that(lambda: all(told_lines(path) >= told_lines(own) for path in others))
        self.normal()

    def server_is_killed(self) -> None:
        self.tell()
        self.start()
        if KIND == "ps":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def worker_is_killed_in_a_trial(self) -> None:
        self.tell()
        if KIND == "chief" and self.job.attempt == 2:
            assert self.job.skipped_plans == (TRIED.key,)
            self.finish(replace(DONE, patch=None))
            return
        if KIND == "chief":
            self.tries()
        elif (KIND, INDEX, self.job.attempt) == ("worker", 1, 1):
            await_that(self.trying.exists)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def worker_does_not_serve(self) -> None:
        self.tell()
        if (KIND, INDEX) == ("worker", 1):
            self.send(messages.AnalysisFailed("The script came to its end.", "It has to serve.", 3))
            self.send(messages.WorkerFinished(3))
            return
        time.sleep(LONG)


def await_that(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.01)


def told_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def ask(address: str, *, put: str = "") -> str:
    """The value that a server stores at this address; "" if there is none yet."""
    data = put.encode() or None
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, method="PUT" if put else "GET")) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return ""


if __name__ == "__main__":
    task = read_job(Path(sys.argv[1]))
    getattr(Clusters(task), task.arguments[0])()
