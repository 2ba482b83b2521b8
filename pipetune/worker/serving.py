"""Jobs with parameter servers: runs the script of a task other than the chief, and the chief's note on the job."""

from __future__ import annotations

from pipetune.core import file_events, undo
from pipetune.core.errors import PipetuneError
from pipetune.core.handover import Handover
from pipetune.core.messages import Failed, Job, MessageWriter, Progress, ScriptExited, ScriptFailed
from pipetune.core.settings import Settings
from pipetune.tf.script import native_writers, saving
from pipetune.tf.script.patches import Patches
from pipetune.worker import script

STRATEGY = "ParameterServerStrategy"


def serve(job: Job, writer: MessageWriter) -> int:
    """Runs the script of a worker or a parameter server, which serves until this process is killed.

    The user's files are protected from the start: a script that does not serve after all goes on to train here.

    Returns:
        The exit code, 3: the script should not have ended.
    """
    writer.send(Progress("capture", "running the script"))
    journal = undo.journal_in(job.undo)
    file_events.tell(journal)
    patches = Patches()
    native_writers.watch(patches)
    if journal is not None:
        journal.begin(journal.mark())
    saving.switch_off(lambda _name: None)
    try:
        script.run(job)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            code = leaving.code if isinstance(leaving.code, int) else 1
            writer.send(ScriptExited(code, "" if isinstance(leaving.code, int) else str(leaving.code)))
            return 3
    except PipetuneError:
        raise
    except BaseException as error:
        writer.send(ScriptFailed(script.users_traceback(error)))
        return 3
    finally:
        patches.put_back()
    writer.send(
        Failed(
            "The script came to its end, where it should serve the chief.",
            "In a worker or a parameter server, as TF_CONFIG names it, it has to wait in "
            "tf.distribute.Server(...).join() for what the chief sends.",
            3,
        )
    )
    return 3


def job_note(settings: Settings, handover: Handover | None, *, cores: int) -> str:
    """A note on what parameter servers on this one machine mean for the plan; '' if none were started.

    Raises:
        PipetuneError: the script does not train under `ParameterServerStrategy`.
    """
    servers, workers = settings.parameter_servers, settings.workers
    if not servers:
        return ""
    started = f"{workers} workers and {servers} parameter server{'s' if servers > 1 else ''}"
    if handover is None or handover.strategy != STRATEGY:
        how = f"It trains under {handover.strategy}" if handover else "It hands its dataset to no strategy"
        raise PipetuneError(
            f"A chief, {started} were started, but the script uses no {STRATEGY}. {how}.",
            hint="Leave --parameter-servers out.",
        )
    return (
        f"A chief, {started} share the {cores} cores of this machine: with a machine for each, a step is shorter, and "
        "another plan may be the best."
    )
