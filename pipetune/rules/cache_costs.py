"""Sentences on what a cache costs and when it pays off: in memory, in a file, or as a dataset saved once.

Figures that were not measured are left out. The read rate of the disk is known if the script's own files were read in a
sweep; otherwise the sentence gives the read rate above which storing pays off.
"""

from __future__ import annotations

from pipetune.core.edits import Silence
from pipetune.rules.base import RuleContext
from pipetune.rules.cache_places import Place, epochs_to_pay, room_bytes
from pipetune.rules.epoch_constancy import Constancy
from pipetune.rules.legality import described
from pipetune.rules.pricing import as_size, as_time

GUARANTEES = (
    "Dataset.save writes one shard, so that Dataset.load keeps the order. Nobody checks that a saved dataset still "
    "fits the code: save it again whenever the data or a function changes. Dataset.snapshot writes while the first "
    "epoch runs. It begins anew when the graph above it changes, now and then when nothing did, never when files or "
    "Python code change; it keeps the order only where the reading machine has at least as many processors as the "
    "writing one, and elements above 256 KiB need compression=None."
)
"""What the two ways to store a dataset guarantee; `tests/tf/test_stored_facts.py` verifies each sentence."""


def paid_in_memory(place: Place) -> str:
    """Describes what a cache in memory saves; "" if the costs were not measured."""
    saved = place.seconds
    if not saved or place.size_bytes <= 0:
        return ""
    per_size = as_time(saved / place.size_bytes * 2**20)
    text = f"From the second epoch on it saves {_time(place)} per epoch, {per_size} for each MiB held"
    if place.epochs is not None:
        text += f": {as_time(saved * (place.epochs - 1))} in the {place.epochs:.3g} epochs of the script"
    return f"{text}. The first epoch takes as long as before."


def paid_in_a_file(context: RuleContext, place: Place) -> str:
    """Describes what a file cache saves, which the first epoch writes and later ones read; "" if not measured."""
    saved = place.seconds
    if not saved:
        return ""
    begins = f"The first epoch also writes {as_size(place.size_bytes)}, which each later one reads"
    return f"{begins} in place of {_time(place)}. {_paid_by_reading(context, place, saved, before_training=False)}"


def saved_instead(context: RuleContext, place: Place, *, rule: str) -> Silence:
    """Suggests to save the dataset once at a place that does not fit in memory: size, cost, when it pays off."""
    size, saved = as_size(place.size_bytes), place.seconds
    cost = f", {_time(place)} to make once" if saved else ""
    pays = f" {_paid_by_reading(context, place, saved, before_training=True)}" if saved else ""
    order = " Every epoch then has the order it was saved in." if place.constancy is Constancy.SAME_ELEMENTS else ""
    limit = f"the limit of {as_size(context.memory_limit_bytes)}"
    if room_bytes(context) < context.memory_limit_bytes:
        limit = f"what the pipeline leaves of {limit}"
    why = (
        f"A memory cache behind {described(place.node)} would take {size}, more than {limit}. Instead, save the "
        f"dataset up to here once with Dataset.save ({size} on disk{cost}) and begin with Dataset.load.{pays}"
        f"{order} {GUARANTEES}"
    )
    return Silence(rule, place.node.id, why)


def stored_once(context: RuleContext, place: Place) -> str:
    """Suggests a dataset saved once for all workers and runs instead of a service: size, cost, when it pays off.

    `GUARANTEES` states what storing guarantees.
    """
    saved = place.seconds
    cost = f", {_time(place)} to make once" if saved else ""
    pays = f" {_paid_by_reading(context, place, saved, before_training=True)}" if saved else ""
    order = " Every epoch then has the order it was saved in." if place.constancy is Constancy.SAME_ELEMENTS else ""
    return (
        f"What stands up to {described(place.node)} repeats in every epoch: save it once with Dataset.save "
        f"({as_size(place.size_bytes)} on storage that every host reaches{cost}) and begin with Dataset.load, or let "
        f"Dataset.snapshot write it in the first epoch.{pays}{order}"
    )


def storage_rate(context: RuleContext) -> float | None:
    """Returns the bytes per second at which the script's own files were read; None if not measured."""
    files = context.profile.files if context.profile is not None else None
    return (files.storage_bytes_per_second if files is not None else None) or None


def epochs_until_paid(context: RuleContext, place: Place, *, before_training: bool) -> int | None:
    """Returns the epochs until storing has paid off; None if it never does, or a figure was not measured.

    The write rate of the disk is not measured: it is assumed to equal the read rate.

    Args:
        context: provides the measured read rate.
        place: where the elements are stored.
        before_training: whether the elements are computed and written before the first epoch, which already reads
            them; otherwise the first epoch computes and writes them.
    """
    rate, saved = storage_rate(context), place.seconds
    if rate is None or saved is None:
        return None
    reading = place.size_bytes / rate
    once = saved + reading if before_training else saved
    return epochs_to_pay(once, each_seconds=reading, saved_seconds=saved)


def _paid_by_reading(context: RuleContext, place: Place, saved: float, *, before_training: bool) -> str:
    """Describes when reading from disk pays off; see `epochs_until_paid`."""
    rate = storage_rate(context)
    if rate is None:
        return f"That pays where more than {as_size(place.size_bytes / saved)} per second are read."
    paid = epochs_until_paid(context, place, before_training=before_training)
    reading = as_time(place.size_bytes / rate)
    known = f"At {as_size(rate)} per second, as the script's files are read, reading takes {reading} at least"
    if paid is None:
        return f"{known}, so it never pays."
    return f"{known}; written as fast, it has paid after {paid} epochs."


def _time(place: Place) -> str:
    """Formats the time of one epoch up to the place: "12 s of CPU time and 3.1 s of waiting"."""
    outputs = place.outputs or 0.0
    text = f"{as_time((place.work or 0.0) * outputs)} of CPU time"
    waiting = place.waiting * outputs
    return f"{text} and {as_time(waiting)} of waiting" if waiting > 0.01 * (place.seconds or 0.0) else text
