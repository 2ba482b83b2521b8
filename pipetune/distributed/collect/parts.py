"""Converts a live pipeline to the plain values from which a stand-alone module is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import FunctionSource, SourceText, StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.collect import python_literals
from pipetune.distributed.collect.function_sources import FunctionSources
from pipetune.distributed.collect.sources import describe as describe_source
from pipetune.pipelines import live
from pipetune.pipelines.gathering import source_arrays

_READER_ARGUMENTS = {
    "TFRecordDataset": ("compression_type", "buffer_size", "num_parallel_reads"),
    "TextLineDataset": ("compression_type", "buffer_size", "num_parallel_reads"),
    "FixedLengthRecordDataset": (
        "record_bytes", "header_bytes", "footer_bytes", "buffer_size", "compression_type", "num_parallel_reads"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """The parts, and the arrays that the caller of the module has to pass as `source`; None if it takes none."""

    parts: StandaloneParts
    parameter: Any = None


def collect(source: live.LivePipeline, pipeline: Pipeline) -> Parts:
    """Returns the parts of a stand-alone module of `pipeline`, an edited form of `source`.

    Raises:
        CannotExpress: a source or a function cannot be written as text; the message says which and why.
    """
    sources: dict[str, SourceText] = {}
    functions: dict[str, FunctionSource] = {}
    extra: dict[str, Mapping[str, str]] = {}
    parameter = None
    describer = FunctionSources()
    for node in pipeline:
        dataset = source.datasets.get(node.id)
        if dataset is None:  # inserted by an edit
            continue
        if not node.inputs:
            sources[node.id] = source_text = describe_source(node, dataset, pipeline)
            if source_text.takes_source:
                parameter = source_arrays(dataset)
        attributes = live.kind_of(dataset).functions
        if attributes and node.op != "from_generator":
            if len(attributes) > 1:
                raise CannotExpress(f"The operator {node.title} has no known distributed form.")
            described = describer.describe(node, getattr(dataset, attributes[0])._func)
            functions[node.id] = replace(described, unpacks_tuple=_gives_several(dataset))
        extra[node.id] = _extra(node, dataset)
    processors = len(os.sched_getaffinity(0))
    return Parts(StandaloneParts(pipeline, sources, functions, extra, processors), parameter)


def _gives_several(dataset: Any) -> bool:
    """Whether an operator calls its function with several arguments."""
    return any(type(above.element_spec) is tuple for above in tensorflow_private.inputs(dataset))


def _extra(node: Node, dataset: Any) -> dict[str, str]:
    """Returns the source text of the arguments that `Node.arguments` does not contain."""
    if node.op in _READER_ARGUMENTS:
        found = {name: getattr(dataset, f"_{name}", None) for name in _READER_ARGUMENTS[node.op]}
        found |= {name: value for name, value in node.arguments.items() if name in found}
        return {name: _number(value) for name, value in found.items() if value not in (None, "")}
    if node.op == "zip":
        return {"datasets": _placeholders(dataset._datasets)}
    if node.op == "padded_batch":
        shapes = node.argument("padded_shapes")
        if shapes is None:
            raise CannotExpress(f"{node.title} of elements that are not tensors, dicts or tuples cannot be written.")
        padding = getattr(dataset, "_padding_values", ())  # of a batch that an edit makes a padded one: zeros
        found_padding = {} if _all_zero(padding) else {"padding_values": python_literals.literal(padding)}
        return {"padded_shapes": str(shapes), **found_padding}
    return {}


def _number(value: Any) -> str:
    plain = live.to_json_value(value)
    return "tf.data.AUTOTUNE" if plain == -1 else live.key_text(plain)


def _placeholders(structure: Any) -> str:
    """Returns the structure of a zip as a format string, with `{}` for each input; braces of dicts are doubled."""
    if isinstance(structure, tensorflow_private.DatasetV2):
        return "{}"
    if isinstance(structure, dict):
        items = (f"{live.key_text(key)}: {_placeholders(item)}" for key, item in structure.items())
        return "{{" + ", ".join(items) + "}}"
    if isinstance(structure, tuple) and not hasattr(structure, "_fields"):
        return f"({', '.join(map(_placeholders, structure))}{',' if len(structure) == 1 else ''})"
    raise CannotExpress(f"zip of a {type(structure).__name__} of datasets has no known distributed form.")


def _all_zero(padding: Any) -> bool:
    return all(not np.any(np.asarray(value.numpy() != (b"" if value.dtype == tf.string else 0)))
               for value in tf.nest.flatten(padding))  # fmt: skip
