"""Scripts that train in several processes in lockstep: the part of the chief, and that of the other workers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from pipetune.core.cluster import Task
from pipetune.core.errors import PipetuneError
from pipetune.core.garbage import short_collections
from pipetune.core.handover import COORDINATOR
from pipetune.core.in_step import Link
from pipetune.core.messages import Job, MessageWriter, OutOfStep, Progress
from pipetune.core.session import Session
from pipetune.core.team import Team
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Silence
from pipetune.stages.study import Study, Subject
from pipetune.tf.measure import in_step, machine
from pipetune.tf.pipelines import live, replay
from pipetune.tf.script import consumers, consumption, hooks, workers
from pipetune.tf.script.coordinators import BY_SERVERS
from pipetune.tf.script.in_step_consumer import InStepConsumer, OwnConsumer
from pipetune.worker import observing, script


@contextlib.contextmanager
def team_of(task: Task | None, writer: MessageWriter) -> Iterator[Team | None]:
    """Context manager: the other workers, released at the end; None if the process trains alone."""
    if task is None:
        yield None
        return
    team = Team([Link(descriptor) for descriptor in task.link], out_of_step=functools.partial(_fell_out, writer))
    try:
        yield team
    finally:
        team.leave()


def join_in(task: Task | None, team: Team | None, use: consumption.Consumption) -> Team | None:
    """Checks that the script trains in several processes, as it was started.

    Returns:
        The team, at least to measure the inputs of its workers; None if this process was started alone.

    Raises:
        PipetuneError: several processes were started for a script that does not train in several.
    """
    if task is None or team is None:
        return None
    if task.elsewhere or _trains_in(team, use):  # nobody claimed that an existing cluster trains in lockstep
        return team
    facts = use.handed.facts() if use.handed is not None else None
    if facts is not None and facts.how == COORDINATOR:
        raise PipetuneError(
            f"{len(team)} workers were started, but the script trains under {facts.strategy}, by a coordinator.",
            hint=BY_SERVERS,
        )
    how = f"It trains under {facts.strategy}, in one process" if facts else "It hands its dataset to no strategy"
    raise PipetuneError(
        f"{len(team)} workers were started, but the script does not train in several processes. {how}.",
        hint="--workers is for scripts that use tf.distribute.MultiWorkerMirroredStrategy: leave it out.",
    )


def _trains_in(team: Team, use: consumption.Consumption) -> bool:
    facts = workers.handover(use)
    return facts is not None and facts.workers == len(team) and facts.how != COORDINATOR


def consumer_of(
    team: Team, use: consumption.Consumption, source: live.LivePipeline, consumer: consumers.Consumer
) -> consumers.Consumer:
    """Waits until all workers have reached training; returns what trains on the dataset, in lockstep or here alone.

    Args:
        use: how the script uses the dataset.
        source: the pipeline of this process; every worker must have the same operators.
        consumer: the consumer in this process.
    """
    difference = team.gather(in_step.operators_of(source.pipeline))
    if not isinstance(consumer, OwnConsumer) or not _trains_in(team, use):
        return consumer
    if difference:
        return consumers.NoConsumer(f"The workers cannot try another pipeline together: {difference}.")
    return InStepConsumer(consumer, team)


def follow(job: Job, writer: MessageWriter) -> int:
    """Runs the script of a worker other than the chief to its first training step, and executes the chief's orders."""
    assert job.task is not None
    link = Link(*job.task.link)
    writer.send(Progress("capture", "running the script"))

    def work(use: consumption.Consumption, consumer: consumers.Consumer, seen: hooks.Hooks) -> int:
        source = replay.read(use.dataset, name=use.name)
        here = machine.read_machine(job.settings.device)
        journal = Journal(Session(VERSION, command={}), job.settings, Silence())
        runner = Study(Subject(source, consumer, use), job.settings, here, journal).runner
        own = consumer if isinstance(consumer, OwnConsumer) else None
        with short_collections():  # as in the chief, which would wait for the collection here after each window
            in_step.Follower(runner, own, link, out_of_step=functools.partial(_fell_out, writer)).follow()
        runner.forget()
        return 0

    return observing.Observation(job, writer, work).run()


def _fell_out(writer: MessageWriter, why: str, cause: BaseException | None) -> None:
    writer.send(OutOfStep(why, script.users_traceback(cause) if cause is not None else ""))
