"""Proves a module for a tf.data service by running one: a dispatcher and workers on this machine, elements counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.coverage import Coverage
from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Delivery
from pipetune.model.coverage import coverage
from pipetune.tf.pipelines import live
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.batch_checks import of_own_size
from pipetune.tf.standalone.counting import MOST_BYTES, Measure, Wanted, count_epoch, expected, measure
from pipetune.tf.standalone.coverage import Counted
from pipetune.tf.standalone.element_specs import changes, sentences
from pipetune.tf.standalone.emitted import check_same, emitted

WORKER_COUNTS = (2,)
MOST_FETCHED = 50_000  # elements; each question to the dispatcher takes a fraction of a millisecond
_GROUP = 256  # fingerprints that a worker sends at once

_service = tf.data.experimental.service


def check_service(
    module_text: str,
    source: live.LivePipeline,
    *,
    tuned: Pipeline,
    splits: bool,
    parameter: Any = None,
    batch_size: int | None = None,
    worker_counts: Sequence[int] = WORKER_COUNTS,
    most_bytes: int = MOST_BYTES,
) -> Counted:
    """What a service with so many workers gives in an epoch, in the keys of `coverage.count`.

    Args:
        splits: whether the dispatcher divides the data; else each worker is to give all of it.

    Raises:
        CannotExpress: the module does not run, or is not the tuned pipeline.
    """
    with emitted(module_text, parameter=parameter, delivery=Delivery.SERVICE) as make:
        made = live.read(make(1, 0, 1))
        check_same(made, source, tuned)
        batch = of_own_size([made], None, tuned, batch_size)
        batch["spec"] = list(sentences(changes(source.dataset.element_spec, made.dataset.element_spec)))
        try:
            how = measure(source, made, tuned, "", most_bytes)
            known = expected(how, source, made, tuned, numbers=False)
            wanted = known.epochs[0]
            if wanted.total() > MOST_FETCHED:
                raise CannotReplay(f"More than {MOST_FETCHED} elements are not fetched from a service here.")
        except CannotReplay as error:
            unknown = {"elements": None, "missing": None, "duplicated": None, "why": error.message}
            return Counted(tuple(_row(workers, splits) | batch | unknown for workers in worker_counts))
        rows, found = [], []
        for workers in worker_counts:
            with running_service(workers) as address:
                given = fetched(how, made, address=address, splits=splits)
            times = 1 if splits else workers
            rows.append(_row(workers, splits) | batch | _count(wanted, given, how, times=times))
            found.append(covered(Wanted(how, known), given, servers=workers, times=times))
        return Counted(tuple(rows), tuple(found), how, known)


def _row(workers: int, splits: bool) -> dict[str, object]:
    return {"workers": workers, "shard_by": "", "each": "a part" if splits else "everything"}


def fetched(how: Measure, made: live.LivePipeline, *, address: str, splits: bool) -> Counter[int]:
    """How often each fingerprint comes in an epoch of the service whose dispatcher listens at `address`."""
    policy = _service.ShardingPolicy.DYNAMIC if splits else _service.ShardingPolicy.OFF
    together = probe.fingerprints(made, how.reduce(made.pipeline)).batch(_GROUP)
    return count_epoch(together.apply(_service.distribute(policy, address, compression=None)).unbatch())


def covered(wanted: Wanted, given: Counter[int], *, servers: int, times: int) -> Coverage:
    """What a training process got of a service that is to give everything so many times: an element by its copies."""
    whole = Counter({key: times * count for key, count in wanted.expected.epochs[0].items()})
    stored = wanted.expected.stored
    found = coverage(
        [whole], [[given]], told_by=wanted.expected.told_by, counted=wanted.how.counted, stored=stored, reads_all=True
    )
    if stored is not None:  # by its servers together: each the files it is given, or all
        (share,) = found.workers
        read = stored.read(wanted.expected.epochs[0], {}, everything=True)
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


def _count(wanted: Counter[int], given: Counter[int], how: Measure, *, times: int) -> dict[str, object]:
    """Those of the wanted that are missing, and those that came again, where all are to come so many times."""
    whole = Counter({fingerprint: times * count for fingerprint, count in wanted.items()})
    return {
        "elements": wanted.total(),
        "missing": (whole - given).total(),
        "duplicated": (given - whole).total(),
        "counted": how.counted,
        "epochs": 1,
        "why": "",
    }


@contextmanager
def running_service(workers: int) -> Iterator[str]:
    """A service with so many workers in this process; the address of its dispatcher."""
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
