"""Other live datasets of the script that one of its calls has made: a helper that builds training and validation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pipetune import tensorflow_private
from pipetune.pipelines import call_sites, live

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
            last |= {id(end): end for end in _final_datasets(one, readers)}
    return [live.read(one, name=_name(one)) for one in last.values()]


def _read_by(pipelines: Sequence[live.LivePipeline]) -> set[int]:
    """Returns the ids of the datasets of these pipelines, with the wrappers between them that are no operators."""
    waiting = [one for pipeline in pipelines for one in pipeline.datasets.values()]
    found = set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in found:
            parts = tensorflow_private.with_implementation(one)
            found.update(map(id, parts))
            waiting += [above for part in parts for above in tensorflow_private.inputs(part)]
    return found


def _final_datasets(dataset: Any, readers: dict[int, list[Any]]) -> list[Any]:
    """Returns the last datasets derived from a dataset, on all paths; the dataset itself if nothing was."""
    found, waiting, seen = [], [dataset], set[int]()
    while waiting and len(seen) < _MOST_LINKS:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        below = readers.get(id(one), [])
        waiting += below
        if not below:
            found.append(one)
    return found


def _name(dataset: Any) -> str:
    place = call_sites.location(dataset)
    return f"the dataset created at {place}" if place is not None else "another dataset"
