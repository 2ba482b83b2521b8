"""Finds mistakes in the script's original pipelines, independent of any changes by pipetune.

The checks are in `lint/`; this module converts live datasets to the facts that they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipetune import lint
from pipetune.capture import job_processes, rebuilding
from pipetune.capture.consumption import Consumption
from pipetune.core.distribution import FIT, OriginalSharding
from pipetune.core.operators import reshuffles_each_epoch
from pipetune.core.profile import Finding, Profile
from pipetune.lint.caches import find_incomplete_caches
from pipetune.lint.dataset_use import DatasetUse
from pipetune.lint.workers import find_division_problems
from pipetune.pipelines.live import COMPLEMENT_CLASS, LivePipeline, has_complement


def find(
    training: LivePipeline,
    use: Consumption,
    others: Sequence[tuple[LivePipeline, Consumption]],
    *,
    profile: Profile | None = None,
) -> list[Finding]:
    """Returns all findings in the training pipeline and the other datasets of the script, each once.

    The profile of the training pipeline has sizes that TensorFlow does not know.
    """
    halves = frozenset(_split_nodes(training))
    studied = replace(
        _use(training, use), profile=profile, workers=job_processes.job_workers(use), complemented_nodes=halves
    )
    found = lint.find_mistakes(studied, [_use(source, other) for source, other in others])
    return [*found, *rebuilding.find(training, use)]


def find_in_division(source: LivePipeline, use: Consumption, found: OriginalSharding) -> list[Finding]:
    """Returns the problems in how the job's workers divide the data, according to the measured division `found`."""
    counted = replace(_use(source, use), workers=job_processes.job_workers(use), worker_coverage=found)
    return list(find_division_problems(counted))


def leaves_caches_incomplete(
    source: LivePipeline, use: Consumption, others: Sequence[tuple[LivePipeline, Consumption]]
) -> bool:
    """Whether nothing that reads the dataset reads all that a cache of it is to hold."""
    read_by = [_use(other, how) for other, how in others]
    return any(find_incomplete_caches(_use(source, use), read_by))


def _use(source: LivePipeline, use: Consumption) -> DatasetUse:
    return DatasetUse(
        source.pipeline,
        role=use.role,
        steps=use.steps_per_epoch,
        epochs=use.epochs,
        epochs_certain=use.epochs_certain,
        restarts_data=use.restarts_iterator,
        tolerates_empty_batches=use.consumer_call == FIT,
        handover=job_processes.handover_of(use),
        captured=use.captured,
        dataset_ids={node: id(dataset) for node, dataset in source.datasets.items()},
    )


def _split_nodes(source: LivePipeline) -> Iterator[str]:
    """Yields take and skip nodes downstream of a reshuffling shuffle whose complement the script has also built."""
    for node in source.pipeline:
        behind_shuffle = any(map(reshuffles_each_epoch, source.pipeline.upstream(node.id)))
        if node.op in COMPLEMENT_CLASS and behind_shuffle and has_complement(node, source):
            yield node.id
