"""Builds the dataset of an edited `Pipeline` from the live one: traced functions and the user's objects are reused."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.errors import CannotReplay
from pipetune.core.operators import Role, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import files, live, map_functions


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


def build_map(node: Node, function: Any, original: Any, above: Any) -> Any:
    """Returns the dataset of the map `node`.

    Args:
        node: the map.
        function: a Python function or a dataset's traced function.
        original: the script's map that `node` comes from; None for a map that an edit adds.
        above: the dataset that it maps.
    """
    calls = node.argument("num_parallel_calls")
    if calls is None:
        forced = bool(getattr(original, "_force_synchronous", False))
        return above.map(function, synchronous=True if forced else None)
    return above.map(function, num_parallel_calls=calls, deterministic=node.argument("deterministic"))


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
    "filter": lambda node, original, above: above[0].filter(map_functions.filter_predicate(node, original)),
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
    if map_functions.has_rebuilt_function(node):
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
        return build_map(node, map_functions.map_function(node, source, pipeline, above), original, above)
    names = map_functions.called_maps(node)
    made_of = (node.function, tuple(source.datasets[name] for name in names), above.element_spec)
    traced = next((known for known_of, known in source.edited_functions if known_of == made_of), None)
    mapped = build_map(node, traced or map_functions.map_function(node, source, pipeline, above), original, above)
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
