"""A fake worker, which measures nothing: sends messages and ends as its first argument specifies.

Started like the real worker, with the path of a job file. Further arguments are those of the scenario.
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
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core import lockstep, messages
from pipetune.core.edits import Plan
from pipetune.core.lockstep import NoMoreRequests, RequestLink, StepReply
from pipetune.core.measurement import Window
from pipetune.core.messages import Mode, read_job
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import Session
from pipetune.core.session_file import load
from pipetune.core.settings import Command
from tests.core.sessions import ALONE, MACHINE, PARALLEL, WINDOW, session, validated

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: of the user\n'
EARLY = replace(session(), trials=(), patch=None, training=None, complete=False, status="running")
PART = replace(session(), patch=replace(session().patch, verified=None, process_mib=1000.0))  # type: ignore[type-var]
DONE = replace(PART, patch=replace(PART.patch, covered=(WINDOW.key, PARALLEL.key)))  # type: ignore[type-var]
TRIED = Plan("tuned", (WINDOW,))
SMALL = replace(MACHINE, memory_available_bytes=2 << 30)


def informed(before: Session, order: lockstep.Inform) -> Session:
    """A session with what was measured for information, which tells the plan it is about."""
    about = order.plan.name if order.plan is not None else "no plan"
    return replace(before, notes=(*before.notes, f"Informed of {about} after {order.spent_seconds > 0}"))


class Scenarios:
    """One method per scenario."""

    def __init__(self, job: messages.Job) -> None:
        self.job = job
        self.send = messages.MessageWriter(job.message_descriptor).send

    def start(self) -> None:
        print("the script prints this", flush=True)
        self.send(messages.WorkerStarted("pipetune runs the script; nothing is saved."))
        self.send(messages.Progress("capture", "running the script"))

    def verdict(self) -> None:
        self.send(messages.VerdictKnown("Training waits for input.", "input-bound"))
        self.send(messages.SessionSaved(EARLY))

    def normal(self, found: Session = DONE, **held: Any) -> None:
        """Sends what was found; in a verification, is held at the first training step."""
        self.analyzed(found) if self.job.mode is not Mode.VERIFY else self.held(**held)

    def analyzed(self, session: Session) -> None:
        self.start()
        self.verdict()
        self.send(messages.TrialStarted(TRIED))
        self.send(messages.TrialEnded(TRIED.key))
        self.finish(session)

    def finish(self, found: Session, exit_code: int = 0) -> None:
        self.send(messages.SessionSaved(found))
        self.send(messages.WorkerFinished(exit_code))

    # -- a script that waits at its first training step

    def begun(self) -> RequestLink:
        """Waits for the request to run the script."""
        link = RequestLink(self.job.request_descriptor)
        order = link.receive_request(60)
        if isinstance(order, NoMoreRequests):
            sys.exit(0)
        assert isinstance(order, lockstep.RunToFirstStep)
        self.start()
        self.send(messages.Progress("verification", "running the script"))
        return link

    def held(
        self,
        *,
        patched: float = 0.01,
        why: str = "",
        failed: tuple[str, ...] = (),
        windows: int = 1000,
        passes: tuple[float, float] = (2.0, 0.5),
        validation_why: str = "",
    ) -> None:
        """Reports windows of steps with the given durations, without waiting; after so many `windows`, an `interlude`.

        `failed` rewrites are why the patched script is wrong; `passes` over the validation data take so many seconds.
        """
        link, verified = self.begun(), load(self.job.session)
        validates = verified.validation is not None and self.job.patched
        if validation_why.startswith("as written: "):
            validates = validates or not self.job.patched
            validation_why = "" if self.job.patched else validation_why
        validation = {"validation_why": validation_why} if validation_why and validates else {}
        if validates and not validation:
            validation = {"validation_checked": "11 elements equal"}
        if verified.patch_to_verify is not None and verified.patch_to_verify.diff == ALONE:
            assert verified.plan is None and self.job.patched
            validation = {"validation_checked": "7 elements equal"}
            why = "it fails alone" if "fails alone" in self.job.arguments else ""
        checked = "same operators, 64 elements equal" if self.job.check_elements else ""
        why = why if self.job.patched else ""
        link.send_reply(StepReply(why, checked=checked, peak_rss_mib=321.0, failed=failed, **validation))
        self.send(messages.Progress("windows", "waiting for the next measurement"))
        taken = validated = 0
        while not isinstance(order := link.receive_request(60), NoMoreRequests):
            if isinstance(order, lockstep.WritePatch):
                assert not self.job.patched and DONE.patch is not None
                own = load(self.job.session).validation
                patch = replace(DONE.patch, diff="smaller", covered=order.rewrites) if order.rewrites else None
                if patch is None and own is not None and own.patch and "inseparable" not in self.job.arguments:
                    patch = replace(own.patch, diff=ALONE)
                link.send_reply(StepReply(patch=patch))
                continue
            if isinstance(order, lockstep.Inform):
                assert not self.job.patched
                if self.job.arguments[-1] == "ctrl-c while it informs":
                    os.kill(os.getppid(), signal.SIGINT)
                    time.sleep(600)
                link.send_reply(StepReply(session=informed(load(self.job.session), order)))
                continue
            if isinstance(order, lockstep.MeasurePass):
                assert order.elements == 11
                validated += 1
                seconds = passes[self.job.patched] * (1 + 0.01 * (validated * (7 if self.job.patched else 3) % 5))
                link.send_reply(StepReply(window=Window(11, 11, seconds, seconds, 0.0)))
                continue
            taken += 1
            if taken > windows:
                self.interlude()
            steps = order.steps if isinstance(order, lockstep.MeasureTraining) else 10
            step, jump = (patched, 7) if self.job.patched else (0.02, 3)
            each = step * (1 + 0.01 * (taken * jump % 5))
            window = Window(steps, 32 * steps, steps * each, steps * each, 0.1, others_seconds=0.2)
            link.send_reply(StepReply(window=None if isinstance(order, lockstep.PreparePipeline) else window))
        self.send(messages.WorkerFinished(0))

    def interlude(self) -> None:
        """Runs between two windows; the second argument names the scripts concerned, the third the event."""
        who, what = self.job.arguments[1:3]
        if who != "both" and (who == "patched") != self.job.patched:
            return
        match what:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exits":
                os._exit(0)
            case "ctrl-c":
                os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    def patch_is_slower(self) -> None:
        self.normal(patched=0.037)

    def partial(self) -> None:
        """The patch covers only a part of the plan; the whole plan is faster, the part may be slower."""
        self.normal(PART, patched=0.037 if self.job.arguments[1] == "slower" else 0.01)

    def disturbed(self) -> None:
        self.normal(windows=int((*self.job.arguments, "3")[3]))

    def part_of_the_patch_fails(self) -> None:
        patch = load(self.job.session).patch if self.job.patched else None
        whole = patch is not None and len(patch.covered) == 2
        self.normal(why="map differs" if whole else "", failed=(PARALLEL.key,) if whole else ())

    def validated(self) -> None:
        """The patch has a part for validation, too: with "alone" no other; then what happens to it."""
        what = self.job.arguments[1:]
        if self.job.mode is not Mode.VERIFY:
            found = validated(DONE, trained="alone" not in what)
            return self.analyzed(replace(found, machine=SMALL) if "small" in what else found)
        reasons = {"different": "skip is missing", "changing": "as written: it is another one"}
        self.held(
            passes=(2.0, 2.2) if "slower" in what else (2.0, 0.5),
            validation_why=reasons.get(what[-1] if what else "", ""),
            patched=0.037 if "harmful" in what else 0.01,
        )

    def noted(self) -> None:
        """Notes each start that reaches the script; with a lock, only one process at a time can hold it."""
        if self.job.mode is not Mode.VERIFY:
            if self.job.arguments[2] == "gpu":
                patch = replace(DONE.patch, gpu_mib=1000.0)  # type: ignore[type-var]
                return self.analyzed(replace(DONE, machine=replace(MACHINE, device="gpu"), patch=patch))
            return self.analyzed(replace(DONE, machine=SMALL if self.job.arguments[2] == "small" else MACHINE))
        notes, lock = Path(self.job.arguments[1]), Path(f"{self.job.arguments[1]}.lock")
        link, self.begun = self.begun(), lambda: link  # type: ignore[method-assign]
        with notes.open("a") as stream:
            grows = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"
            stream.write(("patched" if self.job.patched else "original") + (" grows" if grows else "") + "\n")
        if self.job.arguments[2] == "lock" and lock.exists():
            return self.fail()
        lock.touch()
        self.held()
        lock.unlink()

    def fail(self) -> None:
        self.send(messages.ScriptFailed(TRACEBACK))
        self.send(messages.WorkerFinished(3))

    def script_failed(self) -> None:
        self.start()
        self.fail()

    def no_dataset(self) -> None:
        self.start()
        self.finish(Session("0.1.0", Command(), status="no-dataset", status_detail="Nothing was consumed."), 4)

    def script_exits_with_an_error(self) -> None:
        self.start()
        self.send(messages.ScriptExited(7, "sys.exit(7)"))
        self.send(messages.WorkerFinished(3))

    def script_wants_arguments(self) -> None:
        self.start()
        print(*(f"line {number}" for number in range(20)), sep="\n")
        print("usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data")
        self.send(messages.ScriptExited(2, ""))
        self.send(messages.WorkerFinished(3))

    def vanish(self) -> None:
        self.start()
        os._exit(int(self.job.arguments[1]))

    def killed_in_a_trial(self) -> None:
        self.start()
        self.verdict()
        if TRIED.key not in self.job.skipped_plans:
            ended = Trial(replace(session().trials[0].plan, rewrites=(PARALLEL,)), Outcome.REJECTED, "slower")
            self.send(messages.SessionSaved(replace(EARLY, trials=(ended,))))
            self.send(messages.ActionSuppressed("saves_suppressed", 2))
            self.send(messages.TrialStarted(TRIED))
            os.kill(os.getpid(), signal.SIGKILL)
        assert load(self.job.session).profiled_datasets and self.job.attempt == 2
        self.send(messages.LogLine(f"skipped: it {self.job.skip_reason}"))
        self.send(messages.ActionSuppressed("saves_suppressed", 1))
        self.finish(replace(DONE, patch=None))

    def killed_in_every_trial(self) -> None:
        self.start()
        self.verdict()
        self.send(messages.TrialStarted(TRIED))
        os.kill(os.getpid(), signal.SIGKILL)

    def restart_never_gets_going(self) -> None:
        if self.job.attempt == 1:
            self.killed_in_every_trial()
        os._exit(9)

    def hang_in_the_script(self) -> None:
        self.start()
        time.sleep(600)

    def cannot_start(self) -> None:
        sys.exit(1)

    def slow_phases(self) -> None:
        """Sends nothing in each phase for longer than the limit of the other phases."""
        if self.job.mode is Mode.VERIFY:
            link, self.begun = self.begun(), lambda: link  # type: ignore[method-assign]
            time.sleep(0.3)
            return self.held()
        self.send(messages.WorkerStarted("now the script runs"))
        time.sleep(0.3)
        self.verdict()
        self.send(messages.Progress("trials", "trying"))
        time.sleep(0.3)
        self.finish(DONE)

    def hang_without_a_word(self) -> None:
        time.sleep(600)

    def never_ends_after_the_last_word(self) -> None:
        self.normal()
        atexit.register(time.sleep, 600)

    def garbage(self) -> None:
        os.write(self.job.message_descriptor, b'\xff\xfe\n{"type": "Explode"}\n[]\n{"type": "WorkerFinished"}\n')
        self.analyzed(replace(DONE, patch=None))
        os.write(self.job.message_descriptor, b'{"type": "WorkerFinished", "exit_')

    def many_children(self) -> None:
        """Children in the process group, outside of it, and with the pipe open: all must be ended."""
        self.start()
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        same = subprocess.Popen(sleep)
        left = subprocess.Popen(sleep, start_new_session=True)
        holds = subprocess.Popen(sleep, pass_fds=(self.job.message_descriptor,))
        if (forked := os.fork()) == 0:
            self.send(messages.WorkerFinished(5))  # a child must not send this
            time.sleep(600)
        Path(self.job.arguments[1]).write_text(f"{same.pid} {left.pid} {holds.pid} {forked} {os.getpid()}")
        self.verdict()
        time.sleep(600 if self.job.arguments[2] == "hang" else 0)
        os._exit(0)

    def waits_for_ctrl_c(self) -> None:
        """Saves its results when it is interrupted, like the real worker."""
        self.start()
        self.verdict()
        try:  # the signal may arrive before the next line is reached
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(600)
        except KeyboardInterrupt:
            self.finish(DONE, 130)

    def ignores_ctrl_c(self) -> None:
        """As often as the second argument says."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.start()
        self.verdict()
        for _ in range(int(self.job.arguments[1])):
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(0.3)
        time.sleep(600)

    def patch_fails(self) -> None:
        self.normal(why="elements differ at 17")

    def patch_raises(self) -> None:
        if self.job.mode is Mode.VERIFY and self.job.patched:
            self.begun()
            return self.fail()
        self.normal()

    def says_where_it_runs(self) -> None:
        self.send(messages.LogLine(f"{os.getcwd()} {os.getsid(0) == os.getpid()} {sys.stdin.read()!r}"))
        self.send(messages.WorkerFinished(0))

    # -- workers of `pipetune doctor` and of `pipetune run`, whose scenario is in the environment

    def machine(self) -> None:
        print("TensorFlow chatters")
        assert self.job.mode is Mode.DOCTOR and self.job.settings.device == "cpu"
        self.finish(Session("0.1.0", Command(), machine=MACHINE))

    def absent(self) -> None:
        self.send(messages.AnalysisFailed("There is no GPU.", "Leave --device out.", 5))
        self.send(messages.WorkerFinished(5))
        sys.exit(5)

    def dies(self) -> None:
        os._exit(3)

    def runs(self) -> None:
        assert self.job.mode is Mode.RUN
        together = os.getpgrp() == os.getpgid(os.getppid())
        print("in:", input(), "plan:", Path(self.job.plan).name, "arguments:", self.job.arguments, "group:", together)
        self.send(messages.LogLine("The plan is applied to train."))
        self.send(messages.WorkerFinished(0))

    def raises(self) -> None:
        self.fail()
        sys.exit(3)

    def exits_with_a_message(self) -> None:
        self.send(messages.ScriptExited(1, "no data"))
        self.send(messages.WorkerFinished(3))

    def handles_ctrl_c(self) -> None:
        def finish(*_: object) -> None:
            print("saved after Ctrl-C", flush=True)
            self.send(messages.WorkerFinished(0))
            os._exit(0)

        signal.signal(signal.SIGINT, finish)
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)


if __name__ == "__main__":
    task = read_job(Path(sys.argv[1]))
    getattr(Scenarios(task), os.environ.get("FAKE") or task.arguments[0])()
