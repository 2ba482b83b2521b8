"""The session that an analysis goes on with: it must be of this pipeline, and of a machine like this one."""

from __future__ import annotations

from pipetune.core import session_file
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.messages import Job
from pipetune.core.pipeline import Pipeline
from pipetune.core.plan_file import first_difference
from pipetune.core.session import Session


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
