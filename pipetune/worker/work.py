"""Dispatches a worker's job by its mode."""

from __future__ import annotations

import time
from dataclasses import replace

from pipetune import workflow
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, MessageWriter, Mode, SessionSaved, Started
from pipetune.core.session import Session
from pipetune.core.version import VERSION
from pipetune.journal import Journal
from pipetune.tf.measure import machine
from pipetune.tf.measure.believed import read_believed
from pipetune.tf.script import consumers, consumption, hooks
from pipetune.worker import applying, observing, serving, together, verification
from pipetune.worker.first_step import study_of
from pipetune.worker.telling import Telling

SENTENCE = (
    "Runs the script to its first training step and measures there. Every variable is put back, models and checkpoints "
    "are not saved, and files that its training loop changes meanwhile are restored. The script ends there: nothing "
    "behind that step runs, no finally, no atexit."
)


def do(job: Job, writer: MessageWriter) -> int:
    """Runs the job and returns its exit code."""
    match job.mode:
        case Mode.ANALYZE if job.task is not None and not job.task.chief:
            return together.follow(job, writer)
        case Mode.ANALYZE:
            return analyze(job, writer)
        case Mode.VERIFY:
            return verification.verify(job, writer)
        case Mode.RUN:
            return applying.run(job, writer)
        case Mode.MACHINE | Mode.DOCTOR:
            found = replace(machine.read_machine(job.settings.device), believed=read_believed())
            session = Session(VERSION, command={"mode": job.mode.value}, machine=found)
            writer.send(SessionSaved(session))
            return 0
        case Mode.SERVE:
            return serving.serve(job, writer)
        case Mode.BENCH:
            raise PipetuneError("Figures are measured by `python -m pipetune.bench`, not by a worker.")


def analyze(job: Job, writer: MessageWriter) -> int:
    """Runs the script to its first training step and analyzes the pipeline that it trains on."""
    found = machine.read_machine(job.settings.device)  # a missing device has to fail before anything runs
    if job.attempt == 1:
        writer.send(Started(SENTENCE))
    started = time.monotonic()
    journal = Journal(
        Session(VERSION, command=dict(job.command), machine=found), job.settings, Telling(writer)
    )

    def work(use: consumption.Consumption, consumer: consumers.Consumer, seen: hooks.Hooks) -> int:
        journal.update(seconds={"capture": round(time.monotonic() - started, 3)})
        with study_of(job, writer, journal, use, consumer, seen) as study:
            note = serving.job_note(job.settings, use.handed.facts() if use.handed else None, cores=study.cores)
            if note:
                journal.update(notes=(*journal.session.notes, note))
            workflow.analyze(study)
        return 0

    def conclude(code: int, not_run: str) -> int:
        notes = (*journal.session.notes, *filter(None, [not_run]))
        if code and not journal.session.complete:
            status = {observing.NO_DATASET: "no-dataset"}.get(code, "failed")
            journal.update(status=status, complete=True, notes=notes)
        elif not_run:
            journal.update(notes=notes)
        return code

    return observing.Observation(job, writer, work, conclude).run()
