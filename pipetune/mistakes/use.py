"""What a check is told of one dataset of the script: its pipeline, who reads it and how far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipetune.core.coverage import AsWritten
from pipetune.core.handover import Captured, Handover
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Finding, Profile

BATCHING = frozenset({"batch", "padded_batch", "ragged_batch"})
"""Operators that make one batch of `batch_size` elements."""


@dataclass(frozen=True)
class Workers:
    """The processes of a job that train together, each of which reads this pipeline."""

    count: int
    told_by: str  # what says so: "TF_CONFIG"
    distributed: bool = False  # a strategy takes the dataset to them, and shards it unless told not to
    asked: bool = False  # the script asks which of them it is, or a count of them: it may divide the data itself


@dataclass(frozen=True)
class Use:
    """A pipeline of the script, and what the script does with it."""

    pipeline: Pipeline
    role: str = "training"  # as `Consumption` has it: "training", "validation", "evaluation", "preview", ...
    steps: int | None = None  # batches per epoch, or per evaluation, that the call asks for
    epochs: int | None = None
    starts_again: bool = False  # where an epoch ends with the data, the next begins it anew (Keras 3)
    objects: Mapping[str, int] = field(default_factory=dict)  # per node, a number that is the live dataset's alone
    halves: frozenset[str] = frozenset()  # take and skip nodes of which somebody makes the other half as well
    profile: Profile | None = None
    workers: Workers | None = None
    counts_rows: bool = False  # what trains divides a loss by the rows there are: Keras, which stands an empty batch
    handover: Handover | None = None  # how a strategy takes it to the replicas that train
    captured: tuple[Captured, ...] = ()  # of the script's process, by the function that workers call for the dataset
    as_written: AsWritten | None = None  # what each of the workers gets; None: not counted (yet)

    @property
    def evaluates(self) -> bool:
        """Whether nothing is learned from what is read."""
        return self.role in ("validation", "evaluation", "prediction")

    def has(self, node: str, of: Use) -> bool:
        """Whether the dataset behind `node` of another pipeline is one of this pipeline's too."""
        return node in of.objects and of.objects[node] in self.objects.values()

    def between(self, upper: str, lower: str) -> tuple[Node, ...]:
        """The nodes below `upper` and above `lower`."""
        above = {node.id for node in self.pipeline.upstream(lower)}
        return tuple(node for node in self.pipeline.downstream(upper) if node.id in above)


def said(code: str, node: Node, message: str, hint: str) -> Finding:
    """A finding at the line of `node`."""
    place = node.location
    return Finding(code, message, hint, place.file if place else None, place.line if place else None)


def shuffles_anew(node: Node) -> bool:
    """Whether it is a shuffle that draws another order in each epoch."""
    return node.op == "shuffle" and node.argument("reshuffle_each_iteration") is not False


def batch_size(node: Node) -> int | None:
    """The size of the batches that an operator makes; None for other operators, and where it is not known."""
    size = node.argument("batch_size")
    return size if node.op in BATCHING and isinstance(size, int) and size > 0 else None


def nodes_of(use: Use, op: str) -> Iterator[Node]:
    return (node for node in use.pipeline if node.op == op)


def repeats(node: Node) -> bool:
    """Whether it puts out its input more than once."""
    return node.op == "repeat" and node.argument("count") not in (0, 1)


def runs_python(node: Node) -> bool:
    """Whether it calls the script for its elements."""
    return node.op == "from_generator" or (node.function is not None and node.function.python)
