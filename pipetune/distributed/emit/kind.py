"""What a kind of stand-alone module is: how it is written, and what it is to give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipetune.core.distribution import Definition, DeliveryMode, ElementBytes, StandaloneParts
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

    name: str
    emit: Callable[[StandaloneParts, Known], Standalone]  # raises CannotExpress with the reason
    delivery: DeliveryMode = DeliveryMode.PARTS
    prepare: Callable[[Pipeline], Pipeline] = lambda pipeline: pipeline  # what has to change first
    refuse: Callable[[Pipeline], None] = lambda pipeline: None  # raises CannotExpress for what cannot run there
    static_shapes: bool = False  # every shape has to be known before it runs
    one_process: bool = False  # all replicas are fed by one pipeline, as a rule
