"""Measures the cost of rewritten functions: on whole batches, with an edited graph, or split in two."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipetune import tensorflow_private
from pipetune.core.edits import Remove, ReplaceSource, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import RunFailed
from pipetune.pipelines import live, map_functions
from pipetune.pipelines.function_splitting import SplittableFunction
from pipetune.pipelines.replay import replay
from pipetune.probes.batches import downstream_batch, map_two_parts
from pipetune.probes.decoding import decode_at_scale
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators

_ALTERNATING_SECONDS = 0.05  # of an average pass, at least
_ALTERNATING_ROUNDS = 5  # by judgement: fewer make the median depend on one disturbed round, more take longer
_MOST_SECONDS = 0.6  # of all rounds together; at least two are run. By judgement: it decides which plan is tried first


def alternating_cpu_seconds(
    dataset: Any, elements: int, make_variants: Callable[[Any], Sequence[Any]]
) -> tuple[list[tuple[float, ...]], int]:
    """Returns the CPU seconds of the process for one pass through each variant, round by round.

    Args:
        dataset: the input of the variants.
        elements: number of elements of `dataset` that are kept in memory, at most.
        make_variants: builds the variants from a dataset that repeats the elements kept.

    Returns:
        The CPU seconds of a pass through the plain input and through each variant, one tuple per round; and the number
        of elements in a pass.
    """
    kept = dataset.take(elements).cache()
    count = sum(1 for _ in kept)  # later passes read them from memory

    def undisturbed(plain: Any) -> list[Any]:
        return [windows.without_optimizations(one) for one in (plain, *make_variants(plain))]

    once = [_cpu_seconds(one) for one in undisturbed(kept)]
    repeats = math.ceil(_ALTERNATING_SECONDS / max(1e-6, sum(once) / max(1, len(once) - 1)))
    measured = undisturbed(kept.repeat(repeats))
    rounds = max(2, min(_ALTERNATING_ROUNDS, int(_MOST_SECONDS / max(1e-6, repeats * sum(once)))))
    return [tuple(_cpu_seconds(one) for one in measured) for _ in range(rounds)], repeats * count


def _cpu_seconds(dataset: Any) -> float:
    """Returns the CPU seconds of the process for one pass; every variant goes through the same elements."""
    started = time.process_time()
    for _ in dataset:
        pass
    return time.process_time() - started


_SECONDS = 0.05  # per window
_ROUNDS = 3  # windows, by judgement: the fewest of which a median ignores one that was disturbed


def measure_batch_costs(source: live.LivePipeline, annotated: Pipeline) -> Mapping[str, float]:
    """Returns seconds per batch, by node id; nodes that failed are left out.

    For a map, the time of its function called on one batch. For an array in memory, the time to number the rows,
    pass the indices on and gather the rows.

    Args:
        source: the live pipeline.
        annotated: the pipeline of `source`, annotated by `annotate_batches` and `annotate_gathers`.
    """
    found: dict[str, float] = {}
    for node in annotated:
        batch = downstream_batch(annotated, node)
        answer = node.gathering or (node.function.on_batches if node.function is not None else None)
        if answer is None or answer.why_not or batch is None:
            continue
        try:
            with windows.as_run_failed():
                seconds = _gathering_seconds if node.gathering else _function_seconds
                found[node.id] = seconds(source, annotated, node, batch)
        except (RunFailed, CannotReplay):
            continue  # a trial that runs it will report the reason
    return found


def _function_seconds(source: live.LivePipeline, _annotated: Pipeline, node: Node, batch: Node) -> float:
    assert node.function is not None and node.function.on_batches is not None
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    one = above.batch(batch.argument("batch_size"), drop_remainder=bool(batch.argument("drop_remainder"))).take(1)
    plain = one.cache().repeat()
    answer = node.function.on_batches
    if answer.cut is not None:
        _, called, _ = map_two_parts(
            plain, SplittableFunction(original._map_func), answer.cut.position, synchronous=True
        )
    else:
        function = map_functions.build_variant(
            tensorflow_private.python_function(original._map_func), answer.form, plain.element_spec
        )
        called = plain.map(function, synchronous=True)
    rounds = [_window(called) - _window(plain) for _ in range(_ROUNDS)]
    return max(0.0, statistics.median(rounds))


def _gathering_seconds(source: live.LivePipeline, annotated: Pipeline, node: Node, batch: Node) -> float:
    """Returns the seconds per batch from row indices to gathered rows, without maps, which would run afterwards."""
    assert node.gathering is not None
    of_rows = node.gathering.windows
    leave = {"map"} if of_rows is None else {"map", "window", "flat_map"}
    below = {one.id for one in annotated.downstream(node.id)}
    out = [Remove(above.id) for above in annotated.upstream(batch.id) if above.op in leave and above.id in below]
    gather = ReplaceSource(node.id, batch.id, node.gathering.digest, of_rows)
    edited = apply_edits(annotated, [*out, gather])
    path = {gather.gather, *(above.id for above in edited.upstream(gather.gather))}
    part = replace(edited, nodes=tuple(one for one in edited if one.id in path))
    rows = replay(source, part).repeat()
    return statistics.median(_window(rows) for _ in range(_ROUNDS))


def _window(dataset: Any) -> float:
    """Returns the seconds per element in one thread, excluding the first element."""
    iterator = iter(windows.without_optimizations(dataset))
    try:
        next(iterator)
        count, start = 0, time.perf_counter()
        while count < 2 or time.perf_counter() < start + _SECONDS:
            next(iterator)
            count += 1
        return (time.perf_counter() - start) / count
    finally:
        del iterator
        free_iterators()


_SHARE_ELEMENTS = 64  # kept in memory and reused


def measure_variant_shares(source: live.LivePipeline, annotated: Pipeline) -> Mapping[str, Mapping[str, float]]:
    """Returns the share of CPU time that remains if a map's graph is edited, or maps become one, by node and variant.

    Args:
        source: the live pipeline.
        annotated: the pipeline of `source`, annotated by `annotate_crops`, `annotate_branches` and `annotate_fusions`.
    """
    found: dict[str, dict[str, float]] = {}
    for node in annotated:
        shares = {FunctionVariant.FUSED: _fused_share(source, node)}
        for form, edit in map_functions.GRAPH_EDITS.items():
            answer = node.function.edited_graph(form) if node.function is not None else None
            shares[form] = _share(source, node, edit) if answer is not None and not answer.why_not else None
        known = {form.value: share for form, share in shares.items() if share is not None}
        if known:
            found[node.id] = known
    return found


def _fused_share(source: live.LivePipeline, node: Node) -> float | None:
    """Returns the share that remains of the cost of consecutive maps, called as one in the last of them."""
    fused = node.function.fused if node.function is not None else None
    if fused is None or fused.why_not:
        return None
    names = (*fused.first, node.id)

    def forms(plain: Any) -> list[Any]:
        with tensorflow_private.reusing_traced_functions():
            apart = plain
            for name in names:
                apart = apart.map(source.datasets[name]._map_func, synchronous=True)
        return [apart, plain.map(map_functions.compose_maps(source, names), synchronous=True)]

    return _remaining_share(source.datasets[source.pipeline[names[0]].inputs[0]], forms)


def measure_shrinking_shares(source: live.LivePipeline, annotated: Pipeline) -> Mapping[str, float]:
    """Returns the share of CPU time that remains if a map decodes at a smaller scale, by node id.

    Args:
        source: the live pipeline.
        annotated: the pipeline of `source`, annotated by `annotate_scales`.
    """
    found: dict[str, float | None] = {}
    for node in annotated:
        answer = node.function.shrinking if node.function is not None else None
        if answer is not None and not answer.why_not:
            found[node.id] = _share(source, node, functools.partial(decode_at_scale, ratio=answer.ratio))
    return {name: share for name, share in found.items() if share is not None}


def _share(source: live.LivePipeline, node: Node, make_variant: Callable[[Any], Any]) -> float | None:
    """Returns the share of a function that a variant of it takes; None if it fails, or takes too little time."""
    traced = source.datasets[node.id]._map_func

    def forms(plain: Any) -> list[Any]:
        with tensorflow_private.reusing_traced_functions():
            return [plain.map(one, synchronous=True) for one in (traced, make_variant(traced))]

    return _remaining_share(source.datasets[node.inputs[0]], forms)


def _remaining_share(dataset: Any, forms: Callable[[Any], list[Any]]) -> float | None:
    """Returns the median share, over the rounds, that the second form takes of the CPU time of the first."""
    try:
        with windows.as_run_failed():
            rounds, _ = alternating_cpu_seconds(dataset, _SHARE_ELEMENTS, forms)
    except RunFailed:
        return None  # a trial that runs it will report the reason
    shares = [max(0.0, after - nothing) / (before - nothing) for nothing, before, after in rounds if before > nothing]
    return statistics.median(shares) if shares else None


def measure_head_shares(source: live.LivePipeline, annotated: Pipeline) -> Mapping[str, float]:
    """Returns the share of a function's CPU time that precedes its first random draw, by node id.

    Functions that fail, or take too little time to measure, are left out.

    Args:
        source: the live pipeline.
        annotated: the pipeline of `source`, annotated by `annotate_splits`.
    """
    found: dict[str, float | None] = {}
    for node in annotated:
        split = node.function.before_draws if node.function is not None else None
        if split is not None and not split.why_not:
            found[node.id] = _share(source, node, functools.partial(_head, position=split.position))
    return {name: min(1.0, share) for name, share in found.items() if share is not None}


def _head(traced: Any, *, position: int) -> Any:
    return SplittableFunction(traced).head(position)
