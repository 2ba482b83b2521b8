"""Proves a module for a tf.data service by running one: a dispatcher and workers on this machine, elements counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Delivery
from pipetune.tf.pipelines import live
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.batch_checks import of_own_size
from pipetune.tf.standalone.counting import MOST_BYTES, Measure, count_epoch, expected, measure
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
) -> tuple[dict[str, object], ...]:
    """What a service with so many workers gives in an epoch, in the keys of `coverage.check`.

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
            wanted = expected(how, source, made, tuned)[0]
            if wanted.total() > MOST_FETCHED:
                raise CannotReplay(f"More than {MOST_FETCHED} elements are not fetched from a service here.")
        except CannotReplay as error:
            unknown = {"elements": None, "missing": None, "duplicated": None, "why": error.message}
            return tuple(_row(workers, splits) | batch | unknown for workers in worker_counts)
        return tuple(
            _row(workers, splits) | batch | _count(how, wanted, made, workers=workers, splits=splits)
            for workers in worker_counts
        )


def _row(workers: int, splits: bool) -> dict[str, object]:
    return {"workers": workers, "shard_by": "", "each": "a part" if splits else "everything"}


def _count(
    how: Measure, wanted: Counter[int], made: live.LivePipeline, *, workers: int, splits: bool
) -> dict[str, object]:
    policy = _service.ShardingPolicy.DYNAMIC if splits else _service.ShardingPolicy.OFF
    times = 1 if splits else workers
    whole = Counter({fingerprint: times * count for fingerprint, count in wanted.items()})
    with running_service(workers) as address:
        groups = probe.fingerprints(made, how.reduce(made.pipeline)).batch(_GROUP)
        fetched = groups.apply(_service.distribute(policy, address, compression=None))
        given = count_epoch(fetched.unbatch())
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
