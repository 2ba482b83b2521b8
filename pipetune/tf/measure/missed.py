"""Completes what the runtime counted: its counters vanish with an iterator, and some vanish between two readings.

An operator above a repeat is made anew each epoch, a reader inside an interleave with each file, and behind a
prefetch the source ends first. What passed through them is known from the operators that were seen longer: a map
or a repeat puts out what it takes in, an interleave what its readers put out, a batch a fixed part of it, and the
output as many elements as were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Node, Pipeline


@dataclass
class Counters:
    """What the runtime counted for one pipeline node, summed over the iterators it made and dropped."""

    seconds: float = 0.0
    elements: float = 0.0
    bytes: float = 0.0
    buffered: tuple[float, float] = (0.0, 0.0)  # elements, bytes; the most at any reading
    inner_seconds: float = 0.0  # of the readers it opened
    inner_elements: float = 0.0  # that those readers put out
    inside: dict[str, float] = field(default_factory=dict)  # seconds of the readers by the runtime's names

    def scaled(self, factor: float) -> Counters:
        """As if `factor` times as much had been seen; `inside` holds shares then."""
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
    """The counters of every node, those of dropped iterators made up for.

    Args:
        outputs: elements taken from the pipeline.
        repeated: the whole pipeline was made anew each epoch.
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
                factors[name] = 1.0  # above a cache nothing runs in the later epochs
            elif taken is None:
                factors[name] = max(factors.get(node.id, 1.0), factors.get(name, 1.0))
            elif through is not None:
                passed[name] = max(through * taken, passed.get(name) or 0.0)
    return {name: found.scaled(factors.get(name, 1.0)) for name, found in seen.items()}


def _taken(pipeline: Pipeline, node: Node, name: str) -> float | None:
    """Elements of an input that one element of `node` takes; None where only running it tells."""
    above = pipeline[name]
    if node.op in ("repeat", "take", "zip") or (facts(node.op).count is Count.ONE_TO_ONE and node.op != "cache"):
        return 1.0
    if node.op in ("batch", "padded_batch"):
        if node.cardinality > 0 and above.cardinality > 0:
            return above.cardinality / node.cardinality
        size = node.argument("batch_size")
        return float(size) if isinstance(size, int) else None
    return None
