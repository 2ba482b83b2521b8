"""Builds the dataset of an edited `Pipeline` from the live one: traced functions and the user's objects are reused; a
map calls the traced original, or a variant of it that an edit made."""

from __future__ import annotations

import ast
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.errors import CannotReplay
from pipetune.core.functions import GRAPH_EDITS, FunctionFacts, FunctionVariant, MapFusion
from pipetune.core.operators import Role, operator_facts
from pipetune.core.pipeline import Node, Pipeline, consecutive_maps
from pipetune.pipelines import files, function_splitting, functions, gathering, live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.graphs import draws, graph_edit, rebuild_function
from pipetune.pipelines.lifting import joined_op, output_terms
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


def build_options(values: Mapping[str, Any]) -> tf.data.Options:
    """Returns `tf.data.Options` with these values, by dotted option name."""
    options = tf.data.Options()
    for name, value in values.items():
        target: Any = options
        *path, last = name.split(".")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, _NAMED[name][value] if name in _NAMED and isinstance(value, str) else value)
    return options


_NAMED: Mapping[str, Any] = {"autotune.autotune_algorithm": tf.data.experimental.AutotuneAlgorithm}
"""Options whose values are members of an enumeration; an edit stores the name of the member."""


def build_map(node: Node, function: Any, above: Any) -> Any:
    """Returns the dataset of the map `node`.

    Args:
        node: the map.
        function: a Python function or a dataset's traced function.
        above: the dataset that it maps.
    """
    calls = node.argument("num_parallel_calls")
    if calls is None:
        return above.map(function, synchronous=node.argument("synchronous"))
    pool = {"use_unbounded_threadpool": True} if node.argument("use_unbounded_threadpool") else {}
    return above.map(function, num_parallel_calls=calls, deterministic=node.argument("deterministic"), **pool)


def call_method(
    node: Node, original: Any, above: list[Any], *, wrap: Callable[[Any], Any] = lambda traced: traced
) -> Any:
    """Returns the dataset of an operator whose method takes plain values, and what the original has kept.

    Args:
        node: the operator; arguments that it does not have get their default.
        original: the script's dataset that `node` comes from; None for an operator that an edit adds.
        above: the input datasets.
        wrap: returns what to call in place of a traced function of the original.
    """
    given = {}
    for parameter in operator_facts(node.op).parameters:
        if parameter.plain:
            given[parameter.name] = node.argument(parameter.name)
        elif parameter.role is Role.FUNCTION:
            given[parameter.name] = wrap(getattr(original, parameter.kept_in))
        elif parameter.role is Role.OBJECT:
            given[parameter.name] = getattr(original, parameter.kept_in)
    given = {name: value for name, value in given.items() if value is not None}
    if "num_parallel_calls" not in given:
        given.pop("deterministic", None)
    return getattr(above[0], node.op)(*above[1:], **given)


def reader_arguments(original: Any) -> dict[str, Any]:
    """Returns the arguments of the script's reader, except the files and how many are read at once."""
    facts = operator_facts(live.kind_of(original).op)
    given = (one for one in facts.parameters if one.role is not Role.UNREAD and one.name != "num_parallel_reads")
    return {one.name: getattr(original, one.kept_in) for one in given}


def _reader(node: Node, original: Any, above: list[Any]) -> Any:
    files = above[0] if above else original._filenames
    return type(original)(files, num_parallel_reads=node.argument("num_parallel_reads"), **reader_arguments(original))


def _padded_batch(node: Node, original: Any, above: list[Any]) -> Any:
    padded = original if live.kind_of(original).op == node.op else None  # else an edit made it of a batch
    return above[0].padded_batch(
        node.argument("batch_size"),
        padded_shapes=padded._padded_shapes if padded else ast.literal_eval(str(node.argument("padded_shapes"))),
        padding_values=padded._padding_values if padded else None,
        drop_remainder=bool(node.argument("drop_remainder")),
    )


def build_shuffle(node: Node, original: Any, above: list[Any]) -> Any:
    """Returns the dataset of the shuffle `node`, with the seeds of the script's; see `call_method`."""
    if original is None:
        return call_method(node, original, above)
    with tensorflow_private.fixed_seeds(original._seed, original._seed2):
        return call_method(node, original, above)


def _snapshot(_node: Node, original: Any, above: list[Any]) -> Any:
    return type(original)(
        above[0],
        files.snapshot_folder(original),
        shard_func=original._shard_func,
        compression=original._compression,
        reader_func=original._reader_func,
    )


def _to_ragged(_node: Node, original: Any, above: list[Any]) -> Any:
    (given,) = tensorflow_private.inputs(original)
    before, after = (tf.nest.flatten(dataset.element_spec) for dataset in (given, original))
    kinds = [new.row_splits_dtype for old, new in zip(before, after, strict=True) if old != new]
    return type(original)(above[0], kinds[0] if kinds else tf.int64)


def _parallel_interleave(node: Node, original: Any, above: list[Any]) -> Any:
    in_order = node.argument("deterministic")
    kept = (original._map_func, original._cycle_length, original._block_length)
    ahead = (original._buffer_output_elements, original._prefetch_input_elements)
    return type(original)(above[0], *kept, None if in_order is None else not in_order, *ahead)


def _copy_to_device(node: Node, original: Any, above: list[Any]) -> Any:
    host = tensorflow_private.source_device(original) if original is not None else "/cpu:0"
    return above[0].apply(tf.data.experimental.copy_to_device(node.argument("target_device"), host))


_Builder = Callable[[Node, Any, list[Any]], Any]

_OF_ORIGINAL: Mapping[str, _Builder] = {
    "TFRecordDataset": _reader,
    "TextLineDataset": _reader,
    "FixedLengthRecordDataset": _reader,
    "filter": lambda node, original, above: above[0].filter(filter_predicate(node, original)),
    "padded_batch": _padded_batch,
    "unbatch": lambda node, original, above: type(original)(above[0]),
    "rebatch": lambda node, original, above: type(original)(above[0], original._batch_sizes, original._drop_remainder),
    "to_ragged": _to_ragged,
    "snapshot": _snapshot,
    "parallel_interleave": _parallel_interleave,
    "zip": lambda node, original, above: tf.data.Dataset.zip(tf.nest.pack_sequence_as(original._datasets, above)),
    "choose": lambda node, original, above: type(original)(above[0], above[1:], original._stop_on_empty_dataset),
}
"""Operators that are built in a special way, with objects that only the script's dataset has."""

_OF_ARGUMENTS: Mapping[str, _Builder] = {
    "range": lambda node, original, above: tf.data.Dataset.range(
        node.argument("start"), node.argument("stop"), node.argument("step")
    ),
    "shuffle": build_shuffle,
    "cache": lambda node, original, above: above[0].cache(
        files.cache_file(str(node.argument("filename") or ""), original)
    ),
    "with_options": lambda node, original, above: above[0].with_options(
        original.options() if original is not None else build_options(node.arguments)
    ),
    "assert_cardinality": lambda node, original, above: above[0].apply(
        tf.data.experimental.assert_cardinality(node.argument("expected_cardinality"))
    ),
    "copy_to_device": _copy_to_device,
}
"""Operators that are built in a special way, with or without a dataset of the script."""


def _builder(node: Node, original: Any) -> _Builder | None:
    """Returns what builds an operator: of the two tables above, or its method; None if nothing can."""
    facts = operator_facts(node.op)
    kept = any(one.role in (Role.FUNCTION, Role.OBJECT) for one in facts.parameters)
    if original is None and (kept or node.op in _OF_ORIGINAL):
        return None
    special = _OF_ORIGINAL.get(node.op) or _OF_ARGUMENTS.get(node.op)
    return special or (call_method if facts.method else None)


def read(dataset: Any, *, name: str = "dataset") -> live.LivePipeline:
    """Returns `live.read` with datasets that write none of the script's files; nodes keep their original arguments.

    If the pipeline cannot be rebuilt, the script's own datasets are used: the undo journal knows their files.
    """
    source = live.read(dataset, name=name)
    if not any(map(files.needs_private_file, source.datasets.values())):
        return source
    try:
        datasets = replay_nodes(source, source.pipeline)
    except (CannotReplay, tf.errors.OpError, ValueError, TypeError):
        return source
    return live.LivePipeline.of(source.pipeline, datasets)


def replay(source: live.LivePipeline, pipeline: Pipeline, *, replacements: Mapping[str, Any] | None = None) -> Any:
    """Returns the dataset that `pipeline` describes; see `replay_nodes`."""
    return replay_nodes(source, pipeline, replacements=replacements)[OUTPUT]


OUTPUT = ""
"""The key of the finished dataset, options included, in the result of `replay_nodes`."""


def replay_nodes(
    source: live.LivePipeline, pipeline: Pipeline, *, replacements: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the dataset of every node of `pipeline`, and under `OUTPUT` the one for the consumer to iterate.

    Args:
        source: the live pipeline the edits were made on.
        pipeline: the edited pipeline; ids of untouched operators are those of `source`.
        replacements: by node id, datasets to use in place of nodes (a recorded source); everything downstream is
            rebuilt.

    Raises:
        CannotReplay: an operator downstream of an edit cannot be rebuilt; the message names it.
    """
    replacements = replacements or {}
    built: dict[str, Any] = {}
    with tensorflow_private.reusing_traced_functions():
        for node in pipeline.nodes:
            if node.id in replacements:
                built[node.id] = replacements[node.id]
            elif all(name in built for name in node.inputs):
                built[node.id] = _build(node, source, pipeline, [built[name] for name in node.inputs])
        result = built[pipeline.output.id]
        changed = {
            name: value for name, value in pipeline.options.items() if source.pipeline.options.get(name) != value
        }
        built[OUTPUT] = result.with_options(build_options(changed)) if changed else result
        return built


def _build(node: Node, source: live.LivePipeline, pipeline: Pipeline, above: list[Any]) -> Any:
    original = source.datasets.get(node.id)
    if original is not None and _is_unchanged(node, source, above):
        return original
    if has_rebuilt_function(node):
        if node.function is not None and node.function.part_of:
            original = source.datasets[node.function.part_of]
        return _map(node, source, pipeline, original, above[0])
    builder = _builder(node, original)
    if builder is None:
        raise CannotReplay(
            f"The operator {node.title} cannot be rebuilt on a changed input.",
            hint="Rewrites upstream of it are skipped.",
        )
    above = _restructure_input(original, above)
    if node.op == "map":
        return _map(node, source, pipeline, original, above[0])
    return builder(node, original, above)


def _map(node: Node, source: live.LivePipeline, pipeline: Pipeline, original: Any, above: Any) -> Any:
    """Returns the dataset of the map `node`; what an edit made of its function is traced once, not in each replay.

    A comparison builds a pipeline a dozen times, and to trace a function takes up to a second.
    """
    if node.gathers_rows:  # from arrays that comparisons replace
        return build_map(node, map_function(node, source, pipeline, above), above)
    names = called_maps(node)
    made_of = (node.function, tuple(source.datasets[name] for name in names), above.element_spec)
    traced = next((known for known_of, known in source.edited_functions if known_of == made_of), None)
    mapped = build_map(node, traced or map_function(node, source, pipeline, above), above)
    if traced is None:
        source.edited_functions.append((made_of, mapped._map_func))
    return mapped


def _is_unchanged(node: Node, source: live.LivePipeline, above: list[Any]) -> bool:
    """Whether neither the operator nor anything upstream of it was changed."""
    before = source.pipeline[node.id]
    same_form = before.function is None or node.function is None or before.function.form == node.function.form
    if files.needs_private_file(source.datasets[node.id]):
        return False
    same_inputs = len(before.inputs) == len(above) and all(
        source.datasets[name] is dataset for name, dataset in zip(before.inputs, above, strict=True)
    )
    return same_inputs and same_form and dict(before.arguments) == dict(node.arguments)


def _restructure_input(original: Any, above: list[Any]) -> list[Any]:
    """Returns the input in the structure of that of `original`: `unbatch` and `rebatch` first flatten it by a map."""
    given = tensorflow_private.inputs(original) if original is not None else ()
    if len(given) != 1 or len(above) != 1 or not live.kind_of(given[0]).transparent:
        return above
    spec = given[0].element_spec
    if above[0].element_spec != tensorflow_private.inputs(given[0])[0].element_spec:
        spec = tf.nest.pack_sequence_as(spec, tf.nest.flatten(above[0].element_spec))
    return [tensorflow_private.with_structure(above[0], spec)]
