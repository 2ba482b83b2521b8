"""The input of a check: one dataset of the script, its pipeline, what reads it and how far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pipetune.core.distribution import CapturedObject, InputDistribution, OriginalSharding
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Profile


@dataclass(frozen=True)
class JobWorkers:
    """The processes of a job that train together, each of which reads this pipeline."""

    count: int
    source: str  # the source of the count: "TF_CONFIG"
    distributed: bool = False  # a strategy distributes the dataset to them, and shards it unless disabled
    reads_worker_index: bool = False  # the script reads its worker index or their number, and may shard the data itself


@dataclass(frozen=True)
class DatasetUse:
    """A pipeline of the script, and how the script uses it."""

    pipeline: Pipeline
    role: str = "training"  # as in `Consumption`: "training", "validation", "evaluation", "preview", ...
    steps: int | None = None  # batches per epoch, or per evaluation, that the call requests
    epochs: int | None = None  # that the call requests
    epochs_certain: bool = False  # the call is made only once
    restarts_data: bool = False  # if the data is exhausted, the next epoch restarts it (Keras 3)
    dataset_ids: Mapping[str, int] = field(default_factory=dict)  # per node, the `id` of the live dataset
    complemented_nodes: frozenset[str] = frozenset()  # take and skip nodes whose complement the script builds as well
    profile: Profile | None = None
    workers: JobWorkers | None = None
    tolerates_empty_batches: bool = False  # the loss is divided by the rows present, as in Keras
    handover: InputDistribution | None = None  # how a strategy distributes it to the replicas that train
    captured: tuple[CapturedObject, ...] = ()  # by the function that builds each worker's dataset
    worker_coverage: OriginalSharding | None = None  # what each of the workers receives; None: not counted (yet)

    @property
    def is_evaluation(self) -> bool:
        """Whether the model does not learn from this data."""
        return self.role in ("validation", "evaluation", "prediction")

    def nodes_between(self, upper: str, lower: str) -> tuple[Node, ...]:
        """Returns the nodes downstream of `upper` and upstream of `lower`."""
        above = {node.id for node in self.pipeline.upstream(lower)}
        return tuple(node for node in self.pipeline.downstream(upper) if node.id in above)


def batch_size(node: Node) -> int | None:
    """Returns the size of the batches that an operator builds; None for other operators, or if not known."""
    size = node.argument("batch_size")
    return size if operator_facts(node.op).makes_batches and isinstance(size, int) and size > 0 else None


def nodes_with_op(use: DatasetUse, op: str) -> Iterator[Node]:
    """Yields the operators of the pipeline whose method is `op`."""
    return (node for node in use.pipeline if node.op == op)


def one_to_one(nodes: Iterable[Node]) -> bool:
    """Whether each of these operators outputs one element for each that it gets."""
    return all(operator_facts(node.op).count is CountEffect.ONE_TO_ONE for node in nodes)


def is_repeat(node: Node) -> bool:
    """Whether `node` is a repeat that outputs its input more than once."""
    return node.op == "repeat" and node.argument("count") not in (0, 1)
