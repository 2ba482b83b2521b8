"""Proves that a stand-alone module gives every element once per epoch, by running it as every worker.

What is counted, see `probe`: the module itself is called for each worker's InputContext, the datasets it
makes are cut down to what decides which elements come, and their fingerprints are counted against those of
the user's own pipeline. Then the module's whole pipeline gives a batch to each worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipetune.core.coverage import Coverage
from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Delivery
from pipetune.model.coverage import coverage as cover
from pipetune.tf.pipelines import live
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.batch_checks import check_pure, of_own_size, of_replicas
from pipetune.tf.standalone.counting import MOST_BYTES, Expected, Measure, Wanted, epochs_of, expected, measure
from pipetune.tf.standalone.element_specs import changes, sentences
from pipetune.tf.standalone.emitted import check_same, emitted

WORKER_COUNTS = (2, 3, 4)
ALIKE_COUNTS = (2,)  # where all workers get the same: called again, the module has to give the same again


@dataclass(frozen=True)
class Counted:
    """What running a module as several workers showed."""

    rows: tuple[dict[str, object], ...]  # plain values by the number of workers
    coverage: tuple[Coverage, ...] = ()  # the same, where elements were counted
    how: Measure | None = None  # how they were counted; None: they were not
    expected: Expected | None = None  # what there was to come
    reads_all: bool = False  # each worker reads all of the data to give its own part

    @property
    def wanted(self) -> Wanted | None:
        """What processes are to give together; None where elements could not be counted."""
        if self.how is None or self.expected is None:
            return None
        return Wanted(self.how, self.expected, self.reads_all)


def check(module_text: str, source: live.LivePipeline, **options: Any) -> tuple[dict[str, object], ...]:
    """The rows of `count`."""
    return count(module_text, source, **options).rows


def count(
    module_text: str,
    source: live.LivePipeline,
    *,
    tuned: Pipeline | None = None,
    parameter: Any = None,
    shard_by: str = "element",
    global_batch_size: int | None = None,
    batch_size: int | None = None,
    delivery: Delivery = Delivery.PARTS,
    one_process: bool = False,
    worker_counts: Sequence[int] | None = None,
    most_bytes: int = MOST_BYTES,
) -> Counted:
    """What each number of workers gets.

    Keys of the rows: workers, elements (per epoch), missing, duplicated (in the worst epoch, of all workers together,
    or of any where each is to give everything; null: not counted), per_worker, counted, epochs, shard_by, each ("a
    part" or "everything"), per_replica_batch, batches_per_worker, short_batches_per_worker, equal_batches, dropped and
    filled (samples of an epoch that full batches leave out, and rows that fill them instead; null: not counted), spec
    (sentences on what its element_spec says otherwise than the script's), why.

    Args:
        module_text: the module `source.standalone` wrote.
        source: the user's live pipeline; `tuned` the edited form the module stands for.
        parameter: what the module takes as `source`.
        global_batch_size: the module's, or None where it does not batch.
        batch_size: rows of its batches, where these are the script's own.
        one_process: one pipeline feeds all replicas, where it is asked what a last batch costs.
        delivery: what the workers are to give; not SERVICE, see `service_coverage`.

    Raises:
        CannotExpress: the module does not run, or is not the tuned pipeline.
    """
    tuned = tuned or source.pipeline
    alike = delivery is Delivery.WHOLE
    if worker_counts is None:
        worker_counts = ALIKE_COUNTS if alike else WORKER_COUNTS
    with emitted(module_text, parameter=parameter, global_batch_size=global_batch_size, delivery=delivery) as make:
        alone = live.read(make(1, 0, 1))
        check_same(alone, source, tuned)
        rows: list[dict[str, object]] = []
        found: list[Coverage] = []
        how, why = None, ""
        wanted = None
        reads_all = shard_by == "element" and probe.reads_records(probe.of_elements(tuned))
        try:
            how = measure(source, alone, tuned, shard_by, most_bytes)
            wanted = expected(how, source, alone, tuned)
        except CannotReplay as error:
            how, why = None, error.message
        for workers in worker_counts:
            row: dict[str, object] = {
                "workers": workers, "shard_by": shard_by, "each": "everything" if alike else "a part"
            }  # fmt: skip
            made = [
                live.read(make(1, 0, 1) if alike else make(workers, worker, workers)) for worker in range(workers)
            ]
            check_pure(made if alike else ())
            row["spec"] = list(sentences(changes(source.dataset.element_spec, made[0].dataset.element_spec)))
            counts, covered = None, None
            if how is None or wanted is None:
                row |= {"elements": None, "missing": None, "duplicated": None, "why": why}
            else:
                seen = [epochs_of(how, one, wanted.key) for one in made]
                covered = cover(
                    wanted.epochs,
                    seen,
                    told_by=wanted.told_by,
                    counted=how.counted,
                    files=wanted.files,
                    each_everything=alike,
                    stored=wanted.stored,
                    reads_all=reads_all,
                )
                row |= _counted(how, wanted, seen, alike=alike)
                counts = [one.elements for one in covered.workers] if how.counted == "elements" else None
            if delivery is Delivery.PARTS:
                # One replica for each worker, and all replicas fed by one worker.
                shared = live.read(make(1, 0, workers))
                row |= of_replicas(
                    [*made, shared], counts, tuned, global_batch_size, one_process=one_process
                )
            else:
                row |= of_own_size(made, counts, tuned, batch_size)
            if covered is not None:
                found.append(_with_batches(covered, row, everything=reads_all))
            rows.append(row)
    return Counted(tuple(rows), tuple(found), how, wanted, reads_all)


def _with_batches(found: Coverage, row: dict[str, object], *, everything: bool) -> Coverage:
    """The coverage with what is known of each worker's batches, and of what it reads for them."""
    batches, short = row["batches_per_worker"], row["short_batches_per_worker"]
    workers = tuple(
        replace(
            one,
            batches=batches[index] if isinstance(batches, list) else None,
            short_batches=short[index] if isinstance(short, list) else None,
            read=found.elements if everything else one.elements,
        )
        for index, one in enumerate(found.workers)
    )
    return replace(found, workers=workers)


def _counted(
    how: Measure, wanted: Expected, seen: list[list[Counter[int]]], *, alike: bool
) -> dict[str, object]:
    missing = duplicated = 0
    for epoch, whole in enumerate(wanted.epochs):
        given = [worker[epoch] for worker in seen]
        for together in given if alike else [sum(given, Counter())]:
            missing = max(missing, (whole - together).total())
            duplicated = max(duplicated, (together - whole).total())
    return {
        "elements": wanted.epochs[0].total(),
        "missing": missing,
        "duplicated": duplicated,
        "per_worker": [worker[0].total() for worker in seen],
        "counted": how.counted,
        "epochs": len(wanted.epochs),
        "why": "",
    }
