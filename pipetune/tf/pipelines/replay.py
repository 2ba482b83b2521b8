"""Builds the dataset of an edited Pipeline from the live one: traced functions, seeds and arrays are reused.

An operator that no edit touches, with nothing changed above it, is the user's own object; the user's Python
functions are never called again, unless an edit changes what one is called with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.functions import SCALES, FunctionFacts, FunctionForm
from pipetune.core.padding import BUCKETS
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import (
    buckets,
    cropped,
    cutting,
    forms,
    fusion,
    gathering,
    generators,
    live,
    operators,
    shrinking,
)

REPLAYS = True  # datasets made below this module are pipetune's, not the user's


def replay(source: live.LivePipeline, pipeline: Pipeline, *, given: Mapping[str, Any] | None = None) -> Any:
    """The dataset that `pipeline` describes; see `replay_nodes`."""
    return replay_nodes(source, pipeline, given=given)[OUTPUT]


OUTPUT = ""
"""The key of the finished dataset, options included, among the datasets of `replay_nodes`."""


def replay_nodes(
    source: live.LivePipeline, pipeline: Pipeline, *, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The dataset of every node of `pipeline`, and under OUTPUT what the consumer is to iterate.

    Args:
        source: the live pipeline the edits were made on.
        pipeline: the edited pipeline; ids of untouched operators are those of `source`.
        given: datasets to use in place of these nodes (a recorded source); everything below is rebuilt.

    Raises:
        CannotReplay: an operator below an edit cannot be rebuilt; the message names it.
    """
    given = given or {}
    built: dict[str, Any] = {}
    with private.reusing_traced_functions():
        for node in pipeline.nodes:
            if node.id in given:
                built[node.id] = given[node.id]
            elif all(name in built for name in node.inputs):
                above = [built[name] for name in node.inputs]
                if node.gathers:
                    built[node.id] = _mapped(node, _gather(node, source, pipeline), None, above[0])
                elif node.function is not None and node.function.part_of:
                    original = source.datasets[node.function.part_of]
                    built[node.id] = _mapped(node, _part(node.function, original, above[0]), original, above[0])
                elif node.op == "from_tensor_slices" and node.id not in source.datasets:
                    built[node.id] = _over_entries(node, source, pipeline).entries()
                else:
                    built[node.id] = _build(node, source, above)
        result = built[pipeline.output.id]
        changed = {
            name: value for name, value in pipeline.options.items() if source.pipeline.options.get(name) != value
        }
        built[OUTPUT] = result.with_options(options_of(changed)) if changed else result
        return built


def options_of(values: Mapping[str, Any]) -> tf.data.Options:
    """`tf.data.Options` from dotted names."""
    options = tf.data.Options()
    for name, value in values.items():
        target: Any = options
        *path, last = name.split(".")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, _NAMED[name][value] if name in _NAMED and isinstance(value, str) else value)
    return options


_NAMED: Mapping[str, Any] = {"autotune.autotune_algorithm": tf.data.experimental.AutotuneAlgorithm}
"""Options whose values are members of an enumeration: an edit holds the name of one."""


def _build(node: Node, source: live.LivePipeline, above: list[Any]) -> Any:
    original = source.datasets.get(node.id)
    if original is not None:
        before = source.pipeline[node.id]
        same_form = before.function is None or node.function is None or before.function.form == node.function.form
        same_inputs = len(before.inputs) == len(above) and all(
            source.datasets[name] is dataset for name, dataset in zip(before.inputs, above, strict=True)
        )
        if same_inputs and same_form and dict(before.arguments) == dict(node.arguments):
            return original
    if node.function is not None and node.function.first:
        return _mapped(node, fusion.fused(source, (*node.function.first, node.id)), original, above[0])
    builder = _BUILDERS.get(node.op)
    if builder is None or (original is None and node.op in _NEED_ORIGINAL):
        raise CannotReplay(
            f"The step {node.title} cannot be rebuilt on another upstream.",
            hint="Rewrites above it are left out.",
        )
    return builder(node, original, _structured(original, above))


def _structured(original: Any, above: list[Any]) -> list[Any]:
    """The input in the structure `original` got it in: `unbatch` and `rebatch` first flatten it by a map."""
    given = private.inputs(original) if original is not None else ()
    if len(given) != 1 or len(above) != 1 or not operators.kind_of(given[0]).transparent:
        return above
    spec = given[0].element_spec
    if above[0].element_spec != private.inputs(given[0])[0].element_spec:
        spec = tf.nest.pack_sequence_as(spec, tf.nest.flatten(above[0].element_spec))
    return [private.restructured(above[0], spec)]


def _argument(node: Node, name: str, default: Any) -> Any:
    value = node.arguments.get(name)
    return default if value is None else value


def _map(node: Node, original: Any, above: list[Any]) -> Any:
    function = original._map_func
    if node.function is not None and node.function.called_on_batches:
        function = forms.in_form(private.python_function(function), node.function.form, above[0].element_spec)
    elif node.function is not None and node.function.form is FunctionForm.DECODE_AND_CROP:
        function = cropped.decoding_window(function)
    elif node.function is not None and node.function.form in SCALES:
        function = shrinking.decoding_smaller(function, node.function.form)
    elif node.function is not None and node.function.form is FunctionForm.ON_ENTRIES:
        function = generators.replace_generator(original, node.function.digest).load
    return _mapped(node, function, original, above[0])


def _part(function: FunctionFacts, original: Any, above: Any) -> Any:
    """The part of the function of `original` that `function` is, for elements as `above` has them."""
    assert function.cut is not None
    whole = cutting.Cuttable(original._map_func)
    if function.form is FunctionForm.HEAD:
        return whole.head(function.cut.position)
    if function.form is FunctionForm.TAIL:
        return whole.tail(function.cut.position)
    rows = tf.nest.flatten(above.element_spec)[0].shape[0]
    return whole.tail_on_batches(function.cut.position, rows)[0]


def _over_entries(node: Node, source: live.LivePipeline, pipeline: Pipeline) -> generators.OverEntries:
    """The generator whose entries an edit has this source put out."""
    loads = next(below for below in pipeline.downstream(node.id) if below.id in source.datasets)
    assert loads.function is not None
    return generators.replace_generator(source.datasets[loads.id], loads.function.digest)


def _gather(node: Node, source: live.LivePipeline, pipeline: Pipeline) -> Any:
    windows = node.gathering.windows if node.gathering is not None else None
    return gathering.gather_from(source.datasets[pipeline.source_of(node.id).id], windows)


def _mapped(node: Node, function: Any, original: Any, above: Any) -> Any:
    calls = node.argument("num_parallel_calls")
    if calls is None:
        forced = bool(getattr(original, "_force_synchronous", False))
        return above.map(function, synchronous=True if forced else None)
    return above.map(function, num_parallel_calls=calls, deterministic=node.argument("deterministic"))


def _predicate(node: Node, original: Any) -> Any:
    again = node.function is not None and node.function.form is FunctionForm.ON_INPUT
    return private.python_function(original._predicate) if again else original._predicate


def _interleave(node: Node, original: Any, above: list[Any]) -> Any:
    calls = node.argument("num_parallel_calls")
    return above[0].interleave(
        original._map_func,
        cycle_length=node.argument("cycle_length"),
        block_length=node.argument("block_length"),
        num_parallel_calls=calls,
        deterministic=node.argument("deterministic") if calls is not None else None,
    )


def _reader(node: Node, original: Any, above: list[Any]) -> Any:
    """A reader of the same files; it takes what its constructor took before, each kept under its own name."""
    names = ("compression_type", "buffer_size", "record_bytes", "header_bytes", "footer_bytes")
    kept = {name: getattr(original, f"_{name}") for name in names if hasattr(original, f"_{name}")}
    files = above[0] if above else original._filenames
    return type(original)(files, num_parallel_reads=node.argument("num_parallel_reads"), **kept)


def _batch(node: Node, _original: Any, above: list[Any]) -> Any:
    calls = node.argument("num_parallel_calls")
    return above[0].batch(
        node.argument("batch_size"),
        drop_remainder=bool(node.argument("drop_remainder")),
        num_parallel_calls=calls,
        deterministic=node.argument("deterministic") if calls is not None else None,
    )


def _padded_batch(node: Node, original: Any, above: list[Any]) -> Any:
    return above[0].padded_batch(
        node.argument("batch_size"),
        padded_shapes=original._padded_shapes,
        padding_values=original._padding_values,
        drop_remainder=bool(node.argument("drop_remainder")),
    )


def _shuffle(node: Node, original: Any, above: list[Any]) -> Any:
    reshuffle = _argument(node, "reshuffle_each_iteration", True)
    if original is None:
        return above[0].shuffle(node.argument("buffer_size"), reshuffle_each_iteration=reshuffle)
    with private.seeds_given(original._seed, original._seed2):
        return above[0].shuffle(node.argument("buffer_size"), reshuffle_each_iteration=reshuffle)


def _group_by_window(_node: Node, original: Any, above: list[Any]) -> Any:
    return above[0].group_by_window(
        original._key_func, original._reduce_func, window_size_func=original._window_size_func
    )


def _window(node: Node, _original: Any, above: list[Any]) -> Any:
    return above[0].window(
        node.argument("size"),
        shift=node.argument("shift"),
        stride=_argument(node, "stride", 1),
        drop_remainder=bool(node.argument("drop_remainder")),
    )


def _to_ragged(_node: Node, original: Any, above: list[Any]) -> Any:
    before, after = tf.nest.flatten(private.inputs(original)[0].element_spec), tf.nest.flatten(original.element_spec)
    kinds = [new.row_splits_dtype for old, new in zip(before, after, strict=True) if old != new]
    return type(original)(above[0], kinds[0] if kinds else tf.int64)


def _rebatch(_node: Node, original: Any, above: list[Any]) -> Any:
    return type(original)(above[0], original._batch_sizes, original._drop_remainder)


def _zip(_node: Node, original: Any, above: list[Any]) -> Any:
    return tf.data.Dataset.zip(tf.nest.pack_sequence_as(original._datasets, above))


def _choose(_node: Node, original: Any, above: list[Any]) -> Any:
    return type(original)(above[0], list(above[1:]), original._stop_on_empty_dataset)


def _copy_to_device(node: Node, original: Any, above: list[Any]) -> Any:
    host = private.source_device(original) if original is not None else "/cpu:0"
    return above[0].apply(tf.data.experimental.copy_to_device(node.argument("target_device"), host))


def _assert_cardinality(node: Node, _original: Any, above: list[Any]) -> Any:
    return above[0].apply(tf.data.experimental.assert_cardinality(node.argument("expected_cardinality")))


_BUILDERS: Mapping[str, Callable[[Node, Any, list[Any]], Any]] = {
    "range": lambda node, original, above: tf.data.Dataset.range(
        node.argument("start"), node.argument("stop"), node.argument("step")
    ),
    "TFRecordDataset": _reader,
    "TextLineDataset": _reader,
    "FixedLengthRecordDataset": _reader,
    "map": _map,
    "interleave": _interleave,
    "flat_map": lambda node, original, above: above[0].flat_map(original._map_func),
    "filter": lambda node, original, above: above[0].filter(_predicate(node, original)),
    "take_while": lambda node, original, above: above[0].take_while(original._predicate),
    "scan": lambda node, original, above: above[0].scan(original._initial_state, original._scan_func),
    "group_by_window": _group_by_window,
    "batch": _batch,
    "padded_batch": _padded_batch,
    BUCKETS: lambda node, original, above: buckets.bucketed(node, above[0]),
    "unbatch": lambda node, original, above: type(original)(above[0]),
    "rebatch": _rebatch,
    "to_ragged": _to_ragged,
    "shuffle": _shuffle,
    "repeat": lambda node, original, above: above[0].repeat(_argument(node, "count", -1)),
    "take": lambda node, original, above: above[0].take(node.argument("count")),
    "skip": lambda node, original, above: above[0].skip(node.argument("count")),
    "shard": lambda node, original, above: above[0].shard(node.argument("num_shards"), node.argument("index")),
    "prefetch": lambda node, original, above: above[0].prefetch(node.argument("buffer_size")),
    "cache": lambda node, original, above: above[0].cache(_argument(node, "filename", "")),
    "window": _window,
    "ignore_errors": lambda node, original, above: above[0].ignore_errors(),
    "unique": lambda node, original, above: above[0].unique(),
    "concatenate": lambda node, original, above: above[0].concatenate(above[1]),
    "zip": _zip,
    "choose": _choose,
    "with_options": lambda node, original, above: above[0].with_options(
        original.options() if original is not None else options_of(node.arguments)
    ),
    "assert_cardinality": _assert_cardinality,
    "copy_to_device": _copy_to_device,
}

_NEED_ORIGINAL = frozenset(
    {"map", "interleave", "flat_map", "filter", "take_while", "scan", "group_by_window", "padded_batch", "to_ragged",
     "unbatch", "rebatch", "zip", "choose", "TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"}
)  # fmt: skip

assert {BUCKETS, *(kind.op for kind in operators.KINDS.values())} >= set(_BUILDERS), "a builder for an unknown operator"
