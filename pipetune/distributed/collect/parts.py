"""Converts a live pipeline to the plain values from which a stand-alone module is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import Definition, FunctionSource, SourceText, StandaloneParts
from pipetune.core.edits import Remove, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.operators import READERS
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.collect import function_sources
from pipetune.pipelines import live
from pipetune.pipelines.gathering import source_arrays
from pipetune.pipelines.replay import reader_arguments

_MOST_NAMES = 1_000  # file names written as a list, at most
_MOST_VALUES = 64  # values written as constants, at most


def collect(source: live.LivePipeline, pipeline: Pipeline) -> tuple[StandaloneParts, Any]:
    """Returns the parts of a stand-alone module of `pipeline`, an edited form of `source`.

    Beside them the arrays that the caller of the module has to pass as `source`; None if it takes none.

    Raises:
        CannotExpress: a source or a function cannot be written as text; the message says which and why.
    """
    sources: dict[str, SourceText] = {}
    functions: dict[str, FunctionSource] = {}
    extra: dict[str, Mapping[str, str]] = {}
    parameter = None
    makers: dict[str, str] = {}
    pipeline = apply_edits(pipeline, [Remove(name) for name in _maps_of_unbatch(source, pipeline)])
    for node in pipeline:
        dataset = source.datasets.get(node.id)
        if dataset is None:  # inserted by an edit
            continue
        if not node.inputs:
            sources[node.id] = text = _source_text(node, dataset, pipeline)
            if text.takes_source:
                parameter = source_arrays(dataset)
        attributes = live.kind_of(dataset).functions
        if attributes and node.op != "from_generator":
            if len(attributes) > 1:
                raise CannotExpress(f"The operator {node.title} has no known distributed form.")
            described = function_sources.describe(node, getattr(dataset, attributes[0])._func, makers)
            several = any(type(above.element_spec) is tuple for above in tensorflow_private.inputs(dataset))
            functions[node.id] = replace(described, unpacks_tuple=several)
        extra[node.id] = _extra(node, dataset)
    processors = len(os.sched_getaffinity(0))
    return StandaloneParts(pipeline, sources, functions, extra, processors), parameter


def _maps_of_unbatch(source: live.LivePipeline, pipeline: Pipeline) -> Iterator[str]:
    """Yields the maps that TensorFlow puts in front of each `unbatch`, as it does again where `unbatch` is called."""
    for node in pipeline:
        if node.op == "unbatch" and node.id in source.datasets:
            (given,) = tensorflow_private.inputs(source.datasets[node.id])
            made_of = tensorflow_private.inputs(given) if live.kind_of(given).transparent else ()
            if source.datasets.get(node.inputs[0]) in made_of:
                yield node.inputs[0]


def _extra(node: Node, dataset: Any) -> dict[str, str]:
    """Returns the source text of the arguments that `Node.arguments` does not contain."""
    if node.op in READERS:
        found = {**reader_arguments(dataset), "num_parallel_reads": None}
        found |= {name: value for name, value in node.arguments.items() if name in found}
        return {name: _number(value) for name, value in found.items() if value not in (None, "")}
    if node.op == "zip":
        numbered = [f"{{{number}}}" for number in range(len(node.inputs))]  # inputs are in the order of `tf.nest`
        return {"datasets": _placeholders(tf.nest.pack_sequence_as(dataset._datasets, numbered))}
    if node.op == "padded_batch":
        shapes = node.argument("padded_shapes")
        if shapes is None:
            raise CannotExpress(f"{node.title} of elements that are not tensors, dicts or tuples cannot be written.")
        padding = getattr(dataset, "_padding_values", ())  # of a batch that an edit makes a padded one: zeros
        found_padding = {} if _all_zero(padding) else {"padding_values": function_sources.literal(padding)}
        return {"padded_shapes": str(shapes), **found_padding}
    return {}


def _number(value: Any) -> str:
    plain = live.to_json_value(value)
    return "tf.data.AUTOTUNE" if plain == -1 else live.key_text(plain)


def _placeholders(structure: Any) -> str:
    """Returns a structure of replacement fields as a format string; braces of dicts are doubled."""
    if isinstance(structure, str):
        return structure
    if isinstance(structure, dict):
        items = (f"{live.key_text(key)}: {_placeholders(item)}" for key, item in structure.items())
        return "{{" + ", ".join(items) + "}}"
    if isinstance(structure, tuple) and not hasattr(structure, "_fields"):
        return f"({', '.join(map(_placeholders, structure))}{',' if len(structure) == 1 else ''})"
    raise CannotExpress(f"zip of a {type(structure).__name__} of datasets has no known distributed form.")


def _all_zero(padding: Any) -> bool:
    return all(not np.any(np.asarray(value.numpy() != (b"" if value.dtype == tf.string else 0)))
               for value in tf.nest.flatten(padding))  # fmt: skip


def _source_text(node: Node, dataset: Any, pipeline: Pipeline) -> SourceText:
    """Returns the text of a source: file names, numbers and small arrays are written, large arrays become a parameter.

    Raises:
        CannotExpress: no text would produce the same data; the message says why.
    """
    if node.op in READERS:
        return _files(_strings(dataset._filenames))
    if node.id in pipeline.row_index_operators:
        gathered = next(below.gathering for below in pipeline.downstream(node.id) if below.gathers_rows)
        if live.kind_of(dataset).op != "from_tensor_slices" or (gathered is not None and gathered.windows):
            raise CannotExpress("Windows that are gathered by their numbers have no known distributed form.")
        return replace(_in_memory("from_tensors", dataset), count=int(dataset.cardinality()), gathers_rows=True)
    if node.op == "range":
        start, stop, step = (node.argument(name) for name in ("start", "stop", "step"))
        last = "tf.int64.max" if stop == tf.int64.max else stop  # of `enumerate`
        dtype = dataset.element_spec.dtype
        kind = "" if dtype == tf.int64 else f", output_type=tf.{dtype.name}"
        expression = f"tf.data.Dataset.range({start}, {last}, {step}{kind})"
        return SourceText(int(dataset.cardinality()), expression=expression)
    if node.op in ("from_tensor_slices", "from_tensors"):
        names = _strings(dataset) if node.op == "from_tensor_slices" else None
        if names and (_reads_files(pipeline, node) or _exist(names)):
            return _files(names)
        return _in_memory(node.op, dataset)
    if node.op == "from_generator":
        raise CannotExpress(
            "The data comes from a Python generator, and nothing shows that it yields the same elements in "
            "the same order on every worker.",
            hint="Write the data to files, or give the generator its worker's part and shard there.",
        )
    raise CannotExpress(f"The source {node.title} has no known distributed form.")


def _strings(dataset: Any) -> tuple[str, ...] | None:
    """Returns the elements of an in-memory dataset of scalar strings in UTF-8; None for other datasets."""
    tensors = getattr(dataset, "_tensors", None)
    if tensors is None or len(tensors) != 1 or tensors[0].dtype != tf.string or tensors[0].shape.rank != 1:
        return None
    with contextlib.suppress(UnicodeDecodeError):
        return tuple(value.decode() for value in tensors[0].numpy().tolist())
    return None


def _files(names: tuple[str, ...] | None) -> SourceText:
    if names is None:
        raise CannotExpress("The file names come from another dataset, or are not in UTF-8.")
    pattern = _pattern(names)
    if not pattern and len(names) > _MOST_NAMES:
        raise CannotExpress(f"{len(names)} file names follow no pattern, which is too many to write down.")
    return SourceText(len(names), pattern=pattern, names=() if pattern else names)


def _pattern(names: Sequence[str]) -> str:
    """Returns a glob pattern that matches exactly these names in this order; '' if there is none."""
    folders = {os.path.dirname(name) for name in names}
    if len(names) < 2 or len(folders) > 1 or list(names) != sorted(set(names)):
        return ""
    bases = [os.path.basename(name) for name in names]
    start_of = os.path.commonprefix  # character by character
    prefix, suffix = start_of(bases), start_of([base[::-1] for base in bases])[::-1]
    if any(character in "".join((*folders, prefix, suffix)) for character in "*?[]{}\\"):
        return ""
    with contextlib.suppress(tf.errors.OpError, UnicodeDecodeError):  # a folder whose files cannot be listed
        for start, end in ((prefix.rstrip("0123456789"), suffix.lstrip("0123456789")), (prefix, suffix)):
            pattern = os.path.join(*folders, f"{start}*{end}")
            if sorted(tf.io.gfile.glob(pattern)) == list(names):
                return pattern
    return ""


def _exist(names: Sequence[str]) -> bool:
    with contextlib.suppress(tf.errors.OpError):  # as for "http://", which TensorFlow does not read
        return all("." in os.path.basename(name) and tf.io.gfile.exists(name) for name in (names[0], names[-1]))
    return False


def _reads_files(pipeline: Pipeline, node: Node) -> bool:
    """Whether the elements of a source are names of files that a downstream operator reads."""
    return node.made_by_list_files or any(
        below.op in READERS
        or any(kind.startswith(tuple(READERS)) for kind in below.inner)
        or (below.function is not None and below.function.reads_files)
        for below in pipeline.downstream(node.id)
    )


def _in_memory(op: str, dataset: Any) -> SourceText:
    count = int(dataset.cardinality())
    constructor = f"tf.data.Dataset.{op}"
    tensors = getattr(dataset, "_tensors", None)
    if tensors is None or not all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(dataset.element_spec)):
        raise CannotExpress(f"The data of {op} in memory is ragged or sparse.")
    if sum(int(np.prod(tensor.shape)) for tensor in tensors) <= _MOST_VALUES:
        with contextlib.suppress(CannotExpress):
            text = function_sources.literal(source_arrays(dataset))
            needed = tuple(Definition(*pair) for pair in function_sources.names_of_modules(text))
            return SourceText(count, expression=f"{constructor}({text})", definitions=needed)
    return SourceText(count, expression=f"{constructor}(source)", takes_source=True)
