"""Selects the function that a map of an edited pipeline calls: the traced original or a variant that an edit made."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import GRAPH_EDITS, FunctionFacts, FunctionVariant, MapFusion
from pipetune.core.pipeline import Node, Pipeline, consecutive_maps
from pipetune.pipelines import function_splitting, functions, gathering, live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.graph_edits import graph_edit, rebuild_function
from pipetune.pipelines.lifting import joined_op, output_terms
from pipetune.pipelines.op_types import draws
from pipetune.pipelines.terms import CannotProve, Term


def build_variant(
    function: Callable[..., Any], variant: FunctionVariant, spec: Any, *, allow_loops: bool = True
) -> Callable[..., Any]:
    """Returns the function to pass to `map` in place of `function`.

    Args:
        spec: element spec of the map's input: of batches, whose components have the shape [rows, ...]. A tuple is
            passed to the function as several arguments.
        allow_loops: whether `tf.vectorized_map` may fall back to a loop over the rows of a batch; otherwise it raises.
    """
    if variant is FunctionVariant.PARSING:
        return _parsing_batches(function)
    if variant is not FunctionVariant.VECTORIZED:
        return function
    if type(spec) is not tuple:
        return lambda batch: tf.vectorized_map(function, batch, fallback_to_while_loop=allow_loops)
    return lambda *batch: tf.vectorized_map(lambda row: function(*row), batch, fallback_to_while_loop=allow_loops)


def compose(first: Callable[..., Any], second: Callable[..., Any], *, unpack: bool) -> Callable[..., Any]:
    """Returns the function that calls `second` on the result of `first`, unpacked into arguments if `unpack`."""
    if unpack:
        return lambda *element: second(*first(*element))
    return lambda *element: second(first(*element))


def _parsing_batches(function: Callable[..., Any]) -> Callable[..., Any]:
    def parsing(*batch: Any) -> Any:
        with _parse_example_in_place():
            return function(*batch)

    return parsing


@contextmanager
def _parse_example_in_place() -> Iterator[None]:
    """While open, `tf.io.parse_single_example` is `tf.io.parse_example`, which takes a 1-D tensor of examples."""
    places = [(tf.io, tf.io.parse_example), (tf.compat.v1.io, tf.compat.v1.io.parse_example)]
    originals = [module.parse_single_example for module, _ in places]
    for module, parse in places:
        module.parse_single_example = parse
    try:
        yield
    finally:
        for (module, _), original in zip(places, originals, strict=True):
            module.parse_single_example = original


def annotate_fusions(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with the most downstream map of every run annotated with what the fused function would be.

    Where a run with random functions ends with one of stateless functions, it is annotated only if it can be fused.
    """
    found = {run[-1].id: _probe(source, run) for run in consecutive_maps(pipeline)}
    for run in consecutive_maps(pipeline, drawing=True):
        fused = _probe(source, run)
        if not fused.why_not or run[-1].id not in found:
            found[run[-1].id] = fused
    facts = {
        name: replace(function, fused=fused) for name, fused in found.items() if (function := pipeline[name].function)
    }
    return pipeline.with_functions(facts)


def compose_maps(
    source: live.LivePipeline, node_ids: tuple[str, ...], forms: tuple[FunctionVariant, ...] = ()
) -> Callable[..., Any]:
    """Returns the composition of the functions of these maps.

    Args:
        node_ids: of the maps, most upstream first.
        forms: the variant of each function, as traced or one of `GRAPH_EDITS`; empty: all as traced.
    """
    maps = [source.datasets[name] for name in node_ids]
    forms = forms or (FunctionVariant.AS_TRACED,) * len(maps)
    called = [_callable(dataset._map_func, form) for dataset, form in zip(maps, forms, strict=True)]
    function = called[0]
    for above, below in zip(maps, called[1:], strict=False):
        function = compose(function, below, unpack=type(above.element_spec) is tuple)
    return function


def _callable(traced: Any, form: FunctionVariant) -> Callable[..., Any]:
    """Returns a Python function that can be traced as part of another: the user's, or one that adds an edited graph."""
    if form in GRAPH_EDITS:
        return function_splitting.SplittableFunction(graph_edit(form).edit_graph(traced)).inlined()
    function: Callable[..., Any] = tensorflow_private.python_function(traced)
    return function


def _probe(source: live.LivePipeline, run: tuple[Node, ...]) -> MapFusion:
    return replace(_probe_fusion(source, run), first=tuple(node.id for node in run[:-1]))


@unknown_on_error(MapFusion)
def _probe_fusion(source: live.LivePipeline, run: tuple[Node, ...]) -> MapFusion:
    names = tuple(node.id for node in run)
    above, last = source.datasets[run[0].inputs[0]], source.datasets[run[-1].id]
    try:
        mapped = above.map(compose_maps(source, names))
    except Exception as error:  # the user's functions are called on inputs they were not written for
        return MapFusion(f"their functions cannot be composed ({type(error).__name__})")
    if mapped.element_spec != last.element_spec:
        return MapFusion("composed into one, their functions return different shapes or dtypes")
    facts = functions.read_facts(mapped._map_func)
    checks = any(node.function is not None and node.function.can_raise for node in run)
    drawing = any(node.function is not None and node.function.random for node in run)
    if not facts.only_draws or facts.random != drawing or facts.can_raise != checks:
        return MapFusion("composed into one, their functions have state or check other values")
    try:
        terms: list[Term] | None = None
        numbers, handed = count(), set[Term]()
        for name in names:
            handed.update(terms or ())
            terms = output_terms(source.datasets[name]._map_func.function, terms, draws=numbers)
        if terms != output_terms(mapped._map_func.function, draws=count()):
            return MapFusion("composed into one, their functions compute something different")
        if joined := joined_op(terms or (), handed):
            return MapFusion(f"composed into one, their functions may round the result of {joined} differently")
    except CannotProve as reason:
        return MapFusion(f"one of their functions {reason}")
    return MapFusion(digest=facts.digest)


def with_fixed_draws(run: Sequence[Any]) -> list[Any]:
    """Returns traced functions of datasets, called in a row, that draw the same random numbers in each pass.

    The seed of a draw is its number in the run: an edited copy, and one function composed of all, draw what the
    originals do. Generators with a state of their own (`tf.random.Generator`) go on as they are.
    """
    made, numbers = [], count(1)
    for traced in run:
        graph = traced.function.graph
        seeded = graph.as_graph_def()
        called = seeded.library.function
        nodes = [*seeded.node, *(node for function in called for node in function.node_def)]
        drawing = [node for node in nodes if draws(node.op)]
        for node in drawing:
            if not node.attr["seed"].i and not node.attr["seed2"].i:
                node.attr["seed"].i = node.attr["seed2"].i = next(numbers)
        if drawing:
            _rename_functions(called, nodes)
            traced = tensorflow_private.with_function(traced, rebuild_function(graph, seeded, graph.outputs))
        made.append(traced)
    return made


def _rename_functions(called: Sequence[Any], nodes: Sequence[Any]) -> None:
    """Gives changed functions other names, and makes them known: TensorFlow has others by the old names."""
    content = zlib.crc32(b"".join(function.SerializeToString(deterministic=True) for function in called))
    names = {function.signature.name: f"{function.signature.name}_{content:08x}" for function in called}
    for reference in (one for node in nodes for one in functions.function_references(node)):
        reference.name = names.get(reference.name, reference.name)
    for node in nodes:
        node.op = names.get(node.op, node.op)
    for function in called:
        function.signature.name = names[function.signature.name]
        tensorflow_private.register_function(function)


def map_function(node: Node, source: live.LivePipeline, pipeline: Pipeline, above: Any) -> Any:
    """Returns the function that the map `node` calls on the elements of the rebuilt upstream dataset `above`.

    Args:
        source: the live pipeline the edits were made on.
        pipeline: the edited pipeline that contains `node`.

    Raises:
        CannotReplay: the live pipeline does not hold what the function is made of.
    """
    function = node.function
    if node.gathers_rows:
        windows = node.gathering.windows if node.gathering is not None else None
        return gathering.gather_from(source.datasets[pipeline.source_of(node.id).id], windows)
    assert function is not None  # every map has one
    if function.part_of:
        return _part(function, source.datasets[function.part_of], above)
    if function.first:
        return compose_maps(source, (*function.first, node.id), function.called_forms)
    traced = source.datasets[node.id]._map_func
    if function.called_on_batches:
        return build_variant(tensorflow_private.python_function(traced), function.form, above.element_spec)
    return graph_edit(function.form).edit_graph(traced) if function.form in GRAPH_EDITS else traced


def called_maps(node: Node) -> tuple[str, ...]:
    """Returns the ids of the maps of the original pipeline whose functions the map `node` calls, or parts of them."""
    function = node.function
    assert function is not None
    return (function.part_of,) if function.part_of else (*function.first, node.id)


def has_rebuilt_function(node: Node) -> bool:
    """Whether a map's function is built from others or from part of one, so that an edit determines its input."""
    function = node.function
    return node.gathers_rows or (function is not None and bool(function.part_of or function.first))


def filter_predicate(node: Node, original: Any) -> Any:
    """Returns the predicate of the filter `node`, where `original` is the user's filter dataset.

    An edit that moved the filter needs the Python function, which is traced again on the new input.
    """
    again = node.function is not None and node.function.form is FunctionVariant.ON_INPUT
    return tensorflow_private.python_function(original._predicate) if again else original._predicate


def _part(function: FunctionFacts, original: Any, above: Any) -> Any:
    """Returns the part of the function of the map `original` that `function` describes."""
    assert function.cut is not None
    whole = function_splitting.SplittableFunction(original._map_func)
    if function.form is FunctionVariant.HEAD:
        return whole.head(function.cut.position)
    if function.form is FunctionVariant.TAIL:
        return whole.tail(function.cut.position)
    if function.form is FunctionVariant.VECTORIZED:
        return build_variant(whole.tail_function(function.cut.position), function.form, above.element_spec)
    assert function.form is function.cut.head_on_batches
    rows = tf.nest.flatten(above.element_spec)[0].shape[0]
    return whole.head_on_batches(function.cut.position, rows)
