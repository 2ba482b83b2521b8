"""How a distribution strategy takes a dataset to its replicas, and how far apart its workers' inputs are, in words."""

from __future__ import annotations

from pipetune.core.distribution import (
    COORDINATOR,
    FIT,
    FUNCTION,
    PIPELINE_PER_PROCESS,
    InputDistribution,
    InputSkew,
)
from pipetune.core.pipeline import SERVICE, Pipeline
from pipetune.core.session import DatasetResult
from pipetune.report import words


def between(result: DatasetResult) -> str:
    """All that stands between the script's operators and the training step; '' where nothing does."""
    parts = [_service(result.pipeline), handover(result.handover), skew(result.skew)]
    return " ".join(part for part in parts if part)


def _service(pipeline: Pipeline) -> str:
    if not any(node.op == "opaque" and node.label == SERVICE for node in pipeline):
        return ""
    return (
        "The tf.data service delivers it: the operators in front of distribute run on the service's workers, and are "
        "not seen here."
    )


def handover(found: InputDistribution | None) -> str:
    """What stands between the dataset and the training step; '' where nothing does."""
    if found is None:
        return ""
    strategy = words.clean(found.strategy)
    if found.how == PIPELINE_PER_PROCESS:
        return f"{strategy} trains in {found.workers} processes, each of which builds a pipeline of its own."
    if found.how == COORDINATOR:
        return (
            f"{strategy} builds the dataset again on each of its {found.workers} workers, by {COORDINATOR}: nothing is "
            "divided or sharded."
        )
    if found.how == FUNCTION:
        to = f"to {_replicas(found)}, by {FUNCTION}"
        return f"{strategy} takes what the script's function makes {to}: {_whole(found)}"
    by = f"by {FIT}" if found.how == FIT else f"by {found.how}"
    return f"{strategy} takes the dataset to {_replicas(found)}, {by}: {_divided(found)}."


def step_note(found: InputDistribution | None) -> str:
    """What a step is in all figures, where a training step takes several elements; '' where it takes one."""
    if found is not None and found.how == COORDINATOR and found.workers > 1:
        return f"A step here is one of each of the {found.workers} workers: so many calls of what is scheduled."
    each = found.elements_per_step if found is not None else 1
    if each == 1:
        return ""
    return f"A step here is one element, for one replica: a training step takes {each} of them at a time."


def _replicas(found: InputDistribution) -> str:
    replicas = f"{found.replicas} replica{'s' if found.replicas != 1 else ''}"
    return f"{replicas} of {found.workers} workers" if found.workers > 1 else replicas


def _divided(found: InputDistribution) -> str:
    parts = []
    if found.workers > 1 and found.policy:
        parts.append(f"it is sharded over the workers by auto_shard_policy {words.clean(found.policy)}")
    if not found.shares:
        parts.append("no batch is divided")
    elif found.batch is None:
        # By all replicas, those of other workers too (`tf.distribute`, `_LegacyRebatchDataset`).
        parts.append(f"each batch is divided by {found.replicas}" if found.replicas > 1 else "no batch is divided")
    elif len(set(found.shares)) == 1:
        parts.append(f"each global batch of {found.batch:,} is divided into {found.shares[0]:,} for each replica")
    else:
        sizes = [f"{size:,}" for size in found.shares]
        parts.append(f"each global batch of {found.batch:,} is divided into {words.joined(sizes)}")
    if found.prefetched:
        parts.append(f"{found.prefetched} element{'s are' if found.prefetched != 1 else ' is'} prefetched behind it")
    return ", and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _whole(found: InputDistribution) -> str:
    size = found.batch
    batch = f"its batches of {size:,}, {size * found.replicas:,} in a training step" if size else "its elements"
    return f"each replica gets {batch}; nothing is divided, sharded or prefetched for it."


def skew(found: InputSkew | None) -> str:
    """What the slowest worker's input takes beside the others'; '' where a process trains alone."""
    if found is None:
        return ""
    parts = [_apart(found)]
    for one in found.inputs:
        if not one.step_seconds:
            why = words.sentence(words.clean(one.why))
            parts.append(f"The input of worker {one.worker} was not measured: {why}")
    return " ".join(part for part in parts if part)


def _apart(found: InputSkew) -> str:
    slowest, ratio, first = found.slowest, found.ratio, found.first_batch_spread_seconds
    if slowest is None or ratio is None:
        return ""
    fastest = min(one.seconds for one in found.measured_inputs)
    text = (
        f"Input skew: each alone, the inputs of {len(found.measured_inputs)} workers take {words.seconds(fastest)} to "
        f"{words.seconds(slowest.seconds)} a step"
    )
    if found.is_certain:
        text += f", worker {slowest.worker} {words.ratio(ratio)} the median, and every step waits for it"
    else:
        text += ", no further apart than the rounds of one worker"
    if first is not None:
        text += f"; the last worker's first batch comes {words.seconds(first)} after the first's"
    return f"{text}."
