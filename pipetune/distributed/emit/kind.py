"""What a kind of stand-alone module is: how it is written, and what it is to give; which one a script needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipetune.core.distribution import (
    COORDINATOR,
    FUNCTION,
    PIPELINE_PER_PROCESS,
    Definition,
    DeliveryMode,
    ElementBytes,
    InputDistribution,
    StandaloneParts,
)
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import ServiceNeed


@dataclass(frozen=True)
class Known:
    """What is known of a module besides its pipeline; texts are for its header."""

    script: str  # the name of the user's script
    checked: str = "Not checked."  # how the module was checked, a sentence
    epoch_batches: int | None = None  # of one process that reads everything; None: not counted
    batch_bytes: ElementBytes | None = None  # what a batch takes on its way; None: not measured
    need: ServiceNeed | None = None  # whether a service helps, and how many workers it takes; None: not worked out
    tensorflow: str = ""  # the version that trains
    notes: tuple[str, ...] = ()  # what differs from the pipeline on one machine, as live objects show, a clause each
    no_index: str = ""  # why there is to be no form with indices, as part of a sentence
    no_fill: str = ""  # why last batches are not to be filled, as part of a sentence

    def steps_per_epoch(self, meaning: str) -> tuple[Definition, ...]:
        """The constant `STEPS_PER_EPOCH`, with what it means as a comment; () where steps were not counted."""
        if self.epoch_batches is None:
            return ()
        text = f"STEPS_PER_EPOCH = {self.epoch_batches}  # {meaning}"
        return (Definition("STEPS_PER_EPOCH", text),)


@dataclass(frozen=True)
class Standalone:
    """The module's text, what changed against the pipeline on one machine, and how it divides the data."""

    text: str
    notes: tuple[str, ...]
    shard_by: str  # "file" or "element"; "" where nothing is divided in the text
    global_batch_size: int | None  # rows of all replicas together; None: the pipeline does not batch
    batch_size: int | None = None  # rows of a batch as it comes, where that is the script's own
    companions: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # name, text of files beside the module
    splits: bool = True  # of a service: whether the dispatcher divides the data
    indexed: bool = False  # whether it has a form with indices
    fills: bool = False  # whether it can fill last batches
    guarantee: str = ""  # how often an element comes where that is not "once in an epoch", a sentence


@dataclass(frozen=True)
class Kind:
    """One value of `--distribute`."""

    emit: Callable[[StandaloneParts, Known], Standalone]  # raises CannotExpress with the reason
    delivery: DeliveryMode = DeliveryMode.PARTS
    prepare: Callable[[Pipeline], Pipeline] = lambda pipeline: pipeline  # what has to change first
    refuse: Callable[[Pipeline], None] = lambda pipeline: None  # raises CannotExpress for what cannot run there
    static_shapes: bool = False  # every shape has to be known before it runs
    one_process: bool = False  # all replicas are fed by one pipeline, as a rule


NONE = "none"
"""Used in place of a kind: no distributed module is written, whatever the script uses."""

_KIND_OF_STRATEGY = {
    "MirroredStrategy": "mirrored",
    "MultiWorkerMirroredStrategy": "multiworker",
    "TPUStrategy": "tpu",
    "ParameterServerStrategy": "parameter-server",
    "Horovod": "horovod",
}


def choose_kind(
    requested: str | None, pipeline: Pipeline, handover: InputDistribution | None, *, trials: bool = True
) -> tuple[str, str]:
    """Returns the kind of distributed module to write, "" for none, and a sentence that explains the choice or "".

    Args:
        requested: the value of `--distribute`; None if the script decides.
        handover: how the script distributes it; None if it does not.
        trials: whether more than a profile was requested; if not, only an explicitly requested kind is written.
    """
    if requested is not None:
        if requested == NONE:
            return "", ""
        return requested, _partial_pipeline_warning(pipeline, handover)
    if handover is None or not trials:
        return "", ""
    kind, strategy = _KIND_OF_STRATEGY.get(handover.strategy, ""), handover.strategy
    if handover.how == FUNCTION:
        why = f"A function of the script already builds the dataset for {strategy}: the patch edits it in place."
        return "", why
    if handover.how == PIPELINE_PER_PROCESS and any(node.op == "shard" for node in pipeline):
        why = f"The script already shards its data over the processes of {strategy}: the patch keeps that."
        return "", why
    if not kind:
        return "", ""
    trains = "in processes of Horovod" if handover.how == PIPELINE_PER_PROCESS else f"under {strategy}"
    why = f"Written because the script trains {trains}; use --distribute to choose another kind, or none."
    return kind, why


def _partial_pipeline_warning(pipeline: Pipeline, handover: InputDistribution | None) -> str:
    """Warns about a module that is built from the pipeline of a single worker or replica; "" if it is not."""
    if handover is None:
        return ""
    if any(node.op == "shard" and node.argument("num_shards") not in (None, 1) for node in pipeline):
        return (
            "The captured pipeline is already sharded (shard), and the module shards that part again: analyze the "
            "script as a single worker."
        )
    if handover.how in (COORDINATOR, PIPELINE_PER_PROCESS) or handover.divides:
        return ""
    return (
        f"The script's function builds batches for one of {handover.replicas} replicas, and the module splits such a "
        "batch among all of them: multiply GLOBAL_BATCH_SIZE accordingly to keep the batch size of a step."
    )
