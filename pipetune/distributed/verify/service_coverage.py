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
from pipetune.distributed.emit.kind import Standalone
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.batch_checks import changes, of_own_size, sentences
from pipetune.distributed.verify.counting import GROUP, Counted, Expectation, Measure, expect, groups
from pipetune.distributed.verify.emitted import check_same, emitted
from pipetune.model.coverage import worst_coverage
from pipetune.pipelines import live

WORKER_COUNTS = (2,)  # numbers of workers to run, by judgement: each starts its own servers
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
            return Counted(tuple(replace(each, workers=workers, why=error.message) for workers in WORKER_COUNTS))
        checks, found = [], []
        for workers in WORKER_COUNTS:
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
