"""Chooses the kind of distributed module to write from what the script uses, unless one is requested."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.handover import COORDINATOR, FUNCTION, OWN_PIPELINES, Handover
from pipetune.core.pipeline import Pipeline

NONE = "none"
"""Used in place of a kind: no distributed module is written, whatever the script uses."""

_KINDS = {
    "MirroredStrategy": "mirrored",
    "MultiWorkerMirroredStrategy": "multiworker",
    "TPUStrategy": "tpu",
    "ParameterServerStrategy": "parameter-server",
    "Horovod": "horovod",
}


@dataclass(frozen=True)
class Choice:
    """A kind, or "" for none, and a sentence that explains the choice."""

    kind: str = ""
    why: str = ""


def choose(asked: str | None, pipeline: Pipeline, handover: Handover | None, *, trials: bool = True) -> Choice:
    """Chooses the kind of distributed module to write.

    Args:
        asked: the value of `--distribute`; None if the script decides.
        pipeline: the pipeline of the script.
        handover: how the script distributes it; None if it does not.
        trials: whether more than a profile was requested; if not, only an explicitly requested kind is written.
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
    """Warns about a module that is built from the pipeline of a single worker or replica; "" if it is not."""
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
