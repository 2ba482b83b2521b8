"""`pipetune run`: runs the unchanged user script with a plan applied; nothing is measured or stopped."""

from __future__ import annotations

from pipetune.core.errors import PlanMismatch
from pipetune.core.messages import Job, Log, MessageWriter, ScriptExited, ScriptFailed
from pipetune.core.planfile import load_plan
from pipetune.tf.measure import machine
from pipetune.tf.pipelines.applying import Applier
from pipetune.tf.script.patches import Patches
from pipetune.tf.script.serving import serve
from pipetune.worker import script


def run(job: Job, writer: MessageWriter) -> int:
    """Runs the script to its end; every dataset that matches the plan is replaced by the planned one.

    Returns:
        The exit code: 0, or 3 if the script raised or exited with another status.

    Raises:
        PlanMismatch: no dataset of the script matched; the message names the first operator that differs.
    """
    plan = load_plan(job.plan)
    here = machine.read_machine(job.settings.device)
    if plan.machine is not None and plan.machine.cores_granted != here.cores_granted:
        writer.send(
            Log(
                f"The plan was measured on {plan.machine.cores_granted:g} cores; "
                f"this machine grants {here.cores_granted:g}."
            )
        )
    applier = Applier(plan, lambda name: writer.send(Log(f"The plan is applied to {name}.")))
    patches = Patches()
    serve(applier, patches)
    try:
        script.run(job)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            code = leaving.code if isinstance(leaving.code, int) else 1
            writer.send(ScriptExited(code, "" if isinstance(leaving.code, int) else str(leaving.code)))
            return 3
    except BaseException as error:
        writer.send(ScriptFailed(script.users_traceback(error)))
        return 3
    finally:
        patches.put_back()
    if not applier.applied:
        if applier.nearest is not None:
            nearest, source = applier.nearest
            nearest.check(source.pipeline)
        raise PlanMismatch(
            "The script consumed no dataset the plan was made for.", hint="Run `pipetune analyze`."
        )
    return 0
