"""Reads the `Pipeline` of a live dataset object, whether its call sites were recorded or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.functions import FunctionFacts
from pipetune.core.pipeline import Node, Pipeline, Value
from pipetune.tf import private
from pipetune.tf.pipelines import functions, operators
from pipetune.tf.script import capture


@dataclass(frozen=True)
class LivePipeline:
    """A `Pipeline` and the live dataset of each of its nodes."""

    pipeline: Pipeline
    datasets: Mapping[str, Any]

    @property
    def dataset(self) -> Any:
        """The dataset the consumer iterates."""
        return self.datasets[self.pipeline.output.id]


def read(dataset: Any, *, name: str = "dataset") -> LivePipeline:
    """Reads the pipeline that ends in `dataset`; what cannot be read becomes an opaque node, never an error."""
    order: list[Any] = []
    _visit(dataset, order, set())
    ids = {id(live): f"n{index}" for index, live in enumerate(order)}
    deterministic = _interleave_determinism(order, dataset)
    nodes = tuple(_node(live, ids, deterministic) for live in order)
    pipeline = Pipeline(nodes=nodes, name=name, options=set_options(dataset))
    return LivePipeline(pipeline, {ids[id(live)]: live for live in order})


def set_options(dataset: Any) -> dict[str, Value]:
    """Returns the fields of `tf.data.Options` that were set explicitly, by dotted name."""
    found: dict[str, Value] = {}
    _flatten(dataset.options(), "", found)
    return found


# TensorFlow itself sets these when it merges options.
_SET_BY_ITSELF = frozenset({("experimental_distribute.auto_shard_policy", "AUTO")})


def _flatten(options: Any, prefix: str, found: dict[str, Value]) -> None:
    for name, value in sorted(options._options.items()):
        if hasattr(value, "_options"):
            _flatten(value, f"{prefix}{name}.", found)
        elif value is not None and (prefix + name, getattr(value, "name", "")) not in _SET_BY_ITSELF:
            found[prefix + name] = value.name if hasattr(value, "name") else operators.as_value(value)


def upstream(dataset: Any) -> tuple[Any, ...]:
    """Returns the datasets directly upstream of `dataset` as operators; wrappers that add nothing are skipped."""
    kind = operators.kind_of(dataset)
    if is_generator(dataset):
        return ()
    if kind.op in operators.READERS:
        files = dataset._filenames
        return () if operators.kind_of(files).op == "from_tensor_slices" else (files,)
    found = []
    for above in private.inputs(dataset):
        while operators.kind_of(above).transparent:
            (above,) = private.inputs(above)
        found.append(above)
    return tuple(found)


def is_generator(dataset: Any) -> bool:
    """Whether `dataset` is a `from_generator`: a flat_map over one tensor whose function creates the generator."""
    if operators.kind_of(dataset).op != "flat_map":
        return False
    above = private.inputs(dataset)
    if not above or operators.kind_of(above[0]).op != "from_tensors":
        return False
    return "GeneratorDataset" in functions.inner_operators(dataset._map_func)


def element_bytes(spec: Any) -> float | None:
    """Returns the bytes of one element; None unless every component is dense, of fixed shape and not a string."""
    total = 0
    for component in tf.nest.flatten(spec):
        shape, dtype = getattr(component, "shape", None), getattr(component, "dtype", None)
        if not isinstance(component, tf.TensorSpec) or shape is None or dtype is None or dtype == tf.string:
            return None
        count = shape.num_elements()
        if count is None:
            return None
        total += count * dtype.size
    return float(total)


def _visit(dataset: Any, order: list[Any], seen: set[int]) -> None:
    stack = [(dataset, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            order.append(current)
        elif id(current) not in seen:
            seen.add(id(current))
            stack.append((current, True))
            stack.extend((above, False) for above in reversed(upstream(current)))


def _node(dataset: Any, ids: Mapping[int, str], deterministic: Mapping[int, Value]) -> Node:
    kind = operators.kind_of(dataset)
    generator = is_generator(dataset)
    wrappers = [getattr(dataset, attribute) for attribute in kind.functions]
    facts = [functions.read_facts(wrapper) for wrapper in wrappers]
    arguments = operators.read_arguments(dataset, kind)
    if id(dataset) in deterministic:
        arguments["deterministic"] = deterministic[id(dataset)]
    if kind.op == "with_options":
        arguments = dict(set_options(dataset))
    return Node(
        id=ids[id(dataset)],
        op="from_generator" if generator else kind.op,
        inputs=tuple(ids[id(above)] for above in upstream(dataset)),
        arguments=arguments,
        function=_merge(facts),
        inner=functions.inner_operators(wrappers[0]) if len(wrappers) == 1 and not generator else (),
        location=capture.location(dataset),
        shared=capture.made_at_same_call(dataset),
        calls=capture.calls_around(dataset),
        other_calls=capture.calls_around_others(dataset),
        spec=str(dataset.element_spec),
        cardinality=int(dataset.cardinality()) if not private.executing_in_function() else -2,
        element_bytes=element_bytes(dataset.element_spec),
        label=operators.label_of(dataset) if kind is operators.OPAQUE else "",
    )


def _merge(facts: list[FunctionFacts]) -> FunctionFacts | None:
    """Merges the facts of an operator with several functions: everything that any of them does."""
    if len(facts) < 2:
        return facts[0] if facts else None
    return FunctionFacts(
        name=facts[0].name,
        digest="+".join(fact.digest for fact in facts),
        operations=tuple(sorted({kind for fact in facts for kind in fact.operations})),
        size=sum(fact.size for fact in facts),
        random=any(fact.random for fact in facts),
        seeded=all(fact.seeded for fact in facts if fact.random),
        random_python=any(fact.random_python for fact in facts),
        python=any(fact.python for fact in facts),
        reads_variables=tuple(sorted({name for fact in facts for name in fact.reads_variables})),
        writes_variables=any(fact.writes_variables for fact in facts),
        mutable_tables=any(fact.mutable_tables for fact in facts),
        side_effects=tuple(sorted({kind for fact in facts for kind in fact.side_effects})),
        reads_files=any(fact.reads_files for fact in facts),
        can_raise=any(fact.can_raise for fact in facts),
    )


def _interleave_determinism(order: list[Any], dataset: Any) -> dict[int, Value]:
    """Reads `deterministic` of parallel interleaves, by dataset id, from the graph: live objects do not keep it."""
    parallel = [live for live in order if type(live).__name__ == "_ParallelInterleaveDataset"]
    if not parallel:
        return {}
    graph = tf.compat.v1.GraphDef.FromString(private.serialized_graph(dataset))
    found = [
        node.attr["deterministic"].s.decode()
        for node in graph.node
        if node.op.startswith("ParallelInterleaveDataset")
    ]
    if len(found) != len(parallel):
        return {}
    words: dict[str, Value] = {"true": True, "false": False}
    return {id(live): words.get(text) for live, text in zip(parallel, found, strict=True)}
