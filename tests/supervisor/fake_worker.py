"""A worker that measures nothing: speaks the messages and ends in the way its first argument names.

Started like the real one, with the path of a job file. Arguments after the first are the scenario's own.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.measurement import Interval, Outcome, Trial
from pipetune.core.messages import (
    Finished,
    Job,
    Log,
    MessageWriter,
    Mode,
    Progress,
    ScriptExited,
    ScriptFailed,
    SessionSaved,
    Started,
    Suppressed,
    TrialEnded,
    TrialStarted,
    VerdictKnown,
    Verified,
    read_job,
)
from pipetune.core.session import Rejection, Session
from pipetune.core.sessionfile import load
from tests.core.sessions import PARALLEL, WINDOW, session

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: of the user\n'
EARLY = replace(session(), trials=(), patch=None, training=None, complete=False, status="running")
DONE = replace(session(), patch=replace(session().patch, verified=None))  # type: ignore[type-var]


class Scenarios:
    """One method per way a worker can end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.send = MessageWriter(job.message_descriptor).send

    def start(self) -> None:
        print("the script prints this", flush=True)
        self.send(Started("pipetune runs the script; nothing is saved."))
        self.send(Progress("capture", "running the script"))

    def verdict(self) -> None:
        self.send(VerdictKnown("Training waits for input.", "input-bound"))
        self.send(SessionSaved(EARLY))

    def normal(self) -> None:
        self.start()
        if self.job.mode is Mode.VERIFY:
            self.send(Verified(True, "same operators, equal elements", 321.0, Interval(1.2, 1.1, 1.3, 1)))
        else:
            self.verdict()
            self.send(TrialStarted("prefetch@n3"))
            self.send(TrialEnded("prefetch@n3"))
            self.send(SessionSaved(DONE))
        self.send(Finished(0))

    def script_failed(self) -> None:
        self.start()
        self.send(ScriptFailed(TRACEBACK))
        self.send(Finished(3))

    def no_dataset(self) -> None:
        self.start()
        self.send(
            SessionSaved(Session("0.1.0", {}, status="no-dataset", status_detail="Nothing was consumed."))
        )
        self.send(Finished(4))

    def script_exits_with_an_error(self) -> None:
        self.start()
        self.send(ScriptExited(7, "sys.exit(7)"))
        self.send(Finished(3))

    def script_wants_arguments(self) -> None:
        self.start()
        print(*(f"line {number}" for number in range(20)), sep="\n")
        print("usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data")
        self.send(ScriptExited(2, ""))
        self.send(Finished(3))

    def vanish(self) -> None:
        self.start()
        os._exit(int(self.job.arguments[1]))

    def killed_in_a_trial(self) -> None:
        self.start()
        self.verdict()
        if "prefetch@n3" not in self.job.skip:
            ended = Trial(replace(session().trials[0].plan, rewrites=(PARALLEL,)), Outcome.REJECTED, "slower")
            self.send(SessionSaved(replace(EARLY, trials=(ended,))))
            self.send(Suppressed("saves_suppressed", 2))
            self.send(TrialStarted("prefetch@n3", replace(session().trials[0].plan, rewrites=(WINDOW,))))
            os.kill(os.getpid(), signal.SIGKILL)
        assert load(self.job.session).studied and self.job.attempt == 2
        self.send(Log(f"skipped: it {self.job.skip_reason}"))
        self.send(Suppressed("saves_suppressed", 1))
        self.send(SessionSaved(replace(DONE, patch=None)))
        self.send(Finished(0))

    def killed_in_every_trial(self) -> None:
        self.start()
        self.verdict()
        self.send(TrialStarted(f"try {self.job.attempt}"))
        os.kill(os.getpid(), signal.SIGKILL)

    def restart_never_gets_going(self) -> None:
        if self.job.attempt == 1:
            self.killed_in_every_trial()
        os._exit(9)

    def hang(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.start()
        self.verdict()
        time.sleep(600)

    def hang_in_the_script(self) -> None:
        self.start()
        time.sleep(600)

    def cannot_start(self) -> None:
        sys.exit(1)

    def slow_phases(self) -> None:
        """Silent in every phase for longer than the limit of the phases that have none of their own."""
        if self.job.mode is Mode.VERIFY:
            time.sleep(0.5)
            return self.normal()
        self.send(Started("now the script runs"))
        time.sleep(0.5)
        self.verdict()
        self.send(Progress("trials", "trying"))
        time.sleep(0.5)
        self.send(SessionSaved(DONE))
        self.send(Finished(0))

    def hang_without_a_word(self) -> None:
        time.sleep(600)

    def never_ends_after_the_last_word(self) -> None:
        self.normal()
        atexit.register(time.sleep, 600)

    def garbage(self) -> None:
        os.write(self.job.message_descriptor, b'\xff\xfe\n{"type": "Explode"}\n[]\n{"type": "Finished"}\n')
        self.normal()
        os.write(self.job.message_descriptor, b'{"type": "Finished", "exit_')

    def many_children(self) -> None:
        """Children in the group, one that left it, and one that holds the pipe: all must end."""
        self.start()
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        same = subprocess.Popen(sleep)
        left = subprocess.Popen(sleep, start_new_session=True)
        holds = subprocess.Popen(sleep, pass_fds=(self.job.message_descriptor,))
        if (forked := os.fork()) == 0:
            self.send(Finished(5))  # not a child's to say
            time.sleep(600)
        Path(self.job.arguments[1]).write_text(f"{same.pid} {left.pid} {holds.pid} {forked} {os.getpid()}")
        self.verdict()
        if self.job.arguments[2] == "hang":
            time.sleep(600)
        os._exit(0)

    def waits_for_ctrl_c(self) -> None:
        """Saves what it has when it is asked to stop, as the real worker does."""
        self.start()
        self.verdict()
        try:  # the answer may come before the next line is reached
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(600)
        except KeyboardInterrupt:
            self.send(SessionSaved(DONE))
            self.send(Finished(130))

    def ignores_ctrl_c(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.start()
        self.verdict()
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    def ignores_two_ctrl_c(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.start()
        self.verdict()
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.3)
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    def interrupted_while_verifying(self) -> None:
        if self.job.mode is Mode.VERIFY:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(600)
        self.normal()

    def patch_fails(self) -> None:
        if self.job.mode is not Mode.VERIFY:
            return self.normal()
        assert load(self.job.session).patch == DONE.patch
        self.start()
        self.send(Verified(False, "elements differ at 17", failed_rewrites=(WINDOW.key,)))
        self.send(Finished(0))

    def patch_dies(self) -> None:
        if self.job.mode is not Mode.VERIFY:
            return self.normal()
        os._exit(1)

    def patch_raises(self) -> None:
        if self.job.mode is not Mode.VERIFY:
            return self.normal()
        self.send(ScriptFailed(TRACEBACK))
        self.send(Finished(3))

    def part_of_the_patch_fails(self) -> None:
        if self.job.mode is not Mode.VERIFY:
            return self.normal()
        found = load(self.job.session)
        assert found.patch is not None
        if found.patch.not_covered:
            self.send(Verified(True, "what is left is proven"))
        else:
            smaller = replace(found.patch, diff="smaller", not_covered=(Rejection("cache", "n1", "differs"),))
            self.send(SessionSaved(replace(found, patch=smaller)))
            self.send(Verified(False, "cache differs", failed_rewrites=("cache@n1",)))
        self.send(Finished(0))

    def part_fails_for_ever(self) -> None:
        if self.job.mode is not Mode.VERIFY:
            return self.normal()
        found = load(self.job.session)
        assert found.patch is not None
        self.send(SessionSaved(replace(found, patch=replace(found.patch, diff=found.patch.diff + "+"))))
        self.send(Finished(0))

    def says_where_it_runs(self) -> None:
        self.send(Log(f"{os.getcwd()} {os.getsid(0) == os.getpid()} {sys.stdin.read()!r}"))
        self.send(Finished(0))


if __name__ == "__main__":
    task = read_job(Path(sys.argv[1]))
    getattr(Scenarios(task), task.arguments[0])()
