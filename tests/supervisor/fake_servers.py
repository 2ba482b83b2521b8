"""Fake processes of a job with parameter servers, which measure nothing: the first argument names the scenario."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.messages import AnalysisFailed, Mode, SessionSaved, TrialStarted, WorkerFinished, read_job
from tests.core.sessions import WINDOW, session
from tests.supervisor.fake_worker import DONE, Scenarios

LONG = 600
TOLD = json.loads(os.environ["TF_CONFIG"])
KIND, INDEX = TOLD["task"]["type"], TOLD["task"]["index"]


class Jobs(Scenarios):
    """One method per scenario; each runs in all processes."""

    def tell(self) -> None:
        """Writes the identity and configuration of this process to the results folder."""
        known = {"pid": os.getpid(), "mode": self.job.mode.value, "config": TOLD, "group": os.getpgid(0)}
        with (Path(self.job.out) / f"told-{KIND}-{INDEX}").open("a") as stream:
            stream.write(json.dumps(known) + "\n")
        print(f"{KIND} {INDEX} prints this", flush=True)

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


if __name__ == "__main__":
    task = read_job(Path(sys.argv[1]))
    getattr(Jobs(task), task.arguments[0])()
