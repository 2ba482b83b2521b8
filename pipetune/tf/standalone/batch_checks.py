"""Runs the whole pipelines of a module for a batch each, and says how many batches an epoch has."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.model import coverage
from pipetune.model.remainders import remainder
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.counting import running
from pipetune.tf.standalone.emitted import fitting_batch_size

_MOST_SHUFFLED = 64
_BATCHES = frozenset({"batch", "padded_batch"})
_SEEN_THROUGH = frozenset(
    {"map", "shuffle", "repeat", "cache", "prefetch", "with_options", "assert_cardinality", *_BATCHES}
)


def check_pure(made: Sequence[live.LivePipeline]) -> None:
    """Whether all calls made the same pipeline.

    Raises:
        CannotExpress: two did not; a worker that comes back would go on with something else.
    """
    if len({one.pipeline.fingerprint for one in made}) > 1:
        raise CannotExpress("Called again, the function makes another pipeline, so a worker cannot be replaced.")


def of_replicas(
    made: list[live.LivePipeline],
    counts: list[int] | None,
    tuned: Pipeline,
    global_batch_size: int | None,
    *,
    one_process: bool = False,
) -> dict[str, object]:
    """Runs each whole pipeline for a batch of a replica; the last feeds the replicas of all others.

    Args:
        one_process: what a last batch costs is to be told for that one.
    """
    workers = len(made) - 1
    found: dict[str, object] = {"per_replica_batch": None}
    size = None
    if global_batch_size is not None:
        fitting = fitting_batch_size(global_batch_size, workers)
        found["per_replica_batch"] = size = fitting // workers
        if fitting != global_batch_size:
            found["why"] = (
                f"{workers} replicas do not divide {global_batch_size} rows: run with batches of {fitting}"
            )
    found |= of_own_size(made, counts, tuned, size)
    if counts is not None and size is not None and _ends_with_a_batch(tuned):
        apart = ([sum(counts)], workers) if one_process else (counts, 1)
        cost = remainder(apart[0], size, replicas_per_worker=apart[1])
        found |= {"dropped": cost.dropped, "filled": cost.filled}
    return found


def _ends_with_a_batch(tuned: Pipeline) -> bool:
    """Whether each epoch has a last batch of its own, whose rows are those of one epoch."""
    batches = [node for node in tuned if node.op in _BATCHES]
    blended = any(above.op == "repeat" for node in batches for above in tuned.upstream(node.id))
    return bool(batches) and not blended and not _changes_count_unseen(tuned)


def of_own_size(
    made: list[live.LivePipeline], counts: list[int] | None, tuned: Pipeline, batch_size: int | None
) -> dict[str, object]:
    """Runs each whole pipeline for a batch; how many an epoch has follows from the counts."""
    found: dict[str, object] = {"batches_per_worker": None, "short_batches_per_worker": None, "equal_batches": None}
    batches = [node for node in tuned if node.op in _BATCHES]
    reshaped = any(below.op == "map" for node in batches for below in tuned.downstream(node.id))
    for whole in made:
        _one_batch(whole, None if reshaped else batch_size)
    if counts is not None and not _changes_count_unseen(tuned):
        drop, size = any(node.argument("drop_remainder") for node in batches), batch_size or 1
        made_of = [coverage.batches(count, size, drop_remainder=drop) for count in counts]
        epoch, short = [whole for whole, _ in made_of], [partial for _, partial in made_of]
        found |= {
            "batches_per_worker": epoch,
            "short_batches_per_worker": short,
            "equal_batches": len(set(epoch)) == 1 and not any(short),
        }
    return found


def _one_batch(made: live.LivePipeline, per_replica: int | None) -> None:
    try:
        dataset = replay(made, probe.of_batches(made.pipeline, most=_MOST_SHUFFLED))
    except CannotReplay:
        dataset = made.dataset
    with running():
        elements = list(dataset.take(1))
    for element in elements:
        rows = {
            part.shape[0]
            for part in tf.nest.flatten(element)
            if isinstance(part, tf.Tensor) and part.shape.rank
        }
        if per_replica is not None and any(count > per_replica for count in rows):
            raise CannotExpress(f"A replica gets a batch of {max(rows)} rows instead of {per_replica}.")


def _changes_count_unseen(tuned: Pipeline) -> bool:
    kept = {node.id for node in probe.of_elements(tuned)}
    return any(node.op not in _SEEN_THROUGH and node.id not in kept for node in tuned)
