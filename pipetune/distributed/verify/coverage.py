"""Proves that a stand-alone module delivers every element once per epoch, by running it as every worker.

The module is called with the InputContext of each worker. Its datasets are reduced to the operators that decide which
elements are delivered (`numbering.of_elements`), and these elements are compared with those of the user's own pipeline
(`counting`). Then the complete pipeline of each worker is run for one batch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.distribution import Coverage, DeliveryMode, ModuleCheck
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.emit.kind import Kind, Standalone
from pipetune.distributed.verify.batch_checks import changes, check_shapes, of_own_size, of_replicas, sentences
from pipetune.distributed.verify.counting import Counted, Expectation, epochs_of, expect, running
from pipetune.distributed.verify.emitted import check_same, emitted, fitting_batch_size
from pipetune.model.coverage import worst_coverage
from pipetune.pipelines import live

WORKER_COUNTS = (2, 3, 4)  # numbers of workers to run, by judgement: more would take longer
ALIKE_COUNTS = (2,)  # if all workers receive the same: another call of the module must build the same pipeline


def count(
    kind: Kind, module: Standalone, source: live.LivePipeline, tuned: Pipeline, *, parameter: Any = None
) -> Counted:
    """Returns what the workers receive, for several numbers of workers.

    Args:
        kind: the kind of the module; not one for a tf.data service, for which there is `service_coverage`.
        source: the user's live pipeline.
        tuned: the pipeline that the module implements.
        parameter: value of the module's argument `source`.

    Raises:
        CannotExpress: the module does not run, or is not the tuned pipeline.
    """
    identical = kind.delivery is DeliveryMode.WHOLE
    rows = module.global_batch_size
    with emitted(module.text, delivery=kind.delivery, parameter=parameter, global_batch_size=rows) as make:
        alone = live.read(make(1, 0, 1))
        check_same(alone, source, tuned)
        checks: list[ModuleCheck] = []
        found: list[Coverage] = []
        expectation, why = None, ""
        try:
            expectation = expect(source, alone, tuned, module.shard_by)
        except CannotReplay as error:
            why = error.message
        for workers in ALIKE_COUNTS if identical else WORKER_COUNTS:
            made = [live.read(make(1, 0, 1) if identical else make(workers, one, workers)) for one in range(workers)]
            if identical and len({one.pipeline.fingerprint for one in made}) > 1:  # a restart would change the data
                raise CannotExpress(
                    "Called again, the function makes another pipeline, so a worker cannot be replaced."
                )
            check_shapes(alone.dataset.element_spec, made[0].dataset.element_spec)
            each = "everything" if identical else "a part"
            spec = tuple(sentences(changes(source.dataset.element_spec, made[0].dataset.element_spec)))
            check = ModuleCheck(workers, each, module.shard_by, spec, why=why)
            counts, covered = None, None
            if expectation is not None:
                seen = [epochs_of(expectation.how, one, expectation.key) for one in made]
                covered = worst_coverage(
                    expectation.epochs,
                    seen,
                    told_by=expectation.told_by,
                    counted=expectation.how.counted,
                    files=expectation.files,
                    each_everything=identical,
                    stored=expectation.stored,
                    reads_all=expectation.reads_all,
                )
                check = _with_counts(check, expectation, seen)
                counts = [one.elements for one in covered.workers] if expectation.how.counted == "elements" else None
            if kind.delivery is DeliveryMode.PARTS:
                # One worker per replica, and one worker that feeds all replicas.
                shared = live.read(make(1, 0, workers))
                check = of_replicas(check, [*made, shared], counts, tuned, rows, one_process=kind.one_process)
            else:
                check = of_own_size(check, made, counts, tuned, module.batch_size)
            if expectation is not None and covered is not None:
                found.append(_with_batches(covered, check, everything=expectation.reads_all))
            checks.append(check)
    return Counted(tuple(checks), tuple(found), expectation)


def _with_batches(found: Coverage, check: ModuleCheck, *, everything: bool) -> Coverage:
    """Returns the coverage with each worker's number of batches, and the number of elements that it reads."""
    batches, short = check.batches_per_worker, check.short_batches_per_worker
    workers = tuple(
        replace(
            one,
            batches=None if batches is None else batches[index],
            short_batches=None if short is None else short[index],
            read=found.elements if everything else one.elements,
        )
        for index, one in enumerate(found.workers)
    )
    return replace(found, workers=workers)


def _with_counts(check: ModuleCheck, expectation: Expectation, seen: list[list[Counter[int]]]) -> ModuleCheck:
    missing = duplicated = 0
    for epoch, whole in enumerate(expectation.epochs):
        given = [worker[epoch] for worker in seen]
        for together in given if check.everything else [sum(given, Counter())]:
            missing = max(missing, (whole - together).total())
            duplicated = max(duplicated, (together - whole).total())
    return replace(
        check,
        elements=expectation.epochs[0].total(),
        missing=missing,
        duplicated=duplicated,
        per_worker=tuple(worker[0].total() for worker in seen),
        counted=expectation.how.counted,
        epochs=len(expectation.epochs),
    )


_SECONDS = 3.0  # for the parts of all workers; longer data is checked up to that point
_WORKERS = 2  # the smallest number that divides the data, by judgement: more would only take longer
_GLANCE = 8  # batches to check if the number of elements is unknown


def check_fill(module_text: str, *, global_batch_size: int, elements: int | None, parameter: Any = None) -> str:
    """Runs a module with `fill=True` as two workers and as one that feeds two replicas; returns the result in words.

    Args:
        elements: number of elements in an epoch; None if they were not counted or the data repeats.

    Raises:
        CannotExpress: a batch is not full, the mask does not match the data, or the module does not run.
    """
    rows = fitting_batch_size(global_batch_size, _WORKERS) // _WORKERS
    size = global_batch_size
    with emitted(
        module_text, delivery=DeliveryMode.PARTS, parameter=parameter, global_batch_size=size, fill=True
    ) as make:
        apart = [make(_WORKERS, worker, _WORKERS) for worker in range(_WORKERS)]
        complete = elements is not None
        for made in (apart, [make(1, 0, _WORKERS)]):
            batches = seen = 0
            end = time.monotonic() + _SECONDS
            for one in made:
                for mask in _masks(one if elements is not None else one.take(_GLANCE), end):
                    if len(mask) != rows:
                        raise CannotExpress(f"A batch that should be full has {len(mask)} of {rows} rows.")
                    batches, seen = batches + 1, seen + int(mask.sum())
            whole = elements is not None and time.monotonic() < end
            if whole and seen != elements:
                raise CannotExpress(f"Of {elements} elements {seen} stand in full batches.")
            if whole and len(made) == 1 and batches % _WORKERS:
                raise CannotExpress(f"{batches} batches are no whole steps of {_WORKERS} replicas.")
            complete = complete and whole
    if not complete:
        return f"With fill=True batches are full, as {_WORKERS} workers and as {_WORKERS} replicas of one."
    return (
        f"With fill=True all {elements:,} elements came in full batches, as {_WORKERS} workers and as {_WORKERS} "
        "replicas of one."
    )


def _masks(dataset: Any, end: float) -> Iterator[Any]:
    shapes = [part.shape for part in tf.nest.flatten(dataset.element_spec) if isinstance(part, tf.TensorSpec)]
    if None in {dimension for shape in shapes for dimension in shape[:1]}:
        raise CannotExpress("The number of rows in a filled batch is not fixed.")
    with running():
        for mask in dataset.map(lambda _, mask: mask).as_numpy_iterator():
            yield mask
            if time.monotonic() > end:
                return
