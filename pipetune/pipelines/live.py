"""Reads the `Pipeline` of a live dataset, and finds the script's other live datasets that the same call has made: a
helper that builds training and validation data."""

from __future__ import annotations

import inspect
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import string_literal
from pipetune.core.functions import FunctionFacts, with_effects_of
from pipetune.core.operators import CAUTIOUS, OPERATORS, READERS, Role, operator_facts
from pipetune.core.pipeline import INFINITE, SERVICE, Node, Pipeline, Value
from pipetune.pipelines import call_sites, functions
from pipetune.pipelines.graphs import reachable
from pipetune.pipelines.objects import live_instances


@dataclass(frozen=True)
class OperatorKind:
    """How to read one dataset class: its operator, and the attributes that hold its arguments and its functions."""

    op: str
    arguments: Mapping[str, str] = field(default_factory=dict)  # public argument -> attribute of the object
    functions: tuple[str, ...] = ()
    transparent: bool = False  # internal wrapper that adds nothing: not shown as an operator


KINDS: Mapping[str, OperatorKind] = {
    name: OperatorKind(
        op,
        {one.name: one.kept_in for one in facts.parameters if one.plain},
        tuple(one.kept_in for one in facts.parameters if one.role is Role.FUNCTION),
    )
    for op, facts in OPERATORS.items()
    for name in facts.classes
} | {"_RestructuredDataset": OperatorKind("restructure", transparent=True)}

OPAQUE = OperatorKind("opaque")

_LABELS: Mapping[str, str] = {"_DataServiceDatasetV2": SERVICE}


def label_of(dataset: Any) -> str:
    """Returns the display name of a live dataset that is opaque."""
    name = type(dataset).__name__
    return f"{KINDS[name].op} of datasets" if name in KINDS else _LABELS.get(name, name)


def holds_datasets(dataset: Any) -> bool:
    """Whether components of the elements are datasets themselves."""
    return any(isinstance(part, tf.data.DatasetSpec) for part in tf.nest.flatten(dataset.element_spec))


def kind_of(dataset: Any) -> OperatorKind:
    """Returns the kind of a live dataset; `OPAQUE` for a class that pipetune does not know.

    And for values in memory that are datasets: nobody can see what these draw, read or run.
    """
    found = KINDS.get(type(dataset).__name__, OPAQUE)
    if operator_facts(found.op).source and holds_datasets(dataset):
        return OPAQUE
    return _COUNTER if found is OPAQUE and first_number(dataset) is not None else found


_COUNTER = OperatorKind("range")


def first_number(dataset: Any) -> int | None:
    """Returns where the endless range starts that `enumerate` zips with its input; None for other datasets.

    Only its variant is accessible (`Dataset.enumerate`, tensorflow/python/data/ops/dataset_ops.py).
    """
    if type(dataset).__name__ != "_VariantDataset" or dataset.element_spec != tf.TensorSpec((), tf.int64):
        return None
    if not tf.executing_eagerly() or int(dataset.cardinality()) != INFINITE:
        return None
    first, second = (int(tensorflow_private.element_at(dataset, place)) for place in (0, 1))
    if second != first + 1:
        return None
    # Not the first numbers of something else, as of `range(2).repeat()` that chooses among datasets.
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
    return first if {node.op for node in graph.node} == {"Const", "RangeDataset", "_Retval"} else None


_MAP_FLAGS = {"synchronous": "_force_synchronous", "use_unbounded_threadpool": "_use_unbounded_threadpool"}
"""Arguments of `map` that are False unless given, and the attributes that keep them."""


def read_arguments(dataset: Any, kind: OperatorKind) -> dict[str, Value]:
    """Returns the public arguments of a live dataset's operator as JSON values."""
    parameters = operator_facts(kind.op).parameters
    found: dict[str, Value] = dict.fromkeys(one.name for one in parameters if one.role is Role.PARALLEL)
    for name, attribute in kind.arguments.items():
        if hasattr(dataset, attribute):
            found[name] = to_json_value(getattr(dataset, attribute))
    if kind is _COUNTER:
        found |= {"start": first_number(dataset), "stop": tf.int64.max, "step": 1}
    if "deterministic" in found and isinstance(found["deterministic"], str):
        found["deterministic"] = {"true": True, "false": False}.get(found["deterministic"])
    if kind.op in READERS:
        found.setdefault("num_parallel_reads", _parallel_reads(dataset))
        count = int(dataset._filenames.cardinality()) if tf.executing_eagerly() else -1
        found["files"] = count if count >= 0 else None  # None if TensorFlow does not know how many there are
    if kind.op == "map":
        found |= {name: True for name in _MAP_FLAGS if getattr(dataset, _MAP_FLAGS[name], False)}
    if kind.op == "padded_batch":
        found["padded_shapes"] = shapes_text(dataset.element_spec, dataset._padded_shapes)
    if kind.op in ("random", "shuffle"):
        seeds = (to_json_value(dataset._seed), to_json_value(dataset._seed2))
        found["seed"] = None if seeds == (0, 0) else f"{seeds[0]},{seeds[1]}"
    return found


def _parallel_reads(reader: Any) -> Value:
    """Returns `num_parallel_reads` of a reader that does not keep it, from the dataset that it wraps."""
    made = reader._impl
    calls = getattr(made, "_num_parallel_calls", None)  # of the interleave that a reader with AUTOTUNE wraps
    return to_json_value(calls if calls is not None else getattr(made, "_cycle_length", None))


def shapes_text(spec: Any, shapes: Any) -> str | None:
    """Returns one shape per component of an element as source text: `{"tokens": [256], "length": []}`.

    Args:
        spec: an element spec, for its structure.
        shapes: shapes in that structure, as `Dataset.padded_batch` keeps or takes them; a size of -1 becomes None.

    Returns:
        None if elements contain anything but tensors, dicts and tuples.
    """
    if isinstance(spec, tf.TensorSpec):
        sizes = to_json_value(shapes)  # None in graph mode, where no value is known
        return repr([None if size == -1 else size for size in sizes]) if isinstance(sizes, tuple) else None
    if isinstance(spec, dict):
        items = {key: shapes_text(part, shapes[key]) for key, part in sorted(spec.items())}
        known = ", ".join(f"{key_text(key)}: {text}" for key, text in items.items())
        return "{" + known + "}" if None not in items.values() else None
    if isinstance(spec, tuple) and not hasattr(spec, "_fields"):
        parts = [shapes_text(part, shape) for part, shape in zip(spec, shapes, strict=True)]
        one = "," if len(parts) == 1 else ""
        return f"({', '.join(filter(None, parts))}{one})" if None not in parts else None
    return None


def key_text(key: Any) -> str:
    """Returns the key of a dict, or a plain value, as source text."""
    return string_literal(key) if isinstance(key, str) else repr(key)


def to_json_value(value: Any) -> Value:
    """Converts a tensor, NumPy scalar or plain value to a JSON value; None for what JSON cannot express.

    Of a tensor with axes, the first 64 values are returned in a flat tuple.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    except (AttributeError, NotImplementedError, ValueError):
        return None
    if array.ndim == 0:
        return to_json_value(array.item())
    return tuple(to_json_value(item) for item in array.reshape(-1)[:64].tolist())


@dataclass(frozen=True)
class LivePipeline:
    """A `Pipeline` and the live dataset of each of its nodes."""

    pipeline: Pipeline
    datasets: Mapping[str, Any]
    edited_functions: list[tuple[Any, Any]] = field(default_factory=list, repr=False, compare=False)
    """What edits have made of map functions, traced: (what determines it, the traced function); see `replay`."""

    @classmethod
    def of(cls, pipeline: Pipeline, datasets: Mapping[str, Any]) -> LivePipeline:
        """Returns the pipeline with its own of the datasets that `replay_nodes` has returned."""
        return cls(pipeline, {node.id: datasets[node.id] for node in pipeline})

    @property
    def dataset(self) -> Any:
        """The dataset the consumer iterates."""
        return self.datasets[self.pipeline.output.id]


def read(dataset: Any, *, name: str = "dataset") -> LivePipeline:
    """Returns the pipeline that ends in `dataset`; what cannot be read becomes an opaque node, never an error."""
    order, seen = list[Any](), set[int]()
    stack = [(dataset, False)]
    while stack:  # what is upstream of a dataset comes before it
        current, expanded = stack.pop()
        if expanded:
            order.append(current)
        elif id(current) not in seen:
            seen.add(id(current))
            stack.append((current, True))
            stack.extend((above, False) for above in reversed(upstream_datasets(current)))
    ids = {id(live): f"n{index}" for index, live in enumerate(order)}
    deterministic = _deterministic_interleaves(order, dataset)
    nodes = tuple(_node(live, ids, deterministic) for live in order)
    pipeline = Pipeline(nodes=nodes, name=name, options=explicit_options(dataset))
    return LivePipeline(pipeline, {ids[id(live)]: live for live in order})


def explicit_options(dataset: Any) -> dict[str, Value]:
    """Returns the fields of `tf.data.Options` that were set explicitly, by dotted name."""
    return dict(_options_set(dataset.options(), ""))


# TensorFlow itself sets these when it merges options.
_SET_BY_ITSELF = frozenset({("experimental_distribute.auto_shard_policy", "AUTO")})


def _options_set(options: Any, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, value in sorted(options._options.items()):
        if hasattr(value, "_options"):
            yield from _options_set(value, f"{prefix}{name}.")
        elif value is not None and (prefix + name, getattr(value, "name", "")) not in _SET_BY_ITSELF:
            yield prefix + name, value.name if hasattr(value, "name") else to_json_value(value)


def upstream_datasets(dataset: Any) -> tuple[Any, ...]:
    """Returns the datasets directly upstream of `dataset` as operators; wrappers that add nothing are skipped."""
    kind = kind_of(dataset)
    if is_generator(dataset):
        return ()
    if kind.op in READERS:
        files = dataset._filenames
        return () if kind_of(files).op == "from_tensor_slices" else (files,)
    found = []
    for above in tensorflow_private.inputs(dataset):
        while kind_of(above).transparent:
            (above,) = tensorflow_private.inputs(above)
        found.append(above)
    return tuple(found)


def is_generator(dataset: Any) -> bool:
    """Whether `dataset` is a `from_generator`: a flat_map over one tensor whose function creates the generator."""
    if kind_of(dataset).op != "flat_map":
        return False
    above = tensorflow_private.inputs(dataset)
    if not above or kind_of(above[0]).op != "from_tensors":
        return False
    return "GeneratorDataset" in functions.inner_operators(dataset._map_func)


def element_bytes(spec: Any) -> float | None:
    """Returns the bytes of one element; None unless every component is dense, of fixed shape and not a string."""
    total = 0
    for component in tf.nest.flatten(spec):
        if not isinstance(component, tf.TensorSpec) or component.dtype == tf.string:
            return None
        count = component.shape.num_elements()
        if count is None:
            return None
        total += count * component.dtype.size
    return float(total)


def _node(dataset: Any, ids: Mapping[int, str], deterministic: Mapping[int, Value]) -> Node:
    kind = kind_of(dataset)
    generator = is_generator(dataset)
    wrappers = [getattr(dataset, attribute) for attribute in kind.functions]
    facts, captured = [functions.read_facts(wrapper) for wrapper in wrappers], _captured_datasets(wrappers)
    arguments = read_arguments(dataset, kind)
    if id(dataset) in deterministic:
        arguments["deterministic"] = deterministic[id(dataset)]
    if kind.op == "with_options":
        arguments = dict(explicit_options(dataset))
    return Node(
        id=ids[id(dataset)],
        op="from_generator" if generator else kind.op,
        inputs=tuple(ids[id(above)] for above in upstream_datasets(dataset)),
        arguments=arguments,
        function=_merge(facts, [one for one, _ in captured]),
        inner=(
            *(functions.inner_operators(wrappers[0]) if len(wrappers) == 1 and not generator else ()),
            *(kind for _, kinds in captured for kind in kinds),
        ),
        location=call_sites.location(dataset),
        shared=call_sites.datasets_at_call(dataset),
        calls=call_sites.enclosing_calls(dataset),
        other_calls=call_sites.other_enclosing_calls(dataset),
        seeds_drawn=call_sites.seeds_drawn(dataset),
        spec=str(dataset.element_spec),
        cardinality=int(dataset.cardinality()) if tf.executing_eagerly() else -2,
        element_bytes=element_bytes(dataset.element_spec),
        label=label_of(dataset) if kind is OPAQUE else "",
    )


def _merge(facts: list[FunctionFacts], captured: list[FunctionFacts]) -> FunctionFacts | None:
    """Merges the facts of an operator with several functions: everything that any of them does."""
    if len(facts) < 2:
        return with_effects_of(facts[0], captured) if captured else facts[0] if facts else None
    joined = FunctionFacts(name=facts[0].name, digest="+".join(fact.digest for fact in facts))
    return with_effects_of(joined, [*facts, *captured])


def _captured_datasets(wrappers: list[Any]) -> list[tuple[FunctionFacts, tuple[str, ...]]]:
    """Returns what datasets that were made outside of functions, and that these read, do, and the kinds of operators.

    In the graph of a function such a dataset is no more than an input.
    """
    given = [tensor for one in wrappers for tensor in getattr(getattr(one, "function", None), "captured_inputs", ())]
    return list(map(_effects_of, call_sites.datasets_of(tensor for tensor in given if tensor.dtype == tf.variant)))


def _effects_of(dataset: Any) -> tuple[FunctionFacts, tuple[str, ...]]:
    """Returns the facts of a function that does all that a dataset does, and its kinds; the worst for None."""
    source = read(dataset) if dataset is not None else None
    nodes = source.pipeline.nodes if source is not None else ()
    known = [operator_facts(node.op) for node in nodes] or [CAUTIOUS]
    own = FunctionFacts(
        name="captured",
        digest="captured",
        random=any(one.random and not one.python for one in known),
        python=any(one.python for one in known),
        side_effects=("unknown dataset",) if CAUTIOUS in known else (),
        unordered=any(node.op != "with_options" and node.argument("deterministic") is False for node in nodes),
    )
    kinds = [type(one).__name__.removeprefix("_") for one in source.datasets.values()] if source is not None else []
    kinds += [kind for node in nodes for kind in node.inner]
    return with_effects_of(own, [node.function for node in nodes if node.function]), tuple(kinds or ["opaque"])


def _deterministic_interleaves(order: list[Any], dataset: Any) -> dict[int, Value]:
    """Reads `deterministic` of parallel interleaves, by dataset id, from the graph: live objects do not keep it."""
    # A reader with AUTOTUNE wraps one, too.
    parallel = [one for one in order if type(getattr(one, "_impl", one)).__name__ == "_ParallelInterleaveDataset"]
    if all(kind_of(one).op in READERS for one in parallel):
        return {}
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
    kernels = [node for node in graph.node if node.op.startswith("ParallelInterleaveDataset")]
    words: dict[bytes, Value] = {b"true": True, b"false": False}
    values = [words.get(node.attr["deterministic"].s) for node in kernels]
    if len(set(values)) == 1:  # there are more in the graph, where two operators read one
        values = values[:1] * len(parallel)
    if len(values) != len(parallel):
        return {}
    return {id(one): value for one, value in zip(parallel, values, strict=True) if kind_of(one).op not in READERS}


COMPLEMENT_CLASS = {"take": "_SkipDataset", "skip": "_TakeDataset"}


def has_complement(node: Node, source: LivePipeline) -> bool:
    """Whether another live dataset is the complement of this take or skip: it ends where this one begins, or begins.

    Both are parts of one dataset, or of two that one call has made; a part may lie behind others, as in
    `data.skip(9).take(3)` beside `data.skip(12)`.
    """
    others = live_instances(lambda kind: kind.__name__ == COMPLEMENT_CLASS[node.op])
    borders = list(_borders(source.datasets[node.id]))
    return any(
        border == here and _made_alike(whole, above)
        for other in others
        for whole, border in _borders(other)
        for above, here in borders
    )


def _borders(part: Any) -> Iterator[tuple[Any, Any]]:
    """Yields for a take or skip what it is a part of, and the position there at which it ends, or begins."""
    (whole,), border = tensorflow_private.inputs(part), to_json_value(part._count)
    yield whole, border
    while type(part).__name__ == "_TakeDataset" and type(whole).__name__ == "_SkipDataset":
        skipped = to_json_value(whole._count)
        if not (isinstance(border, int) and isinstance(skipped, int)):
            return
        (whole,), border = tensorflow_private.inputs(whole), border + skipped
        yield whole, border


def _made_alike(one: Any, other: Any) -> bool:
    made = call_sites.location(one)
    return one is other or (made is not None and made == call_sites.location(other))


_IN_MEMORY = (list, tuple, dict, np.ndarray, tf.Tensor, tf.RaggedTensor, tf.SparseTensor)


def require_dataset(value: Any, *, caller: str) -> None:
    """Checks that `value` is a dataset.

    Args:
        caller: the public function that was called, for the message: "pipetune.tune".

    Raises:
        TypeError: it is not a dataset; the message says what was given and how to make a dataset of it.
    """
    if not isinstance(value, tf.data.Dataset):
        raise TypeError(f"{caller} takes a tf.data.Dataset, not {_describe_type(value)}.{_advice(value)}")


def _describe_type(value: Any) -> str:
    if inspect.isgeneratorfunction(value):
        return "a generator function"
    if inspect.isroutine(value):
        return "a function"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _advice(value: Any) -> str:
    if isinstance(value, str | bytes | os.PathLike):
        return " To read files, use tf.data.TFRecordDataset(path) or tf.data.Dataset.list_files(pattern)."
    if inspect.isgeneratorfunction(value) or inspect.isgenerator(value):
        return " tf.data.Dataset.from_generator(function, output_signature=...) turns a generator function into one."
    if inspect.isroutine(value):
        return " If it returns a dataset, call it and pass the result."
    if isinstance(value, tf.data.Iterator):
        return " Pass the dataset itself, without iter()."
    if isinstance(value, tf.distribute.DistributedDataset):
        return " Pass the dataset that you gave to the strategy."
    if isinstance(value, tf.keras.utils.PyDataset):
        return " Keras runs it in Python, which pipetune cannot rewrite: read the same data with tf.data."
    if isinstance(value, _IN_MEMORY) or hasattr(value, "to_numpy"):
        return " tf.data.Dataset.from_tensor_slices(...) turns in-memory data into one."
    if isinstance(value, Iterator) or hasattr(value, "__iter__"):
        return " tf.data.Dataset.from_generator(lambda: ..., output_signature=...) turns an iterable into one."
    return ""


_MOST_LINKS = 200  # datasets visited in search of the last ones derived from a dataset, at most


def siblings(source: LivePipeline, known: Sequence[LivePipeline]) -> list[LivePipeline]:
    """Returns the pipelines of live datasets that share a call site with `source`, without those in `known`.

    Each pipeline is read from the last dataset that was derived from the shared one. What is derived from a known
    pipeline itself is none: a strategy divides the batches of the dataset that `fit` receives by datasets of its own.
    """
    seen = _read_by([source, *known])
    sites = {site for one in source.datasets.values() if (site := call_sites.site_of(one)) is not None}
    recorded = call_sites.live_datasets()
    readers: dict[int, list[Any]] = defaultdict(list)
    for one in recorded:
        for above in tensorflow_private.inputs(one) if id(one) not in seen else ():
            readers[id(above)].append(one)
    last: dict[int, Any] = {}
    for one in recorded:
        if id(one) not in seen and call_sites.site_of(one) in sites:
            derived = reachable([one], lambda above: readers.get(id(above), []))
            last |= {id(end): end for end in islice(derived, _MOST_LINKS) if id(end) not in readers}
    return [read(one, name=_name(one)) for one in last.values()]


def _read_by(pipelines: Sequence[LivePipeline]) -> set[int]:
    """Returns the ids of the datasets of these pipelines, with the wrappers between them that are no operators."""

    def read_directly(dataset: Any) -> list[Any]:
        parts = tensorflow_private.with_implementation(dataset)
        return [*parts, *(above for part in parts for above in tensorflow_private.inputs(part))]

    ends = [one for pipeline in pipelines for one in pipeline.datasets.values()]
    return set(map(id, reachable(ends, read_directly)))


def _name(dataset: Any) -> str:
    place = call_sites.location(dataset)
    return f"the dataset created at {place}" if place is not None else "another dataset"
