"""Facts about every tf.data operator: its effect on order, count, randomness and epochs."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from types import MappingProxyType

from pipetune.core.pipeline import INFINITE, Pipeline


class CountEffect(enum.StrEnum):
    """The number of output elements compared with the input elements."""

    ONE_TO_ONE = "one-to-one"
    FEWER = "fewer"  # never more than went in
    MORE = "more"  # never fewer than went in
    UNKNOWN = "unknown"


class OrderEffect(enum.StrEnum):
    """What an operator does to the order of elements."""

    KEEPS = "keeps"
    CHANGES = "changes"  # deterministically, the same every time
    SHUFFLES = "shuffles"  # by random draws
    UNKNOWN = "unknown"


class EpochEffect(enum.StrEnum):
    """What an operator does when its dataset is iterated again."""

    SAME = "same"  # adds no difference of its own between epochs
    DIFFERENT = "different"  # a different order or different draws in each epoch
    FREEZES = "freezes"  # replays the first epoch
    JOINS = "joins"  # merges several epochs into one stream
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class OperatorFacts:
    """Facts about an operator that do not depend on its function.

    The defaults are those of an operator that does no more than pass on one element for each that it gets.
    """

    order: OrderEffect = OrderEffect.KEEPS
    count: CountEffect = CountEffect.ONE_TO_ONE
    random: bool = False  # draws random numbers itself
    parallel_argument: str = ""  # the argument that makes it run in its own threads
    source: bool = False  # has no input dataset
    takes_function: bool = False  # has a function that TensorFlow traces; `Node.function` describes it
    batches: bool = False  # combines several elements into one, or splits one
    epochs: EpochEffect = EpochEffect.SAME
    python: bool = False  # runs Python code under the GIL itself
    reads_files: bool = False
    same_elements: bool = False  # passes elements through unchanged: same structure, same bytes
    reads_all: bool = True  # consumes its inputs completely whenever it is consumed completely

    @property
    def makes_batches(self) -> bool:
        """Whether it combines a fixed number of elements into one."""
        return self.batches and self.count is CountEffect.FEWER


CAUTIOUS = OperatorFacts(
    OrderEffect.UNKNOWN,
    CountEffect.UNKNOWN,
    random=True,
    takes_function=True,
    epochs=EpochEffect.UNKNOWN,
    python=True,
    reads_files=True,
    reads_all=False,
)
"""The facts assumed for an unknown operator."""

_MEMORY_SOURCE = OperatorFacts(count=CountEffect.MORE, source=True)
_FILE_SOURCE = OperatorFacts(count=CountEffect.MORE, source=True, reads_files=True)
_PARALLEL = "num_parallel_calls"

OPERATORS: MappingProxyType[str, OperatorFacts] = MappingProxyType(
    {
        # Sources.
        "from_tensor_slices": _MEMORY_SOURCE,
        "from_tensors": _MEMORY_SOURCE,
        "sparse_tensor_slices": _MEMORY_SOURCE,
        "from_sparse_tensor_slices": _MEMORY_SOURCE,
        "range": _MEMORY_SOURCE,
        # A generator may yield anything each time it is started: its code is not visible in the graph.
        "from_generator": OperatorFacts(
            OrderEffect.UNKNOWN,
            CountEffect.UNKNOWN,
            source=True,
            epochs=EpochEffect.UNKNOWN,
            python=True,
            random=True,
        ),
        "random": OperatorFacts(
            OrderEffect.SHUFFLES, CountEffect.MORE, source=True, random=True, epochs=EpochEffect.DIFFERENT
        ),
        "TFRecordDataset": _FILE_SOURCE,
        "TextLineDataset": _FILE_SOURCE,
        "FixedLengthRecordDataset": _FILE_SOURCE,
        "CsvDataset": _FILE_SOURCE,
        "load": _FILE_SOURCE,
        # One element in, one element out.
        "map": OperatorFacts(takes_function=True, parallel_argument=_PARALLEL),
        # The state of a scan lets it stop early.
        "scan": OperatorFacts(count=CountEffect.FEWER, takes_function=True),
        "enumerate": OperatorFacts(),
        "to_ragged": OperatorFacts(),
        "prefetch": OperatorFacts(same_elements=True),
        "with_options": OperatorFacts(same_elements=True),
        "copy_to_device": OperatorFacts(same_elements=True),
        "assert_cardinality": OperatorFacts(same_elements=True),
        "cache": OperatorFacts(epochs=EpochEffect.FREEZES, same_elements=True),
        "snapshot": OperatorFacts(epochs=EpochEffect.FREEZES, reads_files=True),
        "shuffle": OperatorFacts(OrderEffect.SHUFFLES, random=True, epochs=EpochEffect.DIFFERENT, same_elements=True),
        # Fewer.
        "filter": OperatorFacts(count=CountEffect.FEWER, takes_function=True, same_elements=True),
        "take": OperatorFacts(count=CountEffect.FEWER, same_elements=True, reads_all=False),
        "skip": OperatorFacts(count=CountEffect.FEWER, same_elements=True),
        "shard": OperatorFacts(count=CountEffect.FEWER, same_elements=True),
        "take_while": OperatorFacts(count=CountEffect.FEWER, takes_function=True, same_elements=True, reads_all=False),
        "ignore_errors": OperatorFacts(count=CountEffect.FEWER, same_elements=True),
        "unique": OperatorFacts(count=CountEffect.FEWER, same_elements=True),
        # Several into one, one into several.
        "batch": OperatorFacts(count=CountEffect.FEWER, batches=True, parallel_argument=_PARALLEL),
        "padded_batch": OperatorFacts(count=CountEffect.FEWER, batches=True),
        "ragged_batch": OperatorFacts(count=CountEffect.FEWER, batches=True),
        "unbatch": OperatorFacts(count=CountEffect.UNKNOWN, batches=True),
        "rebatch": OperatorFacts(count=CountEffect.UNKNOWN, batches=True),
        "window": OperatorFacts(count=CountEffect.UNKNOWN, batches=True),
        "group_by_window": OperatorFacts(OrderEffect.CHANGES, CountEffect.UNKNOWN, batches=True, takes_function=True),
        "flat_map": OperatorFacts(count=CountEffect.UNKNOWN, takes_function=True),
        "interleave": OperatorFacts(
            OrderEffect.CHANGES, CountEffect.UNKNOWN, takes_function=True, parallel_argument=_PARALLEL
        ),
        # Epochs.
        "repeat": OperatorFacts(count=CountEffect.MORE, epochs=EpochEffect.JOINS, same_elements=True),
        # Several inputs.
        "concatenate": OperatorFacts(count=CountEffect.MORE, same_elements=True),
        "zip": OperatorFacts(count=CountEffect.FEWER, reads_all=False),  # stops with its shortest input
        "choose": OperatorFacts(
            OrderEffect.SHUFFLES,
            CountEffect.UNKNOWN,
            random=True,
            epochs=EpochEffect.DIFFERENT,
            same_elements=True,
            reads_all=False,
        ),
        "opaque": CAUTIOUS,
    }
)
"""Facts by `Node.op`. Use `operator_facts` to read them; it also handles unknown names."""


def operator_facts(op: str) -> OperatorFacts:
    """Returns the facts about operator `op` (a `Node.op`); `CAUTIOUS` for an unknown name."""
    return OPERATORS.get(op, CAUTIOUS)


_KERNELS = {
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "SparseTensorSlice": "from_sparse_tensor_slices",
    "Generator": "from_generator",
    "Range": "range",
    "Random": "random",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
    "FixedLengthRecord": "FixedLengthRecordDataset",
    "CSV": "CsvDataset",
    "ExperimentalCSV": "CsvDataset",
    "Load": "load",
    "Map": "map",
    "ParallelMap": "map",
    "Filter": "filter",
    "ParallelFilter": "filter",
    "FlatMap": "flat_map",
    "Interleave": "interleave",
    "ParallelInterleave": "interleave",
    "Batch": "batch",
    "ParallelBatch": "batch",
    "PaddedBatch": "padded_batch",
    "Unbatch": "unbatch",
    "Shuffle": "shuffle",
    "ShuffleAndRepeat": "shuffle",
    "Repeat": "repeat",
    "Take": "take",
    "Skip": "skip",
    "Shard": "shard",
    "Prefetch": "prefetch",
    "Cache": "cache",
    "Window": "window",
    "TakeWhile": "take_while",
    "Scan": "scan",
    "GroupByWindow": "group_by_window",
    "IgnoreErrors": "ignore_errors",
    "Unique": "unique",
    "Concatenate": "concatenate",
    "Zip": "zip",
    "DirectedInterleave": "choose",
    "Snapshot": "snapshot",
    "Rebatch": "rebatch",
    "Options": "with_options",
    "AssertCardinality": "assert_cardinality",
    "DenseToRaggedBatch": "ragged_batch",
}


def is_dataset_kernel(name: str) -> bool:
    """Whether `name` is a kernel that creates a dataset ("ParallelMapDatasetV2")."""
    return _VERSION.sub("", name).endswith("Dataset")


def public_name(name: str) -> str:
    """Returns the operator for `name`, which may be the name of a kernel in a graph ("ParallelMapDatasetV2")."""
    if name in OPERATORS:
        return name
    kind = _VERSION.sub("", name)
    return _KERNELS.get(kind.removesuffix("Dataset"), "opaque") if kind.endswith("Dataset") else "opaque"


_VERSION = re.compile(r"V\d+$")


FUSED_SHUFFLE = "TensorFlow fuses a shuffle with the repeat next to it, which changes the order of later epochs"
"""Why a rewrite that makes the two operators adjacent, or separates them, does not keep the order."""


def fused_shuffles(pipeline: Pipeline) -> frozenset[str]:
    """Returns the ids of the seeded shuffles whose order TensorFlow changes by fusing them with a finite repeat."""
    ends = (node for node in pipeline if node.op == "repeat" and node.argument("count") not in (None, INFINITE))
    repeated = {name for node in ends for name in node.inputs}
    return frozenset(
        node.id
        for node in pipeline
        if node.op == "shuffle" and node.argument("seed") is not None and node.id in repeated
    )
