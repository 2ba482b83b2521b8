"""Live datasets that the calls of a pipeline have created besides it, whoever will consume them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pipetune.tf import private
from pipetune.tf.pipelines import live
from pipetune.tf.script import capture

_MOST_LINKS = 200  # datasets visited on the way to the last ones derived from one


def siblings(source: live.LivePipeline, known: Sequence[live.LivePipeline]) -> list[live.LivePipeline]:
    """Returns the pipelines of live datasets that share a call site with `source`, without those in `known`.

    Each pipeline is read from the last dataset that was derived from the shared one.
    """
    read = {id(one) for pipeline in (source, *known) for one in pipeline.datasets.values()}
    sites = {site for one in source.datasets.values() if (site := capture.site_of(one)) is not None}
    recorded = capture.alive()
    readers: dict[int, list[Any]] = defaultdict(list)
    for one in recorded:
        for above in private.inputs(one):
            readers[id(above)].append(one)
    last: dict[int, Any] = {}
    for one in recorded:
        if id(one) not in read and capture.site_of(one) in sites:
            last |= {id(end): end for end in _ends(one, readers) if id(end) not in read}
    return [live.read(one, name=_name(one)) for one in last.values()]


def _ends(dataset: Any, readers: dict[int, list[Any]]) -> list[Any]:
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
    place = capture.location(dataset)
    return f"the dataset made at {place}" if place is not None else "another dataset"
