"""Proves that a stand-alone module delivers every element once per epoch, by running it as every worker, or on the
workers of a service that is started in this process; and that indices restore the source order of what several workers
deliver.

The module is called with the InputContext of each worker. Its datasets are reduced to the operators that decide which
elements are delivered (`numbering.of_elements`), and these elements are compared with those of the user's own pipeline
(`counting`). Then the complete pipeline of each worker is run for one batch.

A fingerprint of each row takes the place of predictions. If a pipeline draws random numbers, or pads rows to the
longest one of their batch, rows differ from run to run, and only their indices are compared.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import Coverage, DeliveryMode, ModuleCheck
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.emit.kind import Kind, Standalone
from pipetune.distributed.emit.sharding import BATCHES
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.batch_checks import changes, check_shapes, of_own_size, of_replicas, sentences
from pipetune.distributed.verify.counting import (
    GROUP,
    Counted,
    Expectation,
    Measure,
    epochs_of,
    expect,
    groups,
    running,
)
from pipetune.distributed.verify.emitted import check_same, emitted, fitting_batch_size, opened
from pipetune.model.coverage import worst_coverage
from pipetune.pipelines import live

WORKER_COUNTS = (2, 3, 4)  # numbers of workers to run, by judgement: more would take longer
ALIKE_COUNTS = (2,)  # if all workers receive the same: another call of the module must build the same pipeline


def count(
    kind: Kind, module: Standalone, source: live.LivePipeline, tuned: Pipeline, *, parameter: Any = None
) -> Counted:
    """Returns what the workers receive, for several numbers of workers.

    Args:
        kind: the kind of the module; not one for a tf.data service, for which there is `check_service`.
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


SERVICE_WORKER_COUNTS = (2,)  # numbers of workers to run, by judgement: each starts its own servers
MOST_FETCHED = 50_000  # elements; each request to the dispatcher takes a fraction of a millisecond
_GROUP = 256  # fingerprints that a worker sends at a time

_service = tf.data.experimental.service


def check_service(module: Standalone, source: live.LivePipeline, tuned: Pipeline, *, parameter: Any = None) -> Counted:
    """Returns what a tf.data service delivers in an epoch, for several numbers of workers.

    Each worker should deliver all of the data where `module.splits` is false. Arguments and errors are those of
    `coverage.count`.
    """
    splits = module.splits
    with emitted(module.text, delivery=DeliveryMode.SERVICE, parameter=parameter) as make:
        made = live.read(make(1, 0, 1))
        check_same(made, source, tuned)
        spec = tuple(sentences(changes(source.dataset.element_spec, made.dataset.element_spec)))
        each = ModuleCheck(1, "a part" if splits else "everything", spec=spec)
        each = of_own_size(each, [made], None, tuned, module.batch_size)
        try:
            expectation = expect(source, made, tuned, "", numbers=False)
            how, epoch = expectation.how, expectation.epochs[0]
            if epoch.total() > MOST_FETCHED:
                raise CannotReplay(f"More than {MOST_FETCHED} elements are not fetched from a service here.")
        except CannotReplay as error:
            return Counted(
                tuple(replace(each, workers=workers, why=error.message) for workers in SERVICE_WORKER_COUNTS)
            )
        checks, found = [], []
        for workers in SERVICE_WORKER_COUNTS:
            with running_service(workers) as address:
                given = fetched(how, made, address=address, splits=splits)
            times = 1 if splits else workers
            whole = _each_so_often(epoch, times)
            check = replace(
                each,
                workers=workers,
                elements=epoch.total(),
                missing=(whole - given).total(),
                duplicated=(given - whole).total(),
                counted=how.counted,
                epochs=1,
            )
            checks.append(check)
            found.append(covered(expectation, given, servers=workers, times=times))
        return Counted(tuple(checks), tuple(found), expectation)


def _each_so_often(epoch: Counter[int], times: int) -> Counter[int]:
    return Counter({key: times * count for key, count in epoch.items()})


def fetched(how: Measure, made: live.LivePipeline, *, address: str, splits: bool) -> Counter[int]:
    """Returns how often the tf.data service at `address` delivers each fingerprint in an epoch.

    Raises:
        CannotExpress: the pipeline fails.
        CannotReplay: an operator cannot be rebuilt, or there are too many elements.
    """
    policy = _service.ShardingPolicy.DYNAMIC if splits else _service.ShardingPolicy.OFF
    together = numbering.fingerprints(made, how.reduce(made.pipeline)).batch(_GROUP)
    served = together.apply(_service.distribute(policy, address, compression=None)).unbatch()
    return Counter(key for group in groups(served.batch(GROUP)) for key in group.tolist())


def covered(expectation: Expectation, given: Counter[int], *, servers: int, times: int) -> Coverage:
    """Returns the coverage of one training process that reads from a tf.data service with `servers` workers.

    Args:
        given: how often each fingerprint was delivered.
        times: how often the service should deliver each element in an epoch.
    """
    (epoch, *_), stored = expectation.epochs, expectation.stored
    found = worst_coverage(
        [_each_so_often(epoch, times)],
        [[given]],
        told_by=expectation.told_by,
        counted=expectation.how.counted,
        stored=stored,
        reads_all=True,
    )
    if stored is not None:  # the servers together read all files once, or each server reads all of them
        (share,) = found.workers
        read = stored.read_bytes(epoch, {}, everything=True)
        found = replace(found, workers=(replace(share, read_bytes=None if read is None else times * read),))
    if times == 1:
        return replace(found, servers=servers)
    never, twice, oftener = (-(-count // times) for count in (found.never, found.twice, found.oftener))
    elements = found.elements // times
    return replace(
        found,
        elements=elements,
        never=never,
        once=max(0, elements - never - twice - oftener),
        twice=twice,
        oftener=oftener,
        servers=servers,
        each_everything=True,
    )


@contextmanager
def running_service(workers: int) -> Iterator[str]:
    """Context manager: runs a tf.data service in this process, and yields the address of its dispatcher."""
    dispatcher = _service.DispatchServer(_service.DispatcherConfig(port=0))
    address = dispatcher.target.partition("://")[2]
    config = _service.WorkerConfig(dispatcher_address=address)
    servers = [_service.WorkerServer(config) for _ in range(workers)]
    try:
        yield dispatcher.target
    finally:
        for server in servers:
            server._stop()
        dispatcher._stop()


INDEX_WORKER_COUNTS = (2, 3)  # numbers of workers to run, by judgement: more would take longer
INDEX_ALIKE_COUNTS = (2,)  # if all workers run the same pipeline, or a service has to be started for them
_DATASET_SECONDS = 4.0  # limit for reading one dataset to its end
_MOST_ROWS = 20_000  # rows compared, at most; chosen by judgement: longer data is left unchecked, more takes longer

Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # index, fingerprint
Batches = list[tuple[Any, Any]]  # index and fingerprint of the rows of each batch


class NotRun(Exception):
    """The variant cannot be run, or not to its end; the message is the end of a sentence."""


def check_order(
    module_text: str,
    *,
    tuned: Pipeline,
    delivery: DeliveryMode,
    parameter: Any = None,
    global_batch_size: int | None = None,
    epoch_batches: int | None = None,
) -> str:
    """Runs the variant of a module with indices as several workers, and returns a sentence on the result.

    Args:
        tuned: the pipeline that the module implements; other arguments are as in `emitted`.
        epoch_batches: number of batches in which an endless worker delivers all data; None if unknown.

    Raises:
        CannotExpress: the order is not restored, or the variant does not run.
    """
    whole = delivery is DeliveryMode.WHOLE
    if whole and epoch_batches is None:
        return "Whether indices restore the order was not run: how many steps an epoch has was not counted."
    counts = INDEX_ALIKE_COUNTS if delivery in (DeliveryMode.WHOLE, DeliveryMode.SERVICE) else INDEX_WORKER_COUNTS
    with emitted(
        module_text, delivery=delivery, parameter=parameter, global_batch_size=global_batch_size, indexed=True
    ) as make:
        form = _Form(opened(), tuned, most=epoch_batches if whole else None)
        try:
            alone = form.in_order(form.batches(make(1, 0, 1)))
            for workers in counts:
                if delivery is DeliveryMode.SERVICE:
                    with running_service(workers) as address:
                        served = _service.distribute(_service.ShardingPolicy.DYNAMIC, address, compression=None)
                        given = form.batches(make(1, 0, 1).apply(served))
                else:
                    parts = [make(1, 0, 1) if whole else make(workers, one, workers) for one in range(workers)]
                    given = list(chain.from_iterable(map(form.batches, parts)))
                together = form.in_order(given[::-1])
                _compare(*(_in_common(alone, together) if whole else (alone, together)), workers)
        except NotRun as reason:
            return f"Whether indices restore the order was not run: {reason}."
    shown, what = " and ".join(map(str, counts)), "rows" if form.steady else "indices"
    return f"With {shown} workers indices put all {len(alone[0]):,} {what} back into the order of the source."


class _Form:
    """Reads indices and fingerprints from the datasets of a module."""

    def __init__(self, module: Any, tuned: Pipeline, *, most: int | None) -> None:
        """Takes the module, its pipeline, and the most batches to read from an endless worker; None: all batches."""
        self._module, self._most = module, most
        self._batched = any(node.op in BATCHES for node in tuned)
        padded = any(node.op == "padded_batch" for node in tuned)
        drawn = any(node.function is not None and not node.function.stateless for node in tuned)
        self.steady = not padded and not drawn  # a row does not depend on the run or on its batch

    def batches(self, dataset: Any) -> Batches:
        """Returns index and fingerprint of the rows of each batch."""
        found: Batches = []
        end, seen = time.monotonic() + _DATASET_SECONDS, 0
        with running():
            for index, fingerprint, rows in self._looked_at(dataset).as_numpy_iterator():
                if rows != np.size(index):
                    raise CannotExpress(f"What stands behind the batch makes {rows} rows of {np.size(index)}.")
                seen += int(rows)
                if seen > _MOST_ROWS or time.monotonic() > end:
                    raise NotRun("the data is too long")
                found.append((index, fingerprint))
        return found

    def in_order(self, batches: Batches) -> Rows:
        """Returns index and fingerprint of all rows as ordered by the module's own function `in_order`."""
        if not batches:
            raise CannotExpress("The form with indices gives nothing.")
        indices = [index for index, _ in batches]
        both = self._module.in_order([{"index": index, "row": row} for index, row in batches], indices)
        if self._most is None and len(both["index"]) < sum(int(np.sum(index >= 0)) for index in indices):
            raise CannotExpress("Two elements have one index.")
        return both["index"], both["row"]

    def _looked_at(self, dataset: Any) -> Any:
        parts = tf.nest.flatten(dataset.element_spec[1])
        dense = [isinstance(part, tf.TensorSpec) for part in parts]
        self.steady = self.steady and all(dense)

        def look(index: Any, element: Any) -> tuple[Any, Any, Any]:
            rows = tf.size(index)
            if self._batched and any(dense):
                rows = tf.shape(tf.nest.flatten(element)[dense.index(True)])[0]
            if not self.steady:
                return index, index, rows
            if self._batched:
                return index, tf.map_fn(numbering.fingerprint, element, fn_output_signature=tf.int64), rows
            return index, numbering.fingerprint(element), rows

        try:
            looked_at = dataset.map(tf.autograph.experimental.do_not_convert(look))
        except (TypeError, ValueError, NotImplementedError) as error:
            raise NotRun("its elements cannot be compared") from error
        return looked_at if self._most is None else looked_at.take(self._most)


def _in_common(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """Returns the rows that both readings have: a fixed number of steps of an endless dataset may miss some."""
    _, first, second = np.intersect1d(one[0], other[0], return_indices=True)
    return (one[0][np.sort(first)], one[1][np.sort(first)]), (other[0][np.sort(second)], other[1][np.sort(second)])


def _compare(alone: Rows, together: Rows, workers: int) -> None:
    for one, other in zip(alone, together, strict=True):
        if not np.array_equal(one, other):
            raise CannotExpress(f"With {workers} workers the indices do not give the order of one back.")
