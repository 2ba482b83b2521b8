"""Other live datasets of the script that one of its calls has made: a helper that builds training and validation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any

from pipetune import tensorflow_private
from pipetune.pipelines import call_sites, live
from pipetune.pipelines.reachability import reachable

_MOST_LINKS = 200  # datasets visited in search of the last ones derived from a dataset, at most


def siblings(source: live.LivePipeline, known: Sequence[live.LivePipeline]) -> list[live.LivePipeline]:
    """Returns the pipelines of live datasets that share a call site with `source`, without those in `known`.

    Each pipeline is read from the last dataset that was derived from the shared one. What is derived from a known
    pipeline itself is none: a strategy divides the batches of the dataset that `fit` receives by datasets of its own.
    """
    read = _read_by([source, *known])
    sites = {site for one in source.datasets.values() if (site := call_sites.site_of(one)) is not None}
    recorded = call_sites.live_datasets()
    readers: dict[int, list[Any]] = defaultdict(list)
    for one in recorded:
        for above in tensorflow_private.inputs(one) if id(one) not in read else ():
            readers[id(above)].append(one)
    last: dict[int, Any] = {}
    for one in recorded:
        if id(one) not in read and call_sites.site_of(one) in sites:
            derived = reachable([one], lambda above: readers.get(id(above), []))
            last |= {id(end): end for end in islice(derived, _MOST_LINKS) if id(end) not in readers}
    return [live.read(one, name=_name(one)) for one in last.values()]


def _read_by(pipelines: Sequence[live.LivePipeline]) -> set[int]:
    """Returns the ids of the datasets of these pipelines, with the wrappers between them that are no operators."""

    def read_directly(dataset: Any) -> list[Any]:
        parts = tensorflow_private.with_implementation(dataset)
        return [*parts, *(above for part in parts for above in tensorflow_private.inputs(part))]

    ends = [one for pipeline in pipelines for one in pipeline.datasets.values()]
    return set(map(id, reachable(ends, read_directly)))


def _name(dataset: Any) -> str:
    place = call_sites.location(dataset)
    return f"the dataset created at {place}" if place is not None else "another dataset"
