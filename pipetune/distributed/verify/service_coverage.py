"""Proves a module for a tf.data service by running a dispatcher and workers in this process and counting elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.distribution import Coverage, DeliveryMode, ModuleCheck
from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.batch_checks import changes, of_own_size, sentences
from pipetune.distributed.verify.counting import (
    MOST_BYTES,
    Counted,
    Expectation,
    Measure,
    count_epoch,
    expected,
    measure,
)
from pipetune.distributed.verify.emitted import check_same, emitted
from pipetune.model.coverage import worst_coverage
from pipetune.pipelines import live

WORKER_COUNTS = (2,)  # numbers of workers to run, by judgement: each starts its own servers
MOST_FETCHED = 50_000  # elements; each request to the dispatcher takes a fraction of a millisecond
_GROUP = 256  # fingerprints that a worker sends at a time

_service = tf.data.experimental.service


def check_service(
    module_text: str,
    source: live.LivePipeline,
    *,
    tuned: Pipeline,
    splits: bool,
    parameter: Any = None,
    batch_size: int | None = None,
) -> Counted:
    """Returns what a tf.data service delivers in an epoch, for several numbers of workers.

    Args:
        module_text: source text of the module.
        source: the user's live pipeline.
        tuned: the pipeline that the module implements.
        splits: whether the dispatcher divides the data; else each worker should deliver all of it.
        parameter: value of the module's argument `source`.
        batch_size: rows of its batches; None without batches.

    Raises:
        CannotExpress: the module does not run, or is not the tuned pipeline.
    """
    with emitted(module_text, parameter=parameter, delivery=DeliveryMode.SERVICE) as make:
        made = live.read(make(1, 0, 1))
        check_same(made, source, tuned)
        spec = tuple(sentences(changes(source.dataset.element_spec, made.dataset.element_spec)))
        each = ModuleCheck(1, "a part" if splits else "everything", spec=spec)
        each = of_own_size(each, [made], None, tuned, batch_size)
        try:
            how = measure(source, made, tuned, "", MOST_BYTES)
            expectation = Expectation(how, expected(how, source, made, tuned, numbers=False))
            epoch = expectation.expected.epochs[0]
            if epoch.total() > MOST_FETCHED:
                raise CannotReplay(f"More than {MOST_FETCHED} elements are not fetched from a service here.")
        except CannotReplay as error:
            return Counted(tuple(replace(each, workers=workers, why=error.message) for workers in WORKER_COUNTS))
        checks, found = [], []
        for workers in WORKER_COUNTS:
            with running_service(workers) as address:
                given = fetched(how, made, address=address, splits=splits)
            times = 1 if splits else workers
            checks.append(_with_counts(replace(each, workers=workers), epoch, given, how, times=times))
            found.append(covered(expectation, given, servers=workers, times=times))
        return Counted(tuple(checks), tuple(found), expectation)


def fetched(how: Measure, made: live.LivePipeline, *, address: str, splits: bool) -> Counter[int]:
    """Returns how often a tf.data service delivers each fingerprint in an epoch.

    Args:
        how: how elements are counted.
        made: the pipeline of the module.
        address: the dispatcher, as "grpc://host:port".
        splits: whether the dispatcher divides the data.

    Raises:
        CannotExpress: the pipeline fails.
        CannotReplay: an operator cannot be rebuilt, or there are too many elements.
    """
    policy = _service.ShardingPolicy.DYNAMIC if splits else _service.ShardingPolicy.OFF
    together = numbering.fingerprints(made, how.reduce(made.pipeline)).batch(_GROUP)
    return count_epoch(together.apply(_service.distribute(policy, address, compression=None)).unbatch())


def covered(expectation: Expectation, given: Counter[int], *, servers: int, times: int) -> Coverage:
    """Returns the coverage of one training process that reads from a tf.data service.

    Args:
        expectation: the expected elements.
        given: how often each fingerprint was delivered.
        servers: number of workers of the service.
        times: how often the service should deliver each element in an epoch.
    """
    whole = Counter({key: times * count for key, count in expectation.expected.epochs[0].items()})
    stored = expectation.expected.stored
    found = worst_coverage(
        [whole],
        [[given]],
        told_by=expectation.expected.told_by,
        counted=expectation.how.counted,
        stored=stored,
        reads_all=True,
    )
    if stored is not None:  # the servers together read all files once, or each server reads all of them
        (share,) = found.workers
        read = stored.read_bytes(expectation.expected.epochs[0], {}, everything=True)
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


def _with_counts(
    check: ModuleCheck, expected: Counter[int], given: Counter[int], how: Measure, *, times: int
) -> ModuleCheck:
    """Returns the check with the number of missing elements, and of copies beyond `times` of each element."""
    whole = Counter({fingerprint: times * count for fingerprint, count in expected.items()})
    return replace(
        check,
        elements=expected.total(),
        missing=(whole - given).total(),
        duplicated=(given - whole).total(),
        counted=how.counted,
        epochs=1,
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
