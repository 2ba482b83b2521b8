"""Finds mistakes in the script's original pipelines, whatever pipetune changes in them.

The checks are in `mistakes/`; this module turns live datasets into the facts that they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipetune import mistakes
from pipetune.core.coverage import AsWritten
from pipetune.core.handover import FIT
from pipetune.core.profile import Finding, Profile
from pipetune.mistakes.stateful import shuffled_apart
from pipetune.mistakes.use import Use, shuffles_anew
from pipetune.mistakes.workers import divided, unsharded
from pipetune.tf.pipelines.halves import OTHER_HALF, other_half
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script import rebuilding, workers
from pipetune.tf.script.consumption import Consumption


def find(
    training: LivePipeline,
    use: Consumption,
    others: Sequence[tuple[LivePipeline, Consumption]],
    *,
    profile: Profile | None = None,
) -> list[Finding]:
    """Returns all findings in the training pipeline and the other datasets of the script, each once.

    Args:
        use: how the script consumes the training pipeline.
        others: the other datasets of the script, each with how it is consumed.
        profile: of the training pipeline; knows sizes that TensorFlow does not.
    """
    halves = frozenset(_halves(training))
    studied = replace(_use(training, use), profile=profile, workers=workers.of(use), halves=halves)
    found = mistakes.find(studied, [_use(source, other) for source, other in others])
    return [*found, *rebuilding.find(training, use)]


def of_division(source: LivePipeline, use: Consumption, found: AsWritten) -> list[Finding]:
    """Returns what is wrong with how the job's workers divide the data, from the measured division `found`."""
    counted = replace(_use(source, use), workers=workers.of(use), as_written=found)
    return [*unsharded(counted), *shuffled_apart(counted), *divided(counted)]


def _use(source: LivePipeline, use: Consumption) -> Use:
    return Use(
        source.pipeline,
        role=use.role,
        steps=use.steps_per_epoch,
        epochs=use.epochs,
        starts_again=use.starts_again,
        counts_rows=use.how == FIT,
        handover=workers.handover(use),
        captured=use.captured,
        objects={node: id(dataset) for node, dataset in source.datasets.items()},
    )


def _halves(source: LivePipeline) -> Iterator[str]:
    """Yields take and skip nodes downstream of a reshuffling shuffle whose complement the script has built as well."""
    for node in source.pipeline:
        behind_shuffle = any(map(shuffles_anew, source.pipeline.upstream(node.id)))
        if node.op in OTHER_HALF and behind_shuffle and other_half(node, source):
            yield node.id

