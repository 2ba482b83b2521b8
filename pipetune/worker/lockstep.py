"""The processes of a script beside the one that is analyzed: workers in lockstep with it, and parameter servers."""

from __future__ import annotations

import functools

from pipetune.capture import consumption, protection, written_files
from pipetune.capture.lockstep_consumer import LocalConsumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.patches import Patches
from pipetune.capture.repeatability import repeatable
from pipetune.core import file_events, undo
from pipetune.core.distribution import InputDistribution
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import RequestLink
from pipetune.core.messages import AnalysisFailed, Job, MessageWriter, Progress
from pipetune.core.session import Session
from pipetune.core.settings import Command, Settings
from pipetune.core.time_plan import TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.measure import lockstep, machine
from pipetune.pipelines import replay
from pipetune.stages.study import Study, Subject
from pipetune.timing.iterators import shortened_pauses
from pipetune.worker import observation, script


def run_as_agent(job: Job, writer: MessageWriter) -> int:
    """Runs a worker other than the chief: its script to the first training step, then the chief's orders.

    Returns:
        The exit code.
    """
    assert job.lockstep_role is not None
    link = RequestLink(*job.lockstep_role.link_descriptors)
    writer.send(Progress("capture", "running the script"))

    def work(use: consumption.Consumption, consumer: consumption.Consumer, seen: ObservedScript) -> int:
        source = replay.read(use.dataset, name=use.name)
        here = machine.read_machine(job.settings.device)
        journal = Journal(Session(VERSION, Command()), TimePlan.of(job.settings), Listener())
        runner = Study(Subject(source, consumer, use), job.settings, here, journal).runner
        own = consumer if isinstance(consumer, LocalConsumer) else None
        lost = functools.partial(script.report_out_of_step, writer)
        with shortened_pauses():  # as in the chief, which would wait for the collection here after each window
            lockstep.LockstepWorker(runner, own, link, on_lockstep_lost=lost).run()
        runner.close()
        return 0

    return observation.ObservedRun(job, writer, work).run()


STRATEGY = "ParameterServerStrategy"


def run_server_task(job: Job, writer: MessageWriter) -> int:
    """Runs the script of a worker or a parameter server, which serves until this process is killed.

    The user's files are protected from the start: a script that does not serve after all goes on to train here.

    Returns:
        The exit code, 3: the script should not have ended.
    """
    writer.send(Progress("capture", "running the script"))
    journal = undo.open_journal(job.undo)
    file_events.set_journal(journal)
    with Patches() as patches:
        written_files.watch(patches)
        if journal is not None:
            journal.confirm_training(journal.begin_generation())
        protection.disable_saving(lambda _name: None)
        with repeatable(until=lambda: True, began=job.began):  # nothing says here where training begins
            reached_its_end = script.run_to_end(job, writer)
    if reached_its_end:
        hint = (
            "As a worker or parameter server (see TF_CONFIG), it has to wait in tf.distribute.Server(...).join() for "
            "requests from the chief."
        )
        writer.send(AnalysisFailed("The script ended, but it should serve the chief.", hint, 3))
    return 3


def parameter_server_note(settings: Settings, handover: InputDistribution | None, *, cores: int) -> str:
    """Returns a note on what parameter servers on this one machine mean for the plan; '' if none were started.

    Raises:
        PipetuneError: the script does not train under `ParameterServerStrategy`.
    """
    servers, workers = settings.parameter_servers, settings.workers
    if not servers:
        return ""
    started = f"{workers} workers and {servers} parameter server{'s' if servers > 1 else ''}"
    if handover is None or handover.strategy != STRATEGY:
        how = f"It trains under {handover.strategy}" if handover else "It does not pass its dataset to a strategy"
        raise PipetuneError(
            f"A chief, {started} were started, but the script uses no {STRATEGY}. {how}.",
            hint="Omit --parameter-servers.",
        )
    return (
        f"A chief, {started} share the {cores} cores of this machine. On separate machines a step is faster, "
        "and another plan may be best."
    )
