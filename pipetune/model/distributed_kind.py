"""Which distributed form a script asks for by what it uses, where nobody names one."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.handover import COORDINATOR, FUNCTION, OWN_PIPELINES, Handover
from pipetune.core.pipeline import Pipeline

NONE = "none"
"""In place of a kind: whatever the script uses, no form is written."""

_KINDS = {
    "MirroredStrategy": "mirrored",
    "MultiWorkerMirroredStrategy": "multiworker",
    "TPUStrategy": "tpu",
    "ParameterServerStrategy": "parameter-server",
    "Horovod": "horovod",
}


@dataclass(frozen=True)
class Choice:
    """A kind, or none, and a sentence on why."""

    kind: str = ""
    why: str = ""


def choose(asked: str | None, pipeline: Pipeline, handover: Handover | None, *, trials: bool = True) -> Choice:
    """The form to write.

    Args:
        asked: the value of `--distribute`; None: what the script uses decides.
        trials: whether more than a profile was asked for; without, only what is named is written.
    """
    if asked is not None:
        return Choice() if asked == NONE else Choice(asked, _of_a_part(pipeline, handover))
    if handover is None or not trials:
        return Choice()
    kind, strategy = _KINDS.get(handover.strategy, ""), handover.strategy
    if handover.how == FUNCTION:
        return Choice(why=f"The script's own function makes what {strategy} takes: the patch changes it in place.")
    if handover.how == OWN_PIPELINES and any(node.op == "shard" for node in pipeline):
        return Choice(why=f"The script divides its data over the processes of {strategy}: the patch keeps that.")
    if not kind:
        return Choice()
    trains = "in processes of Horovod" if handover.how == OWN_PIPELINES else f"under {strategy}"
    return Choice(kind, f"Written because the script trains {trains}; --distribute names another form, or none.")


def _of_a_part(pipeline: Pipeline, handover: Handover | None) -> str:
    """What has to be known of a form that is made of what one worker reads; '' where it is made of everything."""
    if handover is None:
        return ""
    if any(node.op == "shard" and node.argument("num_shards") not in (None, 1) for node in pipeline):
        return (
            "The pipeline was seen divided already (shard), and the form divides the part that was seen: analyse the "
            "script as a single worker."
        )
    if handover.how in (COORDINATOR, OWN_PIPELINES) or handover.divides:
        return ""
    return (
        f"The script's function made batches for one of {handover.replicas} replicas, and the form divides such a "
        "batch over all of them: multiply GLOBAL_BATCH_SIZE to keep the step."
    )
