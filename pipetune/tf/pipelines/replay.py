"""Builds the dataset of an edited `Pipeline` from the live one: traced functions, seeds and arrays are reused.

An operator that no edit touches, with nothing changed upstream of it, is the user's own object. The user's Python
functions are never called again, unless an edit changes the input of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import called, file_caches, live, operators
from pipetune.tf.pipelines.builders import BUILDERS, NEED_ORIGINAL, mapped, options_of

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def read(dataset: Any, *, name: str = "dataset") -> live.LivePipeline:
    """Like `live.read`, with datasets that write none of the script's files; the nodes keep their original arguments.

    If the pipeline cannot be rebuilt, the script's own datasets are used: the undo journal knows their files.
    """
    source = live.read(dataset, name=name)
    if not any(map(file_caches.is_to_be_moved, source.datasets.values())):
        return source
    try:
        datasets = replay_nodes(source, source.pipeline)
    except (CannotReplay, tf.errors.OpError, ValueError, TypeError):
        return source
    return live.LivePipeline(source.pipeline, {node.id: datasets[node.id] for node in source.pipeline})


def replay(source: live.LivePipeline, pipeline: Pipeline, *, given: Mapping[str, Any] | None = None) -> Any:
    """Returns the dataset that `pipeline` describes; see `replay_nodes`."""
    return replay_nodes(source, pipeline, given=given)[OUTPUT]


OUTPUT = ""
"""The key of the finished dataset, options included, in the result of `replay_nodes`."""


def replay_nodes(
    source: live.LivePipeline, pipeline: Pipeline, *, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the dataset of every node of `pipeline`, and under `OUTPUT` the one for the consumer to iterate.

    Args:
        source: the live pipeline the edits were made on.
        pipeline: the edited pipeline; ids of untouched operators are those of `source`.
        given: by node id, datasets to use in place of nodes (a recorded source); everything downstream is rebuilt.

    Raises:
        CannotReplay: an operator downstream of an edit cannot be rebuilt; the message names it.
    """
    given = given or {}
    built: dict[str, Any] = {}
    with private.reusing_traced_functions():
        for node in pipeline.nodes:
            if node.id in given:
                built[node.id] = given[node.id]
            elif all(name in built for name in node.inputs):
                built[node.id] = _build(node, source, pipeline, [built[name] for name in node.inputs])
        result = built[pipeline.output.id]
        changed = {
            name: value for name, value in pipeline.options.items() if source.pipeline.options.get(name) != value
        }
        built[OUTPUT] = result.with_options(options_of(changed)) if changed else result
        return built


def _build(node: Node, source: live.LivePipeline, pipeline: Pipeline, above: list[Any]) -> Any:
    original = source.datasets.get(node.id)
    if original is not None and _as_captured(node, source, above):
        return original
    if called.made_anew(node):
        if node.function is not None and node.function.part_of:
            original = source.datasets[node.function.part_of]
        return mapped(node, called.function_of(node, source, pipeline, above[0]), original, above[0])
    if (node.op != "map" and node.op not in BUILDERS) or (original is None and node.op in NEED_ORIGINAL):
        raise CannotReplay(
            f"The step {node.title} cannot be rebuilt on another upstream.",
            hint="Rewrites above it are left out.",
        )
    above = _structured(original, above)
    if node.op == "map":
        return mapped(node, called.function_of(node, source, pipeline, above[0]), original, above[0])
    return BUILDERS[node.op](node, original, above)


def _as_captured(node: Node, source: live.LivePipeline, above: list[Any]) -> bool:
    """Whether neither the operator nor anything upstream of it was changed."""
    before = source.pipeline[node.id]
    same_form = before.function is None or node.function is None or before.function.form == node.function.form
    if file_caches.is_to_be_moved(source.datasets[node.id]):
        return False
    same_inputs = len(before.inputs) == len(above) and all(
        source.datasets[name] is dataset for name, dataset in zip(before.inputs, above, strict=True)
    )
    return same_inputs and same_form and dict(before.arguments) == dict(node.arguments)


def _structured(original: Any, above: list[Any]) -> list[Any]:
    """Returns the input in the structure of that of `original`: `unbatch` and `rebatch` first flatten it by a map."""
    given = private.inputs(original) if original is not None else ()
    if len(given) != 1 or len(above) != 1 or not operators.kind_of(given[0]).transparent:
        return above
    spec = given[0].element_spec
    if above[0].element_spec != private.inputs(given[0])[0].element_spec:
        spec = tf.nest.pack_sequence_as(spec, tf.nest.flatten(above[0].element_spec))
    return [private.restructured(above[0], spec)]
