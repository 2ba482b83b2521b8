"""Facts about a traced function, read from its graph and the graphs of every function it calls."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import FunctionFacts
from pipetune.pipelines.graphs import DATASET_OP, GENERATOR_OPS, PYTHON_OPS, draws
from pipetune.pipelines.objects import inherits, live_instances
from pipetune.pipelines.where_to_cond import array_selections

_WRITES = frozenset(
    {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceStridedSliceAssign"}
    | {f"ResourceScatter{kind}" for kind in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Update")}
    | {f"ResourceScatterNd{kind}" for kind in ("Add", "Max", "Min", "Sub", "Update")}
)
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
_TABLE_WRITES = frozenset({"LookupTableInsertV2", "LookupTableRemoveV2"})
# An import also fills a static table that is created while the function is traced: it then takes the same pairs only.
_TABLE_READS = frozenset({"LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2", "LookupTableImportV2"})
VALUE_CHECKS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "EnsureShape"})
_FILE_READS = frozenset({"ReadFile", "WholeFileReaderV2", "MatchingFiles"})
_NO_SIDE_EFFECT = frozenset(
    {"Placeholder", "StatefulPartitionedCall", "PartitionedCall", "If", "While", "StatelessIf", "StatelessWhile",
     "Case", "_Arg", "_Retval", "AnonymousSeedGenerator", "DummySeedGenerator", "AnonymousHashTable",
     "HashTableV2", "VarHandleOp", "InitializeTableV2", "DatasetToSingleElement", "ReduceDataset"}
).union(VALUE_CHECKS, PYTHON_OPS, GENERATOR_OPS, _WRITES, _READS, _TABLE_WRITES, _TABLE_READS, _FILE_READS)  # fmt: skip
"""Ops without any, or with one that another fact states."""


def read_facts(wrapper: Any) -> FunctionFacts:
    """Returns the facts of a dataset's function (a `StructuredFunctionWrapper`); assumes the worst if unreadable."""
    name = getattr(getattr(wrapper, "_func", None), "__name__", "function")
    try:
        concrete = wrapper.function
        graph_def = concrete.graph.as_graph_def()
    except AttributeError:
        return FunctionFacts(name=name, digest="unreadable", python=True, side_effects=("unreadable",))
    nodes = list(all_nodes(graph_def))
    types = sorted({node.op for node in nodes})
    drawing = [node for node in nodes if draws(node.op) and not DATASET_OP.search(node.op)]
    shuffles = [node for node in nodes if node.op.startswith(("Shuffle", "Random", "Sampling"))
                and DATASET_OP.search(node.op)]  # fmt: skip
    variables = tuple(sorted({variable.name for variable in concrete.graph.variables}))
    # Keras's SeedGenerator keeps its state in a variable of this name and draws with stateless ops.
    seeded = all(node.attr["seed"].i or node.attr["seed2"].i for node in drawing)
    generator = any(kind in GENERATOR_OPS for kind in types) or any("seed_generator" in name for name in variables)
    return FunctionFacts(
        name=name,
        digest=_digest(graph_def),
        operations=tuple(types),
        size=len(nodes),
        random=bool(drawing or shuffles or generator),
        seeded=bool(drawing) and not generator and not shuffles and seeded,
        random_python=generator,
        python=any(kind in PYTHON_OPS for kind in types),
        reads_variables=variables,
        # A variable that is read by its handle alone has no name: it may be one that training writes.
        writes_variables=any(kind in (_WRITES if variables else _WRITES | _READS) for kind in types),
        mutable_tables=any(kind in _TABLE_WRITES for kind in types)
        or (any(kind in _TABLE_READS for kind in types) and _captures_mutable_table(concrete)),
        side_effects=tuple(kind for kind in types if _has_side_effect(kind)),
        reads_files=any(kind in _FILE_READS for kind in types),
        can_raise=any(kind in VALUE_CHECKS for kind in types),
        unordered=any("deterministic" in node.attr and node.attr["deterministic"].s == b"false" for node in nodes),
        selections=array_selections(concrete.graph),
        hands_on=_passed_through(concrete),
    )


def _passed_through(concrete: Any) -> tuple[int, ...]:
    """Returns, per output component, the index of the input component that it is a copy of; -1 for any other."""
    graph = concrete.graph
    given = graph.inputs[: len(graph.inputs) - len(concrete.captured_inputs)]
    places = {id(tensor): place for place, tensor in enumerate(given)}
    return tuple(places.get(id(without_identity(tensor)), -1) for tensor in graph.outputs)


def operations(concrete: Any) -> set[str]:
    """Returns the op types of a `ConcreteFunction`, and of all functions in it."""
    return {node.op for node in all_nodes(concrete.graph.as_graph_def())}


def written_captures(concrete: Any) -> set[int]:
    """Returns the indices in `captured_inputs` of the variables that a function writes, itself or in a function in it.

    Args:
        concrete: a `ConcreteFunction`.
    """
    graph_def = concrete.graph.as_graph_def()
    bodies = {function.signature.name: function for function in graph_def.library.function}

    @functools.cache
    def written_in(name: str) -> frozenset[int]:
        body = bodies[name]
        return written_by(body.node_def, [argument.name for argument in body.signature.input_arg])

    def written_by(nodes: Sequence[Any], arguments: Sequence[str]) -> frozenset[int]:
        """Returns which of its arguments are written, counted from the last one, which is -1."""
        given = {name: place - len(arguments) for place, name in enumerate(arguments)}
        copies = {node.name: _name(node.input[0]) for node in nodes if node.op == "Identity"}
        found = set()
        for node in nodes:
            inputs = [_name(one) for one in node.input if not one.startswith("^")]
            called = {name for name in called_functions(node) if name in bodies}
            # What a function captures are its last arguments, whatever kind of operator calls it.
            places = {place for name in called for place in written_in(name) if -place <= len(inputs)}
            if node.op in _WRITES or node.op.startswith(("ResourceApply", "ResourceSparseApply")):
                places.add(-len(inputs))
            for written in (inputs[place] for place in places):
                while written in copies:
                    written = copies[written]
                found.add(given.get(written, 0))
        return frozenset(found - {0})

    captured, inputs = len(concrete.captured_inputs), [tensor.op.name for tensor in concrete.graph.inputs]
    return {captured + place for place in written_by(graph_def.node, inputs) if -place <= captured}


def called_functions(node: Any) -> Iterator[str]:
    """Yields the names of the functions that a node calls or passes to a dataset."""
    for reference in function_references(node):
        yield reference.name


def function_references(node: Any) -> Iterator[Any]:
    """Yields the function references (NameAttrList) in a node's attributes, in a fixed order, to read or modify."""
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.WhichOneof("value") == "func":
            yield value.func
        elif value.WhichOneof("value") == "list":
            yield from value.list.func


def _name(tensor: str) -> str:
    """Returns the name of the operator, or the argument of a function, that gives the input of a node."""
    return tensor.partition(":")[0]


def without_identity(tensor: Any) -> Any:
    """Returns the tensor that `tensor` copies through any number of `Identity` ops, or `tensor` itself."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def inner_operators(wrapper: Any) -> tuple[str, ...]:
    """Returns the op types of the datasets that a function creates (`TFRecordDatasetV2`, `MapDataset`), sources first.

    In the graph, a file reader is a flat_map over its file names; here it is the one reader that the user wrote.
    """
    try:
        graph_def = wrapper.function.graph.as_graph_def()
    except AttributeError:
        return ()
    bodies = {function.signature.name: function.node_def for function in graph_def.library.function}
    datasets = {node.name: node for node in graph_def.node if DATASET_OP.search(node.op)}
    kinds = {name: node.op for name, node in datasets.items()}
    for name, node in datasets.items():
        made = [inner.op for inner in bodies.get(node.attr["f"].func.name, ()) if DATASET_OP.search(inner.op)]
        if len(made) == 1 and made[0].startswith(_READERS):
            kinds[name] = made[0]
            if datasets.get(node.input[0], node).op == "TensorSliceDataset":
                kinds.pop(node.input[0], None)  # another reader of the same names may have been in front of this one
    return tuple(kinds.values())


_READERS = ("TFRecord", "TextLine", "FixedLength")


def all_nodes(graph_def: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of all functions in it."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _has_side_effect(kind: str) -> bool:
    if kind in _NO_SIDE_EFFECT or tensorflow_private.op_has_seed(kind) or DATASET_OP.search(kind):
        return False
    return tensorflow_private.op_is_stateful(kind)


def _captures_mutable_table(concrete: Any) -> bool:
    handles = {id(tensor) for tensor in concrete.captured_inputs if tensor.dtype == tf.resource}
    if not handles:
        return True  # the table is created inside the function and cannot be inspected
    mutable = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)
    return any(id(table.resource_handle) in handles for table in live_instances(lambda kind: inherits(kind, *mutable)))


def _digest(graph_def: Any) -> str:
    """Returns a hash of the graph with names replaced by positions: counters in names grow during a process."""
    bodies = {function.signature.name: function for function in graph_def.library.function}
    known: dict[str, str] = {}

    def digest(nodes: Sequence[Any], arguments: Sequence[str] = (), results: Sequence[str] = ()) -> str:
        names = {name: f"argument {index}" for index, name in enumerate(arguments)}
        names.update({node.name: str(index) for index, node in enumerate(nodes)})
        lines = []
        for node in nodes:
            inputs = [_reference(name, names) for name in node.input]
            kept = [key for key in sorted(node.attr) if key not in _IGNORED_ATTRIBUTES and not key.startswith("_")]
            attributes = [f"{key}={_attribute(node.attr[key], called)}" for key in kept]
            lines.append(" ".join([node.op, *inputs, *attributes]))
        lines += [_reference(name, names) for name in results]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def called(name: str) -> str:
        if name not in known:
            known[name] = "recursive"
            body = bodies.get(name)
            known[name] = "external" if body is None else digest(
                body.node_def,
                [argument.name for argument in body.signature.input_arg],
                [body.ret[result.name] for result in body.signature.output_arg],
            )  # fmt: skip
        return known[name]

    return digest(graph_def.node)


def _reference(name: str, names: Mapping[str, str]) -> str:
    """Returns an input (`node:port` or `^node`) with the node's position in place of its name."""
    node, _, port = name.lstrip("^").partition(":")
    return f"{'^' if name.startswith('^') else ''}{names.get(node, 'unknown')}:{port or 0}"


_IGNORED_ATTRIBUTES = frozenset(
    {"seed", "seed2", "token", "shared_name", "container", "metadata", "experimental_debug_stream_id", "config_proto",
     "executor_type", "config"}
)  # fmt: skip


def _attribute(value: Any, called: Callable[[str], str]) -> str:
    kind = value.WhichOneof("value")
    if kind == "func":
        return called(value.func.name)
    if kind == "list" and value.list.func:
        return ",".join(called(function.name) for function in value.list.func)
    if kind == "tensor":
        content = value.tensor.SerializeToString(deterministic=True)
        if len(content) > 1024 or any(os.sep.encode() in text for text in value.tensor.string_val):
            return "constant"
        return hashlib.sha256(content).hexdigest()[:16]
    return str(value.SerializeToString(deterministic=True))
