"""The input of a check: one dataset of the script, its pipeline, who reads it and how far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipetune.core.coverage import AsWritten
from pipetune.core.handover import Captured, Handover
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Finding, Profile

BATCHING = frozenset({"batch", "padded_batch", "ragged_batch"})
"""Operators that build batches of `batch_size` elements."""


@dataclass(frozen=True)
class Workers:
    """The processes of a job that train together, each of which reads this pipeline."""

    count: int
    told_by: str  # the source of the count: "TF_CONFIG"
    distributed: bool = False  # a strategy distributes the dataset to them, and shards it unless disabled
    asked: bool = False  # the script reads its worker index or the number of workers: it may shard the data itself


@dataclass(frozen=True)
class Use:
    """A pipeline of the script, and how the script uses it."""

    pipeline: Pipeline
    role: str = "training"  # as in `Consumption`: "training", "validation", "evaluation", "preview", ...
    steps: int | None = None  # batches per epoch, or per evaluation, that the call requests
    epochs: int | None = None
    starts_again: bool = False  # if the data is exhausted, the next epoch restarts it (Keras 3)
    objects: Mapping[str, int] = field(default_factory=dict)  # per node, the `id` of the live dataset
    halves: frozenset[str] = frozenset()  # take and skip nodes whose complement the script builds as well
    profile: Profile | None = None
    workers: Workers | None = None
    counts_rows: bool = False  # the loss is divided by the rows present: Keras, which tolerates an empty batch
    handover: Handover | None = None  # how a strategy distributes it to the replicas that train
    captured: tuple[Captured, ...] = ()  # by the function that builds each worker's dataset, from the script's process
    as_written: AsWritten | None = None  # what each of the workers receives; None: not counted (yet)

    @property
    def evaluates(self) -> bool:
        """Whether the model does not learn from this data."""
        return self.role in ("validation", "evaluation", "prediction")

    def has(self, node: str, of: Use) -> bool:
        """Whether the dataset of `node` in the pipeline of `of` is also part of this pipeline."""
        return node in of.objects and of.objects[node] in self.objects.values()

    def between(self, upper: str, lower: str) -> tuple[Node, ...]:
        """Returns the nodes downstream of `upper` and upstream of `lower`."""
        above = {node.id for node in self.pipeline.upstream(lower)}
        return tuple(node for node in self.pipeline.downstream(upper) if node.id in above)


def said(code: str, node: Node, message: str, hint: str) -> Finding:
    """Returns a finding at the source line of `node`."""
    place = node.location
    return Finding(code, message, hint, place.file if place else None, place.line if place else None)


def shuffles_anew(node: Node) -> bool:
    """Whether `node` is a shuffle that reshuffles in each epoch."""
    return node.op == "shuffle" and node.argument("reshuffle_each_iteration") is not False


def batch_size(node: Node) -> int | None:
    """Returns the size of the batches that an operator builds; None for other operators, or if not known."""
    size = node.argument("batch_size")
    return size if node.op in BATCHING and isinstance(size, int) and size > 0 else None


def nodes_of(use: Use, op: str) -> Iterator[Node]:
    return (node for node in use.pipeline if node.op == op)


def repeats(node: Node) -> bool:
    """Whether `node` is a repeat that outputs its input more than once."""
    return node.op == "repeat" and node.argument("count") not in (0, 1)


def runs_python(node: Node) -> bool:
    """Whether `node` runs Python code of the script for each element."""
    return node.op == "from_generator" or (node.function is not None and node.function.python)
