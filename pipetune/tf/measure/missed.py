"""Completes the counters of the runtime: they are lost with an iterator, and some are lost between two readings.

An operator upstream of a repeat is rebuilt in each epoch, a reader inside an interleave with each file, and upstream
of a prefetch the source ends early. What passed through them is derived from operators that were seen longer: a map or
a repeat puts out as many elements as it takes in, an interleave as many as its readers, a batch a fixed fraction of
them, and the output as many as were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Node, Pipeline


@dataclass
class Counters:
    """The runtime's counters for one pipeline node, summed over the iterators that it created and dropped."""

    seconds: float = 0.0
    elements: float = 0.0
    bytes: float = 0.0
    buffered: tuple[float, float] = (0.0, 0.0)  # elements, bytes; maximum over all readings
    inner_seconds: float = 0.0  # of the readers it opened
    inner_elements: float = 0.0  # put out by those readers
    inside: dict[str, float] = field(default_factory=dict)  # seconds of the readers, by the runtime's names

    def scaled(self, factor: float) -> Counters:
        """Returns the counters as if `factor` times as much had been seen; `inside` then holds shares."""
        inner = self._inner_factor()
        seconds = self.seconds + self.inner_seconds * inner
        shares = {name: found * inner / seconds for name, found in self.inside.items()} if seconds else {}
        return Counters(
            seconds * factor, self.elements * factor, self.bytes * factor, self.buffered, inside=shares
        )

    def _inner_factor(self) -> float:
        return max(1.0, self.elements / self.inner_elements) if self.inner_elements else 1.0


def complete(
    pipeline: Pipeline, counters: Mapping[str, Counters], *, outputs: int, repeated: bool
) -> dict[str, Counters]:
    """Returns the counters of every node, corrected for iterators that were dropped.

    Args:
        pipeline: the pipeline that ran.
        counters: sums over all readings, by node id.
        outputs: elements taken from the pipeline.
        repeated: whether the whole pipeline was rebuilt in each epoch.
    """
    seen = {node.id: counters[node.id] for node in pipeline if node.id in counters}
    factors: dict[str, float] = {}
    passed: dict[str, float | None] = {pipeline.output.id: float(outputs) if repeated else None}
    for node in reversed(pipeline.nodes):
        own, through = seen.get(node.id), passed.get(node.id)
        if own is not None:
            if through is not None and own.elements > 0:
                factors[node.id] = max(1.0, through / own.elements)
            through = own.elements * factors.setdefault(node.id, 1.0)
        for name in node.inputs:
            taken = _taken(pipeline, node, name)
            if node.op == "cache":
                factors[name] = 1.0  # upstream of a cache nothing runs in later epochs
            elif taken is None:
                factors[name] = max(factors.get(node.id, 1.0), factors.get(name, 1.0))
            elif through is not None:
                passed[name] = max(through * taken, passed.get(name) or 0.0)
    return {name: found.scaled(factors.get(name, 1.0)) for name, found in seen.items()}


def _taken(pipeline: Pipeline, node: Node, name: str) -> float | None:
    """Elements of the input `name` that one element of `node` takes; None if only running it can tell."""
    above = pipeline[name]
    if node.op in ("repeat", "take", "zip") or (facts(node.op).count is Count.ONE_TO_ONE and node.op != "cache"):
        return 1.0
    if node.op in ("batch", "padded_batch"):
        if node.cardinality > 0 and above.cardinality > 0:
            return above.cardinality / node.cardinality
        size = node.argument("batch_size")
        return float(size) if isinstance(size, int) else None
    return None
