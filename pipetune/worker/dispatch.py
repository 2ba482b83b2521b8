"""Dispatches a worker's job by its mode."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pipetune import workflow
from pipetune.capture import consumption
from pipetune.capture.consumption import UNCERTAIN_ELEMENTS
from pipetune.capture.observed_script import ObservedScript
from pipetune.core import messages
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, LogLine, MessageWriter, Mode, SessionSaved
from pipetune.core.profile import Diagnosis, Finding
from pipetune.core.session import Session
from pipetune.core.settings import Command
from pipetune.core.time_plan import TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.measure import machine
from pipetune.timing.iterators import shortened_pauses
from pipetune.worker import lockstep, observation, script, verification
from pipetune.worker.study import open_study

START_MESSAGE = (
    "Runs the script to its first training step on a dataset, measures there, and ends it: nothing after that step "
    "runs, including finally blocks and atexit handlers. Nothing is saved; variables and files that change meanwhile "
    "are restored."
)


def run_job(job: Job, writer: MessageWriter) -> int:
    """Runs the job and returns its exit code.

    Raises:
        PipetuneError: the job is not for a worker, or cannot be done.
    """
    match job.mode:
        case Mode.ANALYZE if job.lockstep_role is not None and not job.lockstep_role.is_chief:
            return lockstep.run_as_agent(job, writer)
        case Mode.ANALYZE:
            return analyze(job, writer)
        case Mode.VERIFY:
            return verification.verify(job, writer)
        case Mode.RUN:
            return script.run_with_plan(job, writer)
        case Mode.DOCTOR:
            found = replace(machine.read_machine(job.settings.device), believed=machine.detect_resources())
            writer.send(SessionSaved(Session(VERSION, Command(), machine=found)))
            return 0
        case Mode.SERVE | Mode.BENCH:  # run before anything is loaded that measures, and by a suite of benchmarks
            raise PipetuneError(f"This worker does not do jobs of the mode {job.mode.value!r}.")


_NO_SIGN = (
    "The loop that was analyzed changes no weights that pipetune can see (variables of TensorFlow, optimizers of "
    "PyTorch, arrays of JAX). It was taken for training because nothing else trained before its "
    f"{UNCERTAIN_ELEMENTS}th element; --dataset NAME analyzes another dataset."
)


def _other_streams(use: consumption.Consumption) -> Finding:
    return Finding(
        "other-streams",
        "The loop also reads other data that the same call makes. It was left unchanged while the loop was measured, "
        "and the wait for it counts as part of the steps.",
        "Where a patch changes it, too, more may be gained than was measured.",
        use.file,
        use.line,
    )


def analyze(job: Job, writer: MessageWriter) -> int:
    """Runs the script to its first training step, analyzes its training pipeline and returns the exit code."""
    found = machine.read_machine(job.settings.device)  # a missing device has to fail before anything runs
    if job.attempt == 1:
        writer.send(messages.WorkerStarted(START_MESSAGE))
    started = time.monotonic()
    session = Session(VERSION, command=job.command, machine=found)
    journal = Journal(session, TimePlan.of(job.settings), PipeListener(writer))

    def work(use: consumption.Consumption, consumer: consumption.Consumer, seen: ObservedScript) -> int:
        journal.time_plan.begin()
        seconds = time.monotonic() - started
        certain = consumer.kind != "loop" or bool(use.training_sign or job.settings.dataset or job.lockstep_role)
        slow_start = consumption.describe_start(seconds, seen.uses, certain=certain)
        if job.attempt == 1:
            writer.send(LogLine(f"{consumption.describe_training(use, seen.uses)} {slow_start}".rstrip()))
        if slow_start:
            journal.add_notes(slow_start)
        if not certain:
            journal.add_notes(_NO_SIGN)
        journal.update(seconds={"capture": round(seconds, 3)})
        with shortened_pauses(), open_study(job, writer, journal, use, consumer, seen) as study:
            handover = use.distributed_input.handover if use.distributed_input else None
            note = lockstep.parameter_server_note(job.settings, handover, cores=study.cores)
            if note:
                journal.add_notes(note)
            workflow.analyze(study)
        if seen.reads_streams_alike:
            journal.add_findings([_other_streams(use)])
        return 0

    def conclude(code: int, not_run: str) -> int:
        ended: dict[str, Any] = {}
        if code and not journal.session.complete:
            ended = {"status": "no-dataset" if code == observation.NO_DATASET else "failed", "complete": True}
        journal.add_notes(*filter(None, [not_run]), **ended)
        return code

    return observation.ObservedRun(job, writer, work, conclude).run()


_SAVE_EVERY_SECONDS = 1.0  # by judgement: longer loses more if the process dies, shorter costs time during trials


class PipeListener(Listener):
    """Sends messages over the worker's pipe."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer
        self._saved = 0.0

    def progress(self, phase: str, doing: str, *, best: str, left: float | None) -> None:
        self._writer.send(messages.Progress(phase, doing, best=best, left_seconds=left))

    def verdict(self, diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> None:
        # The findings are in the summary; sent here too, each would be on the screen twice.
        self._writer.send(messages.VerdictKnown(diagnosis.sentence, diagnosis.verdict.value))

    def bottleneck(self, sentence: str) -> None:
        self._writer.send(LogLine(sentence))

    def saved(self, session: Session) -> None:
        """Sends the session, but not more often than every `_SAVE_EVERY_SECONDS` while trials run."""
        now = time.monotonic()
        if session.complete or now - self._saved > _SAVE_EVERY_SECONDS or len(session.trials) < 2:
            self._saved = now
            self._writer.send(SessionSaved(session))

    def trial_started(self, plan: Plan) -> None:
        self._writer.send(messages.TrialStarted(plan))

    def trial_ended(self, key: str) -> None:
        self._writer.send(messages.TrialEnded(key))
