"""What differs between the kinds of stand-alone modules inside the statements that make the dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

REPLICAS = "replicas"
GLOBAL_BATCH_SIZE = "GLOBAL_BATCH_SIZE"


def times_replicas(_op: str, count: str) -> str:
    """A number of whole batches, where one pipeline feeds several replicas with smaller ones."""
    return f"{count} * {REPLICAS}"


def as_written(_op: str, count: str) -> str:
    """A number of whole batches, where they are as large as the script's."""
    return count


@dataclass(frozen=True)
class Wording:
    """How the statements of one kind say which part they read and how large its batches are."""

    who: str = "worker"  # what runs one of the pipelines, in words
    opening: tuple[str, ...] = (
        "workers = input_context.num_input_pipelines",
        "worker = input_context.input_pipeline_id",
    )
    size: str = "workers"  # into how many parts; "" where nothing is divided
    number: str = "worker"  # which of them
    batch_constant: str = GLOBAL_BATCH_SIZE
    batch_comment: str = "rows of all replicas together"
    batch_opening: str = "batch_size = input_context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE)"
    batch: str = "batch_size"  # the expression for the rows of a batch
    replicas_opening: str = f"{REPLICAS} = input_context.num_replicas_in_sync // workers  # that this pipeline feeds"
    batches_count: Callable[[str, str], str] = times_replicas  # operator, number of batches -> expression
    shuffle_seed: str = ""  # an expression that takes the place of every seed of a shuffle
    fills: bool = False  # last batches can be filled by the argument `fill`
    mixes_files: bool = False  # the list of files is shuffled as it is made
    closing: tuple[str, ...] = ()  # statements in front of the last prefetch, `{dataset}` for the variable
    prefetches: bool = True  # ends with a prefetch
    why_prefetch: str = "because distribute_datasets_from_function adds none"
