"""The pipeline: a graph of the user's dataset calls, each with its location in the source.

The `element_spec` of a dataset is text, because sessions and plans contain only that: `repr(dataset.element_spec)`, as
`TensorSpec(shape=(None, 8), dtype=tf.float32, name=None)`, tuples and dictionaries of that, `RaggedTensorSpec(...)`.
Only `ElementSpec` looks into it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from pipetune.core.functions import FunctionFacts, FunctionVariant, RowGathering

_SPEC = re.compile(r"(\w*Spec)\(")
_TENSOR = re.compile(r"shape=(?:\(.*?\)|<unknown>), dtype=[\w.]+")
_SIZES = re.compile(r"(?:shape=\(|TensorShape\(\[?)([^)\]]*)")
_FIRST_SIZE = re.compile(r"TensorSpec\(shape=\((\d+)[,)]")
_FIRST_TENSOR = re.compile(r"(?P<single>TensorSpec)|(?P<tuple>\(TensorSpec)|\{(?P<key>'[^'\\]*'): TensorSpec")
_COMPOSITE = frozenset({"RaggedTensorSpec", "SparseTensorSpec", "DatasetSpec", "OptionalSpec"})


@dataclass(frozen=True)
class ElementSpec:
    """The `element_spec` of a dataset, as text; "" if it is not known."""

    text: str

    @property
    def is_tuple(self) -> bool:
        """Whether elements are tuples, whose components a function gets as separate arguments."""
        return self.text.startswith("(")

    @property
    def is_dense(self) -> bool:
        """Whether all components are plain tensors: not ragged, sparse, optional, or datasets."""
        return not _COMPOSITE & set(_SPEC.findall(self.text))

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether every size of every component is known."""
        return bool(self.text) and not self.has_unknown_sizes and "unknown" not in self.text

    @property
    def has_unknown_sizes(self) -> bool:
        return any("None" in sizes for sizes in _SIZES.findall(self.text))

    @property
    def has_unknown_batch_size(self) -> bool:
        """Whether the first size of a component is None, or nothing is known."""
        return not self.text or "shape=(None" in self.text

    @property
    def first_sizes(self) -> tuple[int, ...] | None:
        """The first size of each component; None unless all components are tensors with a known first size."""
        sizes = tuple(map(int, _FIRST_SIZE.findall(self.text)))
        return sizes if sizes and len(sizes) == len(_SPEC.findall(self.text)) else None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Shapes and dtypes of the components as text, sorted: regardless of names and structure."""
        return tuple(sorted(_TENSOR.findall(self.text)))

    @property
    def first_tensor(self) -> str | None:
        """How code gets the first tensor of an element: "", "[0]", "['image']"; None if it is nested deeper."""
        found = _FIRST_TENSOR.match(self.text)
        if found is None:
            return None
        return "" if found["single"] else "[0]" if found["tuple"] else f"[{found['key']}]"

    def has_dtype(self, name: str) -> bool:
        """Whether a component has this dtype: "tf.string"."""
        return re.search(rf"\b{re.escape(name)}\b", self.text) is not None

    def has_component(self, name: str) -> bool:
        """Whether a dictionary of the elements has this key."""
        return f"'{name}'" in self.text


@dataclass(frozen=True)
class SourceLocation:
    """The span of one call expression.

    Lines count from 1, columns from 0 in UTF-8 bytes, as in `code.co_positions()`. On one line the span is the
    whole call expression; in a multi-line chain it starts at the method name. The end is the same in both cases,
    so a call is identified by `file`, `end_line`, `end_column` and `method`.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    method: str  # the public function the user called: "map", "list_files", "image_dataset_from_directory"
    scope: str = "<module>"  # the qualified name of the user's function that contains the call
    exact: bool = True  # False: only the statement is known (calls traced through AutoGraph)
    library: str = ""  # the package of the called function, if it is not TensorFlow: "keras"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Value = None | bool | int | float | str | tuple["Value", ...]
"""An argument of an operator as a JSON value. AUTOTUNE is -1, infinite is -1, "not given" is None."""

AUTOTUNE = -1
INFINITE = -1
UNKNOWN = -2

SERVICE = "tf.data service"
"""The label of an operator whose elements are computed by the workers of a tf.data service."""

DEFAULT_GRAPH_SEED = "87654321"
"""The graph seed that tf.data puts before an operator's seed if there is no global seed: "87654321,7"."""

_IGNORED_ARGUMENTS = frozenset({"seed", "filename", "filenames", "files", "path", "pattern"})


@dataclass(frozen=True)
class OperatorIdentity:
    """What identifies an operator across runs: no ids, seeds, file names or locations."""

    op: str
    inputs: tuple[int, ...]  # positions of the operators it reads
    arguments: Mapping[str, Value]
    function: str | None  # digest


@dataclass(frozen=True)
class Node:
    """One operator of a pipeline.

    `op` is the public name of the `tf.data.Dataset` method or constructor ("map", "from_tensor_slices",
    "TFRecordDataset"), or "opaque" if pipetune does not know it.
    """

    id: str  # "n0", "n1", ... in topological order, sources first; inserted nodes "prefetch@n3"
    op: str
    inputs: tuple[str, ...] = ()
    arguments: Mapping[str, Value] = field(default_factory=dict)
    function: FunctionFacts | None = None
    inner: tuple[str, ...] = ()  # operators created by an interleave/flat_map function, sources first
    location: SourceLocation | None = None
    shared: int = 1  # number of datasets this call site created in the run; above 1 it is shared
    calls: tuple[SourceLocation, ...] = ()  # call stack of the script at the call site, innermost first
    other_calls: tuple[tuple[SourceLocation, ...], ...] = ()  # call stacks when the site created its other datasets
    seeds_drawn: int | None = None  # seeds that the script had drawn once it was made; None: not known
    spec: str = ""  # element_spec, as text; `element_spec` answers questions about it
    cardinality: int = UNKNOWN  # elements; -1 infinite, -2 unknown
    element_bytes: float | None = None  # static size of one element, if the spec determines it
    label: str = ""  # of an opaque node: the name of its class
    gathering: RowGathering | None = None  # of in-memory arrays; None: not probed

    @property
    def element_spec(self) -> ElementSpec:
        return ElementSpec(self.spec)

    def argument(self, name: str) -> Value:
        """Returns the value of an argument; None if it is not given."""
        return self.arguments.get(name)

    @property
    def title(self) -> str:
        """The name to display: the class of an opaque operator if known, the call that chooses datasets, else `op`."""
        if self.op == "choose" and self.location is not None:
            return self.location.method  # `sample_from_datasets` or `choose_from_datasets`
        return self.label if self.op == "opaque" and self.label else self.op

    @property
    def made_by_list_files(self) -> bool:
        """Whether it is the list of files, or its shuffle, that a call of `list_files` makes."""
        return self.location is not None and self.location.method == "list_files"

    @property
    def runs_python(self) -> bool:
        """Whether it runs Python code of the script for each element."""
        return self.op == "from_generator" or (self.function is not None and self.function.python)

    @property
    def gathers_rows(self) -> bool:
        """Whether it is the map that gathers rows by index (`ReplaceSource`)."""
        return self.function is not None and self.function.form is FunctionVariant.GATHERING


_NEUTRAL = {"take": ("count", -1), "skip": ("count", 0), "repeat": ("count", 1), "shard": ("num_shards", 1)}
"""Per operator, the argument and the value with which every element passes once, in order."""


def passes_components(node: Node) -> bool:
    """Whether an operator passes on the tensors of every element as they are, if in another structure."""
    if node.op in _NEUTRAL:
        name, value = _NEUTRAL[node.op]
        return node.argument(name) == value
    function = node.function
    return (
        node.op == "map"
        and function is not None
        and function.stateless
        and not function.can_raise
        and function.hands_on != ()
        and function.hands_on == tuple(range(len(function.hands_on)))
    )


@dataclass(frozen=True)
class Pipeline:
    """Operators in topological order, sources first; the last one is what the consumer iterates."""

    nodes: tuple[Node, ...]
    name: str = "dataset"
    options: Mapping[str, Value] = field(default_factory=dict)  # fields of tf.data.Options that are set, by dotted name

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __getitem__(self, node_id: str) -> Node:
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)

    def __contains__(self, node_id: object) -> bool:
        return any(node.id == node_id for node in self.nodes)

    @property
    def output(self) -> Node:
        return self.nodes[-1]

    def upstream(self, node_id: str) -> tuple[Node, ...]:
        """Returns every node upstream of `node_id`, sources first, without the node itself."""
        needed = set(self[node_id].inputs)
        found: list[Node] = []
        for node in reversed(self.nodes):
            if node.id in needed:
                found.append(node)
                needed |= set(node.inputs)
        return tuple(reversed(found))

    def last_except(self, passing: Container[str]) -> Node:
        """Returns the last operator that is none of these, which have one input."""
        node = self.output
        while node.op in passing and len(node.inputs) == 1:
            node = self[node.inputs[0]]
        return node

    def epoch_elements(self, counts: Mapping[str, int]) -> int | None:
        """Returns the output elements per epoch (the input of the outermost repeat), or None if unknown or infinite.

        `counts` has elements per epoch by operator id, if they were counted.
        """
        node = self.last_except(("repeat", "prefetch", "with_options"))
        elements = counts.get(node.id, node.cardinality)
        return elements if elements > 0 else None

    def consumers(self, node_id: str) -> tuple[Node, ...]:
        """Returns the nodes that read `node_id` directly."""
        return tuple(node for node in self.nodes if node_id in node.inputs)

    def downstream(self, node_id: str) -> tuple[Node, ...]:
        """Returns every node downstream of `node_id`, nearest first, without the node itself."""
        reached = {node_id}
        found = []
        for node in self.nodes:
            if reached.intersection(node.inputs):
                reached.add(node.id)
                found.append(node)
        return tuple(found)

    def has_no_effect(self, node: Node) -> bool:
        """Whether an operator's output equals its input: elements, order, count, structure and static shapes."""
        return passes_components(node) and (node.op in _NEUTRAL or node.spec == self[node.inputs[0]].spec)

    @property
    def memory_caches(self) -> tuple[Node, ...]:
        """The caches in memory that are complete after one pass over their input."""
        caches = (node for node in self.nodes if node.op == "cache" and not node.argument("filename"))
        return tuple(node for node in caches if node.cardinality != INFINITE)

    @property
    def idle_operators(self) -> dict[str, Node]:
        """The operators that do not run once the caches in memory are full, by id, each with a cache downstream of it.

        A cache whose input is rebuilt, though only with another parallelism, is another one, and empty.
        """
        full = {cache.id for cache in self.memory_caches}
        running = {self.output.id}
        for node in reversed(self.nodes):
            if node.id in running - full:
                running.update(node.inputs)
        above = ((one.id, cache) for cache in self.memory_caches for one in self.upstream(cache.id))
        return {name: cache for name, cache in above if name not in running}

    def source_of(self, node_id: str) -> Node:
        """Returns the first source upstream of `node_id`, or the node itself if it has no inputs."""
        return next(iter(self.upstream(node_id)), self[node_id])

    @property
    def row_index_operators(self) -> frozenset[str]:
        """Ids of operators that output row indices, because a downstream map gathers the rows."""
        return frozenset(above.id for node in self.nodes if node.gathers_rows for above in self.upstream(node.id))

    def with_functions(self, functions: Mapping[str, FunctionFacts]) -> Pipeline:
        """Returns the pipeline with these function facts, given by node id."""
        nodes = (replace(node, function=functions.get(node.id, node.function)) for node in self.nodes)
        return replace(self, nodes=tuple(nodes))

    @property
    def fingerprint(self) -> str:
        """Identity across runs: operators, parameters, function digests; no seeds, files, locations."""
        text = json.dumps([asdict(one) for one in self.identities()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def identities(self) -> tuple[OperatorIdentity, ...]:
        """Returns what plan.json lists of the operators, comparable across runs."""
        index = {node.id: position for position, node in enumerate(self.nodes)}
        return tuple(
            OperatorIdentity(
                op=node.op,
                inputs=tuple(index[name] for name in node.inputs),
                arguments={k: v for k, v in sorted(node.arguments.items()) if k not in _IGNORED_ARGUMENTS},
                function=node.function.digest if node.function else None,
            )
            for node in self.nodes
        )


_ARGUMENTS = ("num_parallel_calls", "deterministic", "synchronous", "use_unbounded_threadpool")


def consecutive_maps(pipeline: Pipeline, *, drawing: bool = False) -> Iterator[tuple[Node, ...]]:
    """Yields every longest sequence of two or more stateless maps with equal arguments, most upstream map first.

    No map in it except the last has another consumer.

    Args:
        drawing: whether functions may also draw random numbers; every sequence then begins with one that does.
    """
    runs: dict[str, tuple[Node, ...]] = {}
    for node in pipeline:
        function = node.function
        if node.op != "map" or len(node.inputs) != 1 or function is None:
            continue
        above = runs.get(node.inputs[0], ())
        alike = above and all(above[-1].argument(name) == node.argument(name) for name in _ARGUMENTS)
        joins = alike and len(pipeline.consumers(above[-1].id)) == 1
        fits = function.only_draws and (joins or function.random) if drawing else function.stateless
        if not fits:
            continue
        if joins:
            del runs[above[-1].id]
        runs[node.id] = (*above, node) if joins else (node,)
    yield from (run for run in runs.values() if len(run) > 1)


def location_of(node_id: str, *pipelines: Pipeline | None) -> SourceLocation | None:
    """Returns the location of operator `node_id`; an inserted one ("prefetch@n3") has that of the call it follows."""
    for name in (node_id, node_id.rpartition("@")[2]):
        for pipeline in pipelines:
            if pipeline is not None and name in pipeline and pipeline[name].location:
                return pipeline[name].location
    return None
