"""Fake workers of a cluster, which measure nothing: the first argument names the scenario."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.lockstep import NoMoreRequests, RequestLink, StepReply
from pipetune.core.messages import (
    AnalysisFailed,
    LockstepLost,
    LogLine,
    Mode,
    ScriptFailed,
    TrialStarted,
    WorkerFinished,
    read_job,
)
from tests.supervisor.fake_worker import TRACEBACK, Scenarios

LONG = 600


class Clusters(Scenarios):
    """One method per scenario; each runs in all workers."""

    @property
    def index(self) -> int:
        assert self.job.lockstep_role is not None
        return self.job.lockstep_role.index

    @property
    def shared(self) -> Path:
        """A folder that all tasks share; each has a results folder of its own."""
        return Path(self.job.directory)

    def tell(self) -> None:
        """Writes the identity and configuration of this process to the results folder."""
        assert self.job.lockstep_role is not None
        known = {
            "pid": os.getpid(),
            "mode": self.job.mode.value,
            "config": json.loads(os.environ.get("TF_CONFIG", "{}")),
            "rendezvous": os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", ""),
        }
        with (Path(self.job.out) / f"told-{self.index}").open("a") as stream:
            stream.write(json.dumps({**known, "group": os.getpgid(0), "attempt": self.job.attempt}) + "\n")
        print(f"worker {self.index} prints this", flush=True)

    def until_told(self) -> None:
        assert self.job.lockstep_role is not None
        link = RequestLink(*self.job.lockstep_role.link_descriptors)
        link.send_reply(StepReply(operators=("range",)))
        assert isinstance(link.receive_request(30), NoMoreRequests)

    def in_step(self) -> None:
        self.tell()
        assert self.job.lockstep_role is not None
        if self.index:
            self.until_told()
            self.send(WorkerFinished(0))
            os._exit(7 if self.job.mode is Mode.ANALYZE else 0)  # as a runtime may during its shutdown
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
        while not (other := ask(address + str(1 - self.index))):
            time.sleep(0.01)
        os.kill(int(other), 0)  # it is running
        if self.job.mode is Mode.VERIFY:
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

    def one_raises(self) -> None:
        self.tell()
        if self.index == 1:
            self.send(ScriptFailed(TRACEBACK))
            self.send(WorkerFinished(3))
            return
        self.start()
        time.sleep(LONG)

    def one_raises_and_stays(self) -> None:
        self.tell()
        self.start()
        if self.index == 1:
            self.send(ScriptFailed(TRACEBACK))
        time.sleep(LONG)

    def one_fails(self) -> None:
        self.tell()
        if self.index == 1:
            self.send(AnalysisFailed("There is no GPU here.", "Ask for another device.", 5))
            self.send(WorkerFinished(5))
            return
        self.start()
        time.sleep(LONG)

    def killed_in_a_trial_of_the_chief(self) -> None:
        self.tell()
        if self.job.attempt > 1:
            return self.in_step()
        if self.index:
            while not (self.shared / "trying").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        self.start()
        self.verdict()
        self.send(TrialStarted("prefetch@n3"))
        (self.shared / "trying").touch()
        time.sleep(LONG)

    def trial_without_end(self) -> None:
        self.tell()
        if self.index == 0:
            self.start()
            self.verdict()
            self.send(TrialStarted("prefetch@n3"))
            (self.shared / "trying").touch()
        time.sleep(LONG)

    def out_of_step(self) -> None:
        self.tell()
        if self.index == 0:
            self.start()
            self.verdict()
            self.send(LockstepLost("worker 1 took 4 steps, but worker 0 took 5"))
        time.sleep(LONG)

    def heard_of_before_it_is_gone(self) -> None:
        self.tell()
        self.start()
        if self.index == 0:
            self.send(LockstepLost("a step raised", TRACEBACK))
            (self.shared / "said").touch()
        else:
            while not (self.shared / "said").exists():
                time.sleep(0.01)
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def one_says_out_of_step(self) -> None:
        self.tell()
        self.start()
        if self.index == 1:
            self.send(LockstepLost("its input raised"))
        time.sleep(LONG)

    def one_raises_in_a_step(self) -> None:
        self.tell()
        self.start()
        if self.index == 1:
            self.send(LockstepLost("its input raised", TRACEBACK))
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
        path = Path(self.job.out) / "told-1"
        while not path.exists() or not path.read_text().endswith("\n"):
            time.sleep(0.01)
        self.send(LogLine("the child is there"))
        self.send(WorkerFinished(0))


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
