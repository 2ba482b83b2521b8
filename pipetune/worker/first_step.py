"""Builds the study of the training pipeline once the script has reached its first training step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, MessageWriter
from pipetune.journal import Journal
from pipetune.stages.study import Study, Subject, others_of
from pipetune.tf.measure import machine
from pipetune.tf.measure.believed import read_believed
from pipetune.tf.pipelines import replay, resuming
from pipetune.tf.script import consumers, consumption, hooks, step_consumers
from pipetune.worker import together


@contextlib.contextmanager
def study_of(
    job: Job,
    writer: MessageWriter,
    journal: Journal,
    use: consumption.Consumption,
    consumer: consumers.Consumer,
    seen: hooks.Hooks,
) -> Iterator[Study]:
    """Context manager: the study of the training pipeline and its consumer; while open, peer workers await orders.

    Args:
        use: how the script uses the training dataset.
        consumer: what trains on it; replaced by an emulated one if the settings give a step time.
        seen: the hooks of the script, with its other datasets.

    Raises:
        PipetuneError: no operator of the dataset can be read, or the job does not train in the way it was started for.
    """
    if job.settings.step_time_seconds is not None:
        consumer = step_consumers.EmulatedConsumer(job.settings.step_time_seconds)
    source = replay.read(use.dataset, name=use.name)
    if not source.pipeline.nodes:
        raise PipetuneError("The dataset has no readable operator.", exit_code=4)
    with together.team_of(job.task, writer) as started_with:
        team = together.join_in(job.task, started_with, use)
        if team is not None:
            consumer = together.consumer_of(team, use, source, consumer)
        others = others_of(seen.seen, use)
        yield Study(
            Subject(source, consumer, use, others, (*seen.resuming, *resuming.find(source))),
            job.settings,
            replace(machine.read_machine(job.settings.device), believed=read_believed()),
            journal,
            team=team,
            elsewhere=job.task is not None and job.task.elsewhere,
            failed={key: job.skip_reason or "ended the worker" for key in job.skip},
            verifies=job.verifies,
        )
