"""Fake workers of a cluster, which measure nothing: the first argument names the scenario."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.lockstep import NoMoreRequests, RequestLink, StepReply
from pipetune.core.messages import (
    AnalysisFailed,
    LockstepLost,
    LogLine,
    Message,
    Mode,
    ScriptFailed,
    SessionSaved,
    TrialStarted,
    WorkerFinished,
    read_job,
)
from tests.core.sessions import WINDOW, session
from tests.supervisor.fake_worker import DONE, TRACEBACK, Scenarios

LONG = 600
CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
KIND, INDEX = (CONFIG["task"]["type"], CONFIG["task"]["index"]) if CONFIG else ("", 0)


class Clusters(Scenarios):
    """One method per scenario; each runs in all workers, or in all processes of a job with parameter servers."""

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

    def second_sends(self, *messages: Message) -> None:
        """All workers start; the second one sends these messages, and ends if the last one says so."""
        self.tell()
        self.start()
        if self.index == 1:
            for message in messages:
                self.send(message)
            if isinstance(messages[-1], WorkerFinished):
                return
        time.sleep(LONG)

    def one_raises(self) -> None:
        self.second_sends(ScriptFailed(TRACEBACK), WorkerFinished(3))

    def one_raises_and_stays(self) -> None:
        self.second_sends(ScriptFailed(TRACEBACK))

    def one_fails(self) -> None:
        self.second_sends(AnalysisFailed("There is no GPU here.", "Ask for another device.", 5), WorkerFinished(5))

    def one_says_out_of_step(self) -> None:
        self.second_sends(LockstepLost("its input raised"))

    def one_raises_in_a_step(self) -> None:
        self.second_sends(LockstepLost("its input raised", TRACEBACK))

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

    # -- jobs with parameter servers

    def serves(self) -> None:
        self.tell()
        if self.job.mode is Mode.SERVE:
            time.sleep(LONG)
        own, *others = (Path(self.job.out) / f"told-{name}" for name in ("chief-0", "worker-0", "worker-1", "ps-0"))
        starts = own.read_text().count("\n")
        while any(not path.exists() or path.read_text().count("\n") < starts for path in others):
            time.sleep(0.01)
        self.normal()

    def server_is_killed(self) -> None:
        self.tell()
        self.start()
        if KIND == "ps":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def worker_is_killed_in_a_trial(self) -> None:
        self.tell()
        trial = Path(self.job.out) / "trial"
        if KIND == "chief" and self.job.attempt == 2:
            assert self.job.skipped_plans == ("prefetch@n3",)
            self.send(SessionSaved(replace(DONE, patch=None)))
            self.send(WorkerFinished(0))
            return
        if KIND == "chief":
            self.start()
            self.verdict()
            self.send(TrialStarted("prefetch@n3", replace(session().trials[0].plan, rewrites=(WINDOW,))))
            trial.touch()
        elif (KIND, INDEX, self.job.attempt) == ("worker", 1, 1):
            while not trial.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)

    def worker_does_not_serve(self) -> None:
        self.tell()
        if (KIND, INDEX) == ("worker", 1):
            self.send(AnalysisFailed("The script came to its end.", "It has to serve.", 3))
            self.send(WorkerFinished(3))
            return
        time.sleep(LONG)


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
