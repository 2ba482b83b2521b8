"""Consecutive maps that could be fused into one: same arguments, and functions without state."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.pipeline import Node, Pipeline

_ALIKE = ("num_parallel_calls", "deterministic", "synchronous", "use_unbounded_threadpool")


def map_runs(pipeline: Pipeline) -> Iterator[tuple[Node, ...]]:
    """Yields every maximal run of two or more maps, most upstream first, with no other consumer in between."""
    runs: dict[str, tuple[Node, ...]] = {}
    for node in pipeline:
        if node.op != "map" or len(node.inputs) != 1 or node.function is None or not node.function.stateless:
            continue
        above = runs.get(node.inputs[0], ())
        joins = above and len(pipeline.consumers(above[-1].id)) == 1 and _alike(above[-1], node)
        if joins:
            del runs[above[-1].id]
        runs[node.id] = (*above, node) if joins else (node,)
    yield from (run for run in runs.values() if len(run) > 1)


def _alike(one: Node, other: Node) -> bool:
    return all(one.argument(name) == other.argument(name) for name in _ALIKE)
