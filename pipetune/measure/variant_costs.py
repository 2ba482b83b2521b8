"""Measures the cost of rewritten functions: on whole batches, with an edited graph, or split in two."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.edits import Remove, ReplaceSource, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Profile
from pipetune.pipelines import live
from pipetune.pipelines.function_splitting import SplittableFunction
from pipetune.pipelines.graphs import graph_edit
from pipetune.pipelines.replay import build_variant, compose_maps, replay, with_fixed_draws
from pipetune.probes.batches import downstream_batch, map_two_parts
from pipetune.probes.edited_graphs import decode_at_scale
from pipetune.timing import windows
from pipetune.timing.iterators import iterating

_PASS_SECONDS = 0.05  # of an average pass, at least
_SLICE_SECONDS = 0.01  # of it, at least: neighbours on the same cores take a third of their speed for so long at times
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 8  # by judgement: few leave slices that were disturbed each time, more take longer
_MOST_SECONDS = 0.6  # of all rounds together, if more than the fewest. By judgement: they decide what is tried first


def alternating_cpu_seconds(
    dataset: Any, elements: int, make_variants: Callable[[Any], Sequence[Any]]
) -> tuple[float, ...]:
    """Returns the CPU seconds of the process for a pass through the plain input, and through each variant.

    Passes alternate, slice by slice, in several rounds. Of each slice the cheapest counts: in every round it is the
    same work, and what disturbs it only adds to it.

    Args:
        dataset: the input of the variants.
        elements: number of elements of `dataset` that are kept in memory, at most.
        make_variants: builds the variants from a dataset that repeats the elements kept; each pass through one draws
            the same random numbers.

    Raises:
        RunFailed: the dataset is empty.
    """
    kept = dataset.take(elements).cache()
    count = sum(1 for _ in kept)  # later passes read them from memory
    if not count:
        raise RunFailed("There are no elements.")

    def undisturbed(plain: Any) -> list[Any]:
        return [windows.without_optimizations(one) for one in (plain, *make_variants(plain))]

    once = [_cpu_seconds(one) for one in undisturbed(kept)]
    average = max(1e-6, sum(once) / max(1, len(once) - 1))
    repeats = math.ceil(max(_PASS_SECONDS / average, 2 / count))  # two elements at least: the first is not timed
    measured = undisturbed(kept.repeat(repeats))
    rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(_MOST_SECONDS / (repeats * average))))
    taken = count * repeats - 1  # with the first one, functions are built
    size = min(taken, math.ceil(count * _SLICE_SECONDS / average))
    passes = [_sliced(measured, taken // size, size) for _ in range(rounds)]
    return tuple(sum(map(min, zip(*slices, strict=True))) for slices in zip(*passes, strict=True))


def _sliced(datasets: Sequence[Any], slices: int, size: int) -> list[list[float]]:
    """Returns the CPU seconds of each slice of a pass, for each dataset; the slices of all alternate."""
    iterators = [iter(one) for one in datasets]
    for iterator in iterators:
        next(iterator)
    rows = [[_cpu_seconds(itertools.islice(one, size)) for one in iterators] for _ in range(slices)]
    return [list(column) for column in zip(*rows, strict=True)]


def _cpu_seconds(elements: Iterable[Any]) -> float:
    started = time.process_time()
    for _ in elements:
        pass
    return time.process_time() - started


_SECONDS = 0.05  # per window
_ROUNDS = 3  # windows, by judgement: the fewest of which a median ignores one that was disturbed
_PATIENCE = 3  # times as long as these windows take; where a batch takes that long, one window is measured
_FEWEST_BATCHES = 3  # in a window, one before it among them


def measure_batch_costs(
    source: live.LivePipeline, annotated: Pipeline, profile: Profile | None = None, *, seconds: float
) -> Mapping[str, float]:
    """Returns seconds per batch, by node id; nodes that failed, and those there is no time for, are left out.

    For a map, the time of its function called on one batch. For an array in memory, the time to number the rows,
    pass the indices on and gather the rows.

    Args:
        source: the live pipeline.
        annotated: the pipeline of `source`, annotated by `annotate_batches` and `annotate_gathers`.
        profile: what the functions cost for one element: so much for each element of a batch is expected.
        seconds: of all measurements together.
    """
    found: dict[str, float] = {}
    end = time.perf_counter() + seconds
    for node in annotated:
        batch = downstream_batch(annotated, node)
        answer = node.gathering or (node.function.on_batches if node.function is not None else None)
        if answer is None or answer.why_not or batch is None:
            continue
        rows = batch.argument("batch_size")
        most = _FEWEST_BATCHES * (rows if isinstance(rows, int) else 1) * _own_seconds([node.id], profile)
        if time.perf_counter() + most > end:
            continue
        try:
            with windows.as_run_failed():
                measure = _gathering_seconds if node.gathering else _function_seconds
                found[node.id] = measure(source, annotated, node, batch)
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
        whole = SplittableFunction(original._map_func)
        _, called = map_two_parts(plain, whole, answer.cut.position, synchronous=True)
    else:
        function = build_variant(
            tensorflow_private.python_function(original._map_func), answer.form, plain.element_spec
        )
        called = plain.map(function, synchronous=True)
    return max(0.0, _median_over_rounds(lambda: _window(called) - _window(plain)))


def _median_over_rounds(measure: Callable[[], float]) -> float:
    """Returns the median of `_ROUNDS` values, or of as many as the time of usual windows suffices for."""
    end = time.perf_counter() + _PATIENCE * _ROUNDS * _SECONDS
    values = [measure()]
    while len(values) < _ROUNDS and time.perf_counter() < end:
        values.append(measure())
    return statistics.median(values)


def _gathering_seconds(source: live.LivePipeline, annotated: Pipeline, node: Node, batch: Node) -> float:
    """Returns the seconds per batch from row indices to gathered rows, without maps, which would run afterwards."""
    assert node.gathering is not None
    of_rows = node.gathering.windows
    leave = {"map"} if of_rows is None else {"map", "window", "flat_map"}
    below = {one.id for one in annotated.downstream(node.id)}
    out = [Remove(above.id) for above in annotated.upstream(batch.id) if above.op in leave and above.id in below]
    gather = ReplaceSource(node.id, batch.id, node.gathering.digest, of_rows)
    edited = apply_edits(annotated, [*out, gather])
    part = replace(edited, nodes=(*edited.upstream(gather.gather), edited[gather.gather]))
    rows = replay(source, part).repeat()
    return _median_over_rounds(lambda: _window(rows))


def _window(dataset: Any) -> float:
    """Returns the seconds per element in one thread, excluding the first element."""
    with iterating(windows.without_optimizations(dataset)) as iterator:
        next(iterator)
        start = time.perf_counter()
        count = windows.consume(iterator, _SECONDS, fewest=2)
        return (time.perf_counter() - start) / count


_MOST_ELEMENTS, _FEWEST_ELEMENTS = 64, 2  # kept in memory and reused


@dataclass(frozen=True)
class RemainingShares:
    """The share of its CPU time that a map keeps, as far as it was measured."""

    variants: Mapping[str, float] | None = None  # by variant of its function
    shrinking: float | None = None  # if it decodes at a smaller scale
    head: float | None = None  # of the part that precedes its first random draw or call of Python


@dataclass(frozen=True)
class _Comparison:
    """What is timed on the same elements: a map, or several in a row, and other forms of them."""

    node: str  # the last of the maps
    above: Any  # the dataset whose elements they get
    functions: Sequence[Any]  # of the maps as they are, traced
    forms: Mapping[str, Callable[[], Any]]  # the others, by what they are: each makes the function of one map
    fill_seconds: float  # what an element takes to make before the maps, as far as known
    own_seconds: float  # what it takes in the maps

    def elements(self, seconds: float) -> int:
        """Returns how many elements fit into so much time; below the fewest if these do not."""
        passes = (1 + _FEWEST_ROUNDS) * (1 + len(self.forms))
        each = self.fill_seconds + passes * self.own_seconds
        return min(_MOST_ELEMENTS, int(seconds / max(each, 1e-9)))

    def shares(self, elements: int) -> dict[str, float]:
        """Returns the share that each form takes of the CPU time of the original."""
        try:
            with windows.as_run_failed():
                plain, whole, *others = alternating_cpu_seconds(self.above, elements, self._datasets)
        except RunFailed:
            return {}  # a trial that runs it will report the reason
        if whole <= plain:
            return {}
        return {name: max(0.0, cost - plain) / (whole - plain) for name, cost in zip(self.forms, others, strict=True)}

    def _datasets(self, plain: Any) -> list[Any]:
        with tensorflow_private.reusing_traced_functions():
            forms = ([plain.map(make())._map_func] for make in self.forms.values())
            return [_map_apart(plain, functions) for functions in (self.functions, *forms)]


_SHRINKING, _MERE_CALL = "shrinking", "mere call"


def measure_shares(
    source: live.LivePipeline, annotated: Pipeline, profile: Profile | None = None, *, seconds: float
) -> Mapping[str, RemainingShares]:
    """Returns the share of its cost that remains if a map's graph is edited or split, or maps become one, by node id.

    Variants that fail are left out, and those for which the time does not suffice.

    Args:
        source: the live pipeline.
        annotated: the pipeline of `source`, as annotated by `probes.annotation`.
        profile: what the operators cost; by it the elements are chosen that fit into the time.
        seconds: of all measurements together. Where elements are few, a random function may by chance be cheap in all.
    """
    comparisons = [*_edited(source, annotated, profile), *_fused(source, annotated, profile)]
    comparisons.sort(key=lambda one: one.fill_seconds + one.own_seconds)  # what the cheap ones leave is for the others
    end = time.perf_counter() + seconds
    measured: dict[str, dict[str, float]] = {}
    for place, comparison in enumerate(comparisons):
        left = end - time.perf_counter()
        elements = comparison.elements(left * _part_at_stake(comparisons[place:]))
        if elements < _FEWEST_ELEMENTS <= comparison.elements(left):
            elements = _FEWEST_ELEMENTS
        if elements >= _FEWEST_ELEMENTS:
            measured.setdefault(comparison.node, {}).update(comparison.shares(elements))
    return {node: _by_kind(shares) for node, shares in measured.items() if shares}


def _part_at_stake(comparisons: Sequence[_Comparison]) -> float:
    """Returns the first one's part of what the maps of all cost: as much time is for it."""
    costs = [one.own_seconds for one in comparisons]
    return costs[0] / sum(costs) if all(costs) else 1 / len(costs)


def _by_kind(shares: dict[str, float]) -> RemainingShares:
    shrinking, head = shares.pop(_SHRINKING, None), shares.pop(FunctionVariant.HEAD.value, None)
    call = shares.pop(_MERE_CALL, 0.0)
    return RemainingShares(shares or None, shrinking, None if head is None else max(0.0, min(1.0, head - call)))


def _edited(source: live.LivePipeline, annotated: Pipeline, profile: Profile | None) -> Iterator[_Comparison]:
    """Yields every map whose graph can be edited or split, with each of these variants."""
    for node in annotated:
        if edits := _edits(node):
            traced = source.datasets[node.id]._map_func
            yield _Comparison(
                node.id,
                source.datasets[node.inputs[0]],
                [traced],
                {name: functools.partial(edit, traced) for name, edit in edits.items()},
                _seconds_above(annotated, node.id, profile),
                _own_seconds([node.id], profile),
            )


def _edits(node: Node) -> dict[str, Callable[[Any], Any]]:
    """Returns what makes each variant of the traced function of `node` that shares its input."""
    function = node.function
    if function is None:
        return {}
    edits: dict[str, Callable[[Any], Any]] = {
        form.value: graph_edit(form).edit_graph
        for form, edit in GRAPH_EDITS.items()
        if (probed := getattr(function, edit.probed)) is not None and not probed.why_not
    }
    if function.shrinking is not None and not function.shrinking.why_not:
        edits[_SHRINKING] = functools.partial(decode_at_scale, ratio=function.shrinking.ratio)
    if function.before_draws is not None and not function.before_draws.why_not:
        position = function.before_draws.position
        edits[FunctionVariant.HEAD.value] = lambda traced: SplittableFunction(traced).head(position)
        edits[_MERE_CALL] = _mere_call  # the second part is called as often as the whole: only the head's work is saved
    return edits


def _fused(source: live.LivePipeline, annotated: Pipeline, profile: Profile | None) -> Iterator[_Comparison]:
    """Yields every run of maps that could become one."""
    for node in annotated:
        fused = node.function.fused if node.function is not None else None
        if fused is None or fused.why_not:
            continue
        names = (*fused.first, node.id)
        yield _Comparison(
            node.id,
            source.datasets[source.pipeline[names[0]].inputs[0]],
            [source.datasets[name]._map_func for name in names],
            {FunctionVariant.FUSED.value: functools.partial(compose_maps, source, names)},
            _seconds_above(annotated, names[0], profile),
            _own_seconds(names, profile),
        )


def _map_apart(plain: Any, functions: Sequence[Any]) -> Any:
    for function in with_fixed_draws(functions):  # by chance one form might draw what is cheap
        plain = plain.map(function, synchronous=True)
    return plain


def _mere_call(_traced: Any) -> Callable[..., Any]:
    """Returns a function that does next to nothing; the runtime would not even call one that does nothing."""

    return lambda *element: (element, tf.shape(tf.nest.flatten(element, expand_composites=True)[0]))


def _own_seconds(names: Sequence[str], profile: Profile | None) -> float:
    """Returns the CPU seconds of these operators per element of the last; unknown ones count as none."""
    costs = [profile.operator(name) for name in names] if profile is not None else []
    return sum(cost.cpu_seconds or 0.0 for cost in costs if cost is not None)


def _seconds_above(annotated: Pipeline, name: str, profile: Profile | None) -> float:
    """Returns the seconds that all operators upstream take for an element of `name`, as far as known."""
    own = profile.operator(name) if profile is not None else None
    if profile is None or own is None or not own.visits:
        return 0.0
    costs = [profile.operator(node.id) for node in annotated.upstream(name)]
    return sum((cost.visits or 0.0) * (cost.wall_seconds or 0.0) / own.visits for cost in costs if cost is not None)
