"""Pins everything random in a serialized dataset, so that two pipelines can be compared element by element."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.pipelines.functions import called_functions, function_references
from pipetune.pipelines.graphs import DATASET_OP, GENERATOR_OPS, PYTHON_OPS, draws, reachable

SEED_INPUTS = {
    "ShuffleDataset": 2,
    "ShuffleDatasetV3": 2,
    "ShuffleAndRepeatDataset": 2,
    "ShuffleAndRepeatDatasetV2": 2,
    "RandomDataset": 0,
    "RandomDatasetV2": 0,
    "SamplingDataset": 2,
}
"""Dataset ops that draw random numbers -> index of their first seed input; the second one follows it."""

STATELESS_DRAWS = frozenset(
    {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal", "StatelessRandomUniformInt",
     "StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2",
     "StatelessRandomUniformIntV2", "StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2"}
)  # fmt: skip
"""Ops that draw from a seed they are given; generators of TensorFlow and Keras pass one from a variable."""

_VARIABLE_WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})


class FunctionLibrary:
    """The functions of one GraphDef, by name; copies are added to the same GraphDef."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._bodies = {function.signature.name: function for function in graph.library.function}
        self._op_types: dict[str, frozenset[str]] = {}
        self._draw_identities: dict[str, str] = {}

    def is_random(self, name: str) -> bool:
        """Whether a function, or one that it calls or passes to an inner dataset, draws random numbers."""
        kinds = self._all_op_types(name)
        return self.draws_from_variable_seed(name) or any(kind in SEED_INPUTS or is_random_op(kind) for kind in kinds)

    def runs_python(self, name: str) -> bool:
        """Whether a function calls Python."""
        return not self._all_op_types(name).isdisjoint(PYTHON_OPS)

    def draws_from_variable_seed(self, name: str) -> bool:
        """Whether a function draws with seeds from a variable that it also advances."""
        kinds = self._all_op_types(name)
        return bool(kinds & STATELESS_DRAWS) and bool(kinds & (_VARIABLE_WRITES | GENERATOR_OPS))

    def _all_op_types(self, name: str) -> frozenset[str]:
        if name not in self._op_types:
            self._op_types[name] = frozenset()  # ends the recursion: a function that calls itself adds nothing new
            nodes = self._bodies[name].node_def if name in self._bodies else ()
            inner = [self._all_op_types(function) for node in nodes for function in called_functions(node)]
            self._op_types[name] = frozenset({node.op for node in nodes}.union(*inner))
        return self._op_types[name]

    def draw_identity(self, name: str) -> str:
        """Returns the identity of a function's draws: a hash of its random ops and those it calls, in order.

        It is the same in every process. All other ops are ignored, so that a function changed by an edit draws the
        same numbers if it makes the same draws in the same order.
        """
        if name not in self._draw_identities:
            self._draw_identities[name] = "recursive"
            lines = []
            for node in self._bodies[name].node_def:
                if is_random_op(node.op) or node.op in STATELESS_DRAWS or node.op in SEED_INPUTS:
                    lines.append(" ".join([node.op, *_dtype_attributes(node)]))
                called = filter(self.is_random, called_functions(node))
                lines += [f"{node.op} {self.draw_identity(one)}" for one in called]
            self._draw_identities[name] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        return self._draw_identities[name]

    def copy(self, name: str, new_name: str) -> Any:
        """Returns a copy of a function under a new name, in the same library."""
        body = self._graph.library.function.add()
        body.CopyFrom(self._bodies[name])
        body.signature.name = new_name
        self._bodies[new_name] = body
        return body


def is_random_op(kind: str) -> bool:
    """Whether an op of this type draws random numbers that differ from call to call; not one that makes a dataset."""
    return kind in GENERATOR_OPS or (draws(kind) and not DATASET_OP.search(kind))


def _dtype_attributes(node: Any) -> list[str]:
    """Returns the dtype attributes of a random node, as "name=type"."""
    return [f"{key}={node.attr[key].type}" for key in sorted(node.attr) if node.attr[key].WhichOneof("value") == "type"]


_DRAWS = {
    "RandomUniform": (0, None, "dtype", "T"),
    "RandomStandardNormal": (0, None, "dtype", "T"),
    "TruncatedNormal": (0, None, "dtype", "T"),
    "StatefulUniform": (2, None, "dtype", "shape_dtype"),
    "StatefulStandardNormalV2": (2, None, "dtype", "shape_dtype"),
    "StatefulTruncatedNormal": (2, None, "dtype", "shape_dtype"),
    "StatelessRandomUniform": (0, None, "dtype", "T"),
    "StatelessRandomNormal": (0, None, "dtype", "T"),
    "StatelessTruncatedNormal": (0, None, "dtype", "T"),
    "StatelessRandomUniformV2": (0, None, "dtype", "Tshape"),
    "StatelessRandomNormalV2": (0, None, "dtype", "Tshape"),
    "StatelessTruncatedNormalV2": (0, None, "dtype", "Tshape"),
    "RandomUniformInt": (0, 1, "Tout", "T"),
    "StatefulUniformInt": (2, 3, "dtype", "shape_dtype"),
    "StatelessRandomUniformInt": (0, 2, "dtype", "T"),
    "StatelessRandomUniformIntV2": (0, 4, "dtype", "Tshape"),
}
"""Ops that fill a shape: indices of the shape input and, for integers, of the minimum of their range; attributes of the
drawn dtype and of the shape's dtype."""

_CONSTANT_VALUE = 0.5  # middle of the range of uniform draws, by judgement: its bounds are more often special cases
_GENERATOR_ADVANCES = frozenset({"RngReadAndSkip", "RngSkip"})


def replace_by_constant(node: Any, body: Any) -> bool:
    """Makes a random node output a constant, in place; returns False if its op is not supported.

    Uniform and normal draws become 0.5, integers the minimum of their range, and a shuffle keeps its order.

    Args:
        node: NodeDef of a function body.
        body: the FunctionDef it belongs to; a constant node may be added.
    """
    if node.op in _GENERATOR_ADVANCES:
        return True  # only advances the generator; the ops that draw from it are replaced themselves
    if node.op == "RandomShuffle":
        _turn_into(node, "Identity", [node.input[0]], {"T": node.attr["T"].type})
        return True
    if node.op not in _DRAWS:
        return False
    shape, least, drawn, index = _DRAWS[node.op]
    types = {"T": node.attr[drawn].type, "index_type": node.attr[index].type}
    if least is None:
        value = body.node_def.add(name=f"{node.name}_constant", op="Const")
        value.attr["dtype"].type = types["T"]
        middle = tf.make_tensor_proto(_CONSTANT_VALUE, dtype=tf.as_dtype(types["T"]), shape=[])
        value.attr["value"].tensor.CopyFrom(middle)
        filling = f"{value.name}:output:0"
    else:
        filling = node.input[least]
    _turn_into(node, "Fill", [node.input[shape], filling], types)
    return True


def _turn_into(node: Any, op: str, inputs: list[str], types: dict[str, int]) -> None:
    after = [name for name in node.input if name.startswith("^")]
    node.op = op
    del node.input[:]
    node.input.extend([*inputs, *after])
    node.attr.clear()
    for name, value in types.items():
        node.attr[name].type = value


_WITHOUT_LIVE_STATE = {
    "ShuffleDatasetV3": ("ShuffleDataset", 4),
    "ShuffleAndRepeatDatasetV2": ("ShuffleAndRepeatDataset", 5),
    "CacheDatasetV2": ("CacheDataset", 2),
}
"""Ops whose last input is state shared with the live dataset -> the op without it, and the index of that input."""

_PATH_INPUTS = {"CacheDataset": 1, "CacheDatasetV2": 1, "SnapshotDataset": 1, "SnapshotDatasetV2": 1,
          "SaveDataset": 1, "SaveDatasetV2": 1}  # fmt: skip
_BUFFER_SIZE_INPUTS = {"ShuffleDataset": 1, "ShuffleDatasetV3": 1}
_BATCHES = frozenset({"BatchDatasetV2", "ParallelBatchDataset", "PaddedBatchDatasetV2"})  # last input: drop_remainder


_STOPPING = frozenset({"ZipDataset", "TakeDataset", "TakeWhileDataset", "DirectedInterleaveDataset"})
"""Ops that may end before one of their inputs does."""


class CannotPin(Exception):
    """The dataset contains something whose randomness or files cannot be fixed; the message says what."""


@dataclass(frozen=True)
class PinningOptions:
    """How to pin a dataset."""

    seed: int = 0
    constant_draws: bool = False  # replace every draw by a constant
    counted_draws: bool = False  # a draw's seeds depend on how many of its kind precede it, not on its function
    free_op: int | None = None  # with `constant_draws`: index of the one random op that keeps its draws
    infinite_repeat_count: int = 1  # repetitions of a repeat without end
    epochs: int | None = None  # count for infinite repeats; another is appended if the output ends all the same
    buffers: Mapping[int, int] = field(default_factory=dict)  # shuffle buffer size -> the size to use instead
    fixed_shuffles: tuple[bool, ...] = ()  # for each shuffle in turn, whether all epochs get the order of the first
    keep_remainders: bool = False  # batches keep the rows that `drop_remainder` drops


@dataclass(frozen=True)
class PinnedDataset:
    """A pinned dataset and what was changed in it."""

    dataset: Any
    random_ops: tuple[str, ...]  # op types, in order
    parallel_draws: tuple[str, ...]  # for each random function that ran in parallel: identity of its draws
    unordered_operators: int  # number of operators that do not keep the order
    repeats: tuple[int, ...]  # counts, sorted, without those of 1; directly consecutive repeats count as one
    buffers: tuple[int, ...]  # shuffle buffer sizes


def pin_dataset(graph: bytes, spec: Any, pins: PinningOptions, *, folder: str) -> PinnedDataset:
    """Returns the dataset of a serialized graph, rebuilt with its randomness fixed.

    Args:
        graph: a serialized GraphDef (`tensorflow_private.serialized_graph`).
        spec: element spec of the dataset.
        pins: how to pin it.
        folder: folder for the files of caches and snapshots; created if needed.

    Raises:
        CannotPin: something random or some file name cannot be fixed.
    """
    work = _GraphPinner(graph, pins, folder)
    work.run()
    try:
        dataset = tensorflow_private.dataset_from_graph(work.graph.SerializeToString(), spec)
    except (tf.errors.OpError, ValueError) as error:
        reason = str(error).strip().splitlines() or [""]
        raise CannotPin(f"the dataset cannot be rebuilt: {reason[0]}"[:300]) from error
    return PinnedDataset(
        dataset=dataset.with_options(_deterministic_options()),
        random_ops=tuple(work.random_ops),
        parallel_draws=tuple(work.parallel_draws),
        unordered_operators=work.unordered_operators,
        repeats=tuple(sorted(count for count in work.repeats.values() if count != 1)),
        buffers=tuple(work.buffers),
    )


def _deterministic_options() -> tf.data.Options:
    """Returns options under which TensorFlow does not parallelize, fuse or reorder anything by itself."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return options


class _GraphPinner:
    def __init__(self, graph: bytes, pins: PinningOptions, folder: str) -> None:
        self.graph = tf.compat.v1.GraphDef.FromString(graph)
        self.library = FunctionLibrary(self.graph)
        self.pins = pins
        self.folder = folder
        self.random_ops: list[str] = []
        self.parallel_draws: list[str] = []
        self.unordered_operators = 0
        self.repeats: dict[str, int] = {}  # node name -> count; consecutive repeats have their combined count
        self.buffers: list[int] = []
        self._key_counts: Counter[str] = Counter()
        self._shuffles = 0
        self._copies = 0
        self._draws_by_variable = False  # the current function draws with seeds from a variable
        self._constants = 0
        self._files = 0

    def run(self) -> None:
        shuffles = [node for node in self.graph.node if node.op in _BUFFER_SIZE_INPUTS]
        if len(shuffles) == len(self.pins.fixed_shuffles):
            for node in itertools.compress(shuffles, self.pins.fixed_shuffles):
                node.attr["reshuffle_each_iteration"].b = False
        self._read_nothing_ahead()
        for node in list(self.graph.node):
            self._operator(node, self.graph.node, "", inside=False)
        if self.pins.epochs is not None and self._ends():
            self._append_repeat(self.pins.epochs)

    def _read_nothing_ahead(self) -> None:
        """Removes threads that read ahead, behind draws, of an op that may end before this input of it does.

        How far they have come by then differs, and so does which numbers the next epoch draws.
        """
        nodes = {node.name: node for node in self.graph.node}
        ended: dict[str, Any] = {}
        for node in self.graph.node:
            if node.op in _STOPPING:
                ended |= _upstream_of(node, nodes)
        ahead = [node for node in ended.values() if any(map(self._draws, _upstream_of(node, nodes).values()))]
        through = {node.name: node.input[0] for node in ahead if node.op.startswith("PrefetchDataset")}
        for node in self.graph.node if through else ():
            node.input[:] = [_behind(reference, through) for reference in node.input]
        for node in ahead:
            if not self._draws(node):  # these follow, and are counted
                _make_serial(node)

    def _draws(self, node: Any) -> bool:
        return any(map(self.library.is_random, called_functions(node)))

    def _operator(self, node: Any, nodes: Any, key: str, *, inside: bool) -> None:
        """Pins one node of the graph or of a function body."""
        self._detach_live_state(node, inside=inside)
        if node.op in SEED_INPUTS:
            place = f"{key}/shuffle{self._shuffles}" if not inside else f"{key}/{node.op}"
            self._shuffles += not inside
            self._set_seed_inputs(node, nodes, place, inside=inside)
        if node.op in _BUFFER_SIZE_INPUTS and not inside:
            self._resize(node, nodes)
        if node.op in _BATCHES and not inside and self.pins.keep_remainders:
            node.input[len(node.input) - 1] = self._constant(nodes, tf.constant(False), inside=False)
        if node.op in _PATH_INPUTS:
            self._redirect(node, nodes, inside=inside)
        if node.op == "RepeatDataset" and not inside:
            self._repeat(node, nodes)
        if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
            node.attr["deterministic"].s = b"true"
            self.unordered_operators += 1
        self._functions(node, key, inside=inside)

    def _functions(self, node: Any, key: str, *, inside: bool) -> None:
        for position, reference in enumerate(list(function_references(node))):
            if not self.library.is_random(reference.name):
                if self.library.runs_python(reference.name):
                    _make_serial(node)  # what Python draws depends on the order of its calls
                continue
            drawing = self.library.draw_identity(reference.name)
            if inside:
                place = f"{key}/{node.op}{position}.{self._key_counts[key]}"
                self._key_counts[key] += 1
            else:
                place = f"{drawing}#{self._key_counts[drawing]}"
                self._key_counts[drawing] += 1
            self._copies += 1
            body = self.library.copy(reference.name, f"{reference.name}_pinned_{self._copies}")
            reference.name = body.signature.name
            self._draws_by_variable |= not inside and self.library.draws_from_variable_seed(body.signature.name)
            self._function(body, place)
            self._draws_by_variable &= inside
            if _make_serial(node):
                self.parallel_draws.append(drawing)

    def _function(self, body: Any, key: str) -> None:
        _bypass_prefetch(body)
        drawn = 0
        for node in list(body.node_def):
            if is_random_op(node.op) or (self._draws_by_variable and node.op in STATELESS_DRAWS):
                self._draw(node, body, f"{key}/{drawn}")
                drawn += 1
            self._operator(node, body.node_def, key, inside=True)

    def _draw(self, node: Any, body: Any, key: str) -> None:
        number = len(self.random_ops)
        self.random_ops.append(node.op)
        if self.pins.counted_draws:
            key = " ".join([node.op, *_dtype_attributes(node)])
            self._key_counts[key] += 1
            key = f"{key}#{self._key_counts[key]}"
        if "seed" in node.attr and "seed2" in node.attr:
            node.attr["seed"].i, node.attr["seed2"].i = self._seeds(key)
        if self.pins.constant_draws and number != self.pins.free_op and not replace_by_constant(node, body):
            raise CannotPin(f"the draws of {node.op} cannot be replaced by a constant")

    def _seeds(self, key: str) -> tuple[int, int]:
        content = hashlib.sha256(f"{self.pins.seed}:{key}".encode()).digest()
        first, second = content[:4], content[4:8]
        return (int.from_bytes(first, "big") >> 1) | 1, (int.from_bytes(second, "big") >> 1) | 1

    def _detach_live_state(self, node: Any, *, inside: bool) -> None:
        if node.op == "RandomDatasetV2":
            if node.attr["rerandomize_each_iteration"].b:
                raise CannotPin("a random source draws new numbers in each iteration")
            node.op = "RandomDataset"
            del node.input[2]
            del node.attr["rerandomize_each_iteration"]
        if node.op in _WITHOUT_LIVE_STATE and not (inside and node.op == "CacheDatasetV2"):
            node.op, place = _WITHOUT_LIVE_STATE[node.op]
            del node.input[place]
        elif node.op == "ShuffleDatasetV2":
            raise CannotPin("a shuffle has a seed generator of its own")

    def _set_seed_inputs(self, node: Any, nodes: Any, key: str, *, inside: bool) -> None:
        first = SEED_INPUTS[node.op]
        for place, seed in zip((first, first + 1), self._seeds(key), strict=True):
            node.input[place] = self._constant(nodes, tf.constant(seed, tf.int64), inside=inside)

    def _resize(self, node: Any, nodes: Any) -> None:
        place = _BUFFER_SIZE_INPUTS[node.op]
        size = _constant_value(nodes, node.input[place])
        if size is not None:
            self.buffers.append(int(size))
            if int(size) in self.pins.buffers:
                smaller = tf.constant(self.pins.buffers[int(size)], tf.int64)
                node.input[place] = self._constant(nodes, smaller, inside=False)

    def _redirect(self, node: Any, nodes: Any, *, inside: bool) -> None:
        place = _PATH_INPUTS[node.op]
        path = _constant_value(nodes, node.input[place])
        if path is None:
            raise CannotPin(f"the file name of {node.op} is computed while the pipeline runs")
        if path:
            self._files += 1
            os.makedirs(self.folder, exist_ok=True)
            other = tf.constant(f"{self.folder}/{self._files}")
            node.input[place] = self._constant(nodes, other, inside=inside)

    def _repeat(self, node: Any, nodes: Any) -> None:
        count = _constant_value(nodes, node.input[1])
        if count is None:
            return
        rounds = max(int(count), -1)
        above = _node(nodes, node.input[0])  # no other node reads it: each consumer has its own copy of its upstream
        if above is not None and above.name in self.repeats:
            # Two consecutive repeats count as one: the number of epochs of a run limits their product.
            both = rounds, self.repeats.pop(above.name)
            rounds = -1 if min(both) < 0 and 0 not in both else math.prod(both)
            above.input[1] = self._constant(nodes, tf.constant(1, tf.int64), inside=False)
        self.repeats[node.name] = rounds
        if rounds < 0:
            rounds = max(self.pins.infinite_repeat_count, self.pins.epochs or 1)
        elif self.pins.epochs is not None and rounds >= 3:  # so often, it counts as the loop over epochs
            rounds = max(1, self.pins.epochs - 1)
        node.input[1] = self._constant(nodes, tf.constant(rounds, tf.int64), inside=False)

    def _ends(self) -> bool:
        """Whether the output ends, so that an epoch is a pass over it; not where all of it is repeated forever."""
        nodes = {node.name: node for node in self.graph.node}
        (node,) = [node for node in self.graph.node if node.op == "_Retval"]
        while self.repeats.get(node.name, 0) >= 0:
            read = [above for name in node.input if (above := nodes.get(name.split(":")[0])) is not None]
            works = [(one, *_upstream_of(one, nodes).values()) for one in read]
            above = [whole[0] for whole in works if any(DATASET_OP.search(one.op) for one in whole)]
            if len(above) != 1 or node.op in _STOPPING:
                return True
            (node,) = above
        return False

    def _append_repeat(self, rounds: int) -> None:
        (output,) = [node for node in self.graph.node if node.op == "_Retval"]
        last = _node(self.graph.node, output.input[0])
        repeat = self.graph.node.add(name="pipetune_epochs", op="RepeatDataset")
        count = self._constant(self.graph.node, tf.constant(rounds, tf.int64), inside=False)
        repeat.input.extend([output.input[0], count])
        # The second attribute is that of tensors and their slices.
        while not (types := [name for name in ("output_types", "Toutput_types") if name in last.attr]):
            last = _node(self.graph.node, last.input[0])
        repeat.attr["output_types"].CopyFrom(last.attr[types[0]])
        repeat.attr["output_shapes"].CopyFrom(last.attr["output_shapes"])
        output.input[0] = repeat.name

    def _constant(self, nodes: Any, value: Any, *, inside: bool) -> str:
        self._constants += 1
        node = nodes.add(name=f"pipetune_constant_{self._constants}", op="Const")
        node.attr["dtype"].type = value.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        return f"{node.name}:output:0" if inside else str(node.name)


def _upstream_of(node: Any, nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nodes that a node reads, directly or through others, by name."""

    def read_directly(one: Any) -> list[Any]:
        return [nodes[name] for reference in one.input if (name := reference.split(":")[0]) in nodes]

    return {one.name: one for one in reachable(read_directly(node), read_directly)}


def _constant_value(nodes: Any, reference: str) -> Any:
    """Returns the value of the constant that a node reads (strings as bytes); None if it is not a constant."""
    node = _node(nodes, reference)
    if node is not None and node.op == "Identity":
        return _constant_value(nodes, node.input[0])
    return tf.make_ndarray(node.attr["value"].tensor).item() if node is not None and node.op == "Const" else None


def _node(nodes: Any, reference: str) -> Any:
    """Returns the node whose output a node reads; None if it is an argument of the function."""
    name = reference.split(":")[0]
    return next((node for node in nodes if node.name == name), None)


_SERIAL = {
    "ParallelMapDatasetV2": ("MapDataset", slice(-1, None)),
    "ParallelInterleaveDatasetV4": ("InterleaveDataset", slice(-3, None)),
    "LegacyParallelInterleaveDatasetV2": ("InterleaveDataset", slice(-2, None)),
    "ParallelFilterDataset": ("FilterDataset", slice(-1, None)),
    "ParallelBatchDataset": ("BatchDatasetV2", slice(2, 3)),
}
"""Parallel ops -> the serial op, and the inputs that it does not have."""


def _make_serial(node: Any) -> bool:
    """Replaces a parallel op by the serial one; returns whether it was one."""
    if node.op not in _SERIAL:
        return False
    node.op, removed = _SERIAL[node.op]
    del node.input[removed]
    for name in ("deterministic", "use_unbounded_threadpool"):
        if name in node.attr:
            del node.attr[name]
    return True


def _bypass_prefetch(body: Any) -> None:
    """Removes prefetches from a random function: their threads would share the draws of one random op."""
    through = {f"{node.name}:handle": node.input[0] for node in body.node_def if node.op.startswith("PrefetchDataset")}
    for node in body.node_def:
        node.input[:] = [_behind(reference, through) for reference in node.input]
    for name, reference in body.ret.items():
        body.ret[name] = _behind(reference, through)


def _behind(reference: str, through: Mapping[str, str]) -> str:
    """Returns what a node reads in place of prefetches, of which `through` has the inputs."""
    while (name := reference.removesuffix(":0")) in through:
        reference = through[name]
    return reference
