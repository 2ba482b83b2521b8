"""The study of a job: the training pipeline, what trains on it (alone, or in lockstep with other workers), and the
session that the analysis goes on with."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace

from pipetune.capture import consumption, job_processes, loop_consumer
from pipetune.capture.coordinators import PARAMETER_SERVER_HINT
from pipetune.capture.lockstep_consumer import LocalConsumer, LockstepConsumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.core import session_file
from pipetune.core.cluster import LockstepRole
from pipetune.core.distribution import COORDINATOR
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import LockstepTeam, RequestLink
from pipetune.core.machine import Machine
from pipetune.core.messages import Job, MessageWriter
from pipetune.core.pipeline import Pipeline
from pipetune.core.plan_file import first_difference
from pipetune.core.session import Session
from pipetune.journal import Journal
from pipetune.measure import lockstep, machine
from pipetune.pipelines import live, replay, resume_points
from pipetune.stages.study import Study, Subject, other_pipelines
from pipetune.worker.script import report_out_of_step


@contextlib.contextmanager
def open_study(
    job: Job,
    writer: MessageWriter,
    journal: Journal,
    use: consumption.Consumption,
    consumer: consumption.Consumer,
    script: ObservedScript,
    *,
    measured: Session | None = None,
) -> Iterator[Study]:
    """Yields the study of the training pipeline and its consumer; while it is open, peer workers await orders.

    Args:
        use: how the script uses the training dataset.
        consumer: what trains on it; replaced by an emulated one if the settings give a step time.
        script: the script so far, with its other datasets.
        measured: the session of an earlier process, with what need not be measured again: what TensorFlow detects of
            the machine, and the examples of an element.

    Raises:
        PipetuneError: no operator of the dataset can be read, or the job does not train in the way it was started for.
    """
    if job.settings.step_time_seconds is not None:
        consumer = loop_consumer.EmulatedConsumer(job.settings.step_time_seconds)
    source = replay.read(use.dataset, name=use.name)
    if not source.pipeline.nodes:
        raise PipetuneError("No operator of the dataset can be read.", exit_code=4)
    with open_team(job.lockstep_role, writer) as team:
        if team is not None and job.lockstep_role is not None:
            require_team(job.lockstep_role, team, use)
            consumer = consumer_of(team, use, source, consumer)
        others = other_pipelines(script.uses, use)
        known = measured.machine.believed if measured is not None and measured.machine is not None else None
        here = replace(machine.read_machine(job.settings.device), believed=known or machine.detect_resources())
        dataset = measured.main_dataset if measured is not None else None
        resuming = (*script.resuming, *resume_points.find(source))
        yield Study(
            Subject(source, consumer, use, others, resuming, script.written_files),
            job.settings,
            here,
            journal,
            resumed=resumed_session(job, source.pipeline, here),
            team=team,
            existing_cluster=job.lockstep_role is not None and job.lockstep_role.existing_cluster,
            failed=dict.fromkeys(job.skipped_plans, job.skip_reason or "terminated the worker process"),
            patch_is_verified=job.verified_separately,
            examples_per_element=dataset.profile.examples_per_element if dataset and dataset.profile else None,
        )


def resumed_session(job: Job, pipeline: Pipeline, machine: Machine) -> Session | None:
    """Returns the session that this job goes on with; None if it is a new analysis.

    Args:
        job: names the session.
        pipeline: what the script has built now.
        machine: where it runs now.

    Raises:
        PipetuneError: the script builds another pipeline than then, or the machine is another.
    """
    if not job.resumed:
        return None
    session = session_file.load(job.resumed)
    before, then = session.main_dataset, session.machine
    if before is None or then is None:
        raise PipetuneError("The session holds no analysis that could go on.")
    difference = first_difference(pipeline, before.pipeline.identities(), there="the session")
    if difference:
        raise PipetuneError(
            f"The script builds another pipeline than the one of the session: {difference}.",
            hint="Analyze the script again: what was measured of the other pipeline says nothing about this one.",
        )
    for name, now, earlier in (
        ("device", machine.device, then.device),
        ("processor", machine.processor, then.processor),
        ("number of cores", machine.cores_affinity, then.cores_affinity),
    ):
        if now != earlier:
            raise PipetuneError(
                f"The session is of another machine: its {name} is {earlier}, here it is {now}.",
                hint="Analyze the script again on this machine.",
            )
    return session


@contextlib.contextmanager
def open_team(task: LockstepRole | None, writer: MessageWriter) -> Iterator[LockstepTeam | None]:
    """Yields the other workers, which are released at the end; None if the process trains alone."""
    if task is None:
        yield None
        return
    links = [RequestLink(descriptor) for descriptor in task.link_descriptors]
    team = LockstepTeam(links, on_lockstep_lost=functools.partial(report_out_of_step, writer))
    try:
        yield team
    finally:
        team.dismiss()


def require_team(task: LockstepRole, team: LockstepTeam, use: consumption.Consumption) -> None:
    """Checks that the script trains in several processes, as it was started.

    Raises:
        PipetuneError: several processes were started for a script that does not train in several.
    """
    if task.existing_cluster or _trains_in_team(team, use):  # an existing cluster need not train in lockstep
        return
    facts = use.distributed_input.handover if use.distributed_input is not None else None
    if facts is not None and facts.how == COORDINATOR:
        raise PipetuneError(
            f"{len(team)} workers were started, but the script trains under {facts.strategy}, with a coordinator.",
            hint=PARAMETER_SERVER_HINT,
        )
    how = f"It trains under {facts.strategy}, in one process" if facts else "It does not pass its dataset to a strategy"
    raise PipetuneError(
        f"{len(team)} workers were started, but the script does not train in several processes. {how}.",
        hint="--workers is for scripts that use tf.distribute.MultiWorkerMirroredStrategy. Omit it for this script.",
    )


def _trains_in_team(team: LockstepTeam, use: consumption.Consumption) -> bool:
    facts = job_processes.handover_of(use)
    return facts is not None and facts.workers == len(team) and facts.how != COORDINATOR


def consumer_of(
    team: LockstepTeam, use: consumption.Consumption, source: live.LivePipeline, consumer: consumption.Consumer
) -> consumption.Consumer:
    """Waits until all workers have reached training; returns what trains on the dataset, in lockstep or here alone.

    Args:
        use: how the script uses the dataset.
        source: the pipeline of this process; every worker must have the same operators.
        consumer: the consumer in this process.
    """
    difference = team.wait_for_workers(lockstep.operators_of(source.pipeline))
    if not isinstance(consumer, LocalConsumer) or not _trains_in_team(team, use):
        return consumer
    if difference:
        return consumption.NoConsumer(f"The workers cannot try another pipeline in lockstep: {difference}.")
    return LockstepConsumer(consumer, team)
