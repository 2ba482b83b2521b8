"""With a tf.data service: what it would cost to store once the part of the pipeline that repeats in every epoch."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.service import StoredPrefix
from pipetune.rules.cache import best_place
from pipetune.rules.cache_costs import epochs_until_paid, storage_rate, stored_once
from pipetune.stages.planning import facts_of
from pipetune.stages.study import Study
from pipetune.tf.pipelines.counting import count_elements

_COUNT_SECONDS = 5.0


def stored_prefix(study: Study) -> StoredPrefix | None:
    """Returns where storing the elements saves most; None if nothing repeats, or if their size is unknown."""
    profile, diagnosis = study.journal.result.profile, study.journal.result.diagnosis
    if profile is None or diagnosis is None:
        return None
    if profile.cardinality is None:  # without trials the elements were not counted
        counted = count_elements(study.subject.source, limit_seconds=_COUNT_SECONDS)
        study.runner.restore()
        profile = replace(profile, cardinality=counted)
    context = facts_of(study, profile, diagnosis)
    place = best_place(context)
    if place is None:
        return None
    return StoredPrefix(
        place.node.id,
        place.size_bytes,
        stored_once(context, place),
        seconds_to_make=place.seconds,
        storage_bytes_per_second=storage_rate(context),
        epochs_to_pay=epochs_until_paid(context, place, before_training=True),
    )
