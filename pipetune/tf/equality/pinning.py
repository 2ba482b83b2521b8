"""Pins everything random in a serialized dataset, so that two pipelines can be compared element by element.

Every random op gets fixed seeds of its own, derived from what its function draws and from the order of the functions
along the pipeline; never from a name, nor from what else the function computes. The seeds are therefore the same in
another process, in a pipeline with other parallelism, prefetches and caches, and in a function that an edit changed
without changing its draws. Random functions run one call at a time. Shuffles get the same two seeds by their order.
Caches and shuffles lose the state that they share with the live dataset.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.equality import constant_draws
from pipetune.tf.equality.library import SEED_INPUTS, STATELESS_DRAWS, Library, draws, references

_WITHOUT_LIVE_STATE = {
    "ShuffleDatasetV3": ("ShuffleDataset", 4),
    "ShuffleAndRepeatDatasetV2": ("ShuffleAndRepeatDataset", 5),
    "CacheDatasetV2": ("CacheDataset", 2),
}
"""Ops whose last input is state shared with the live dataset -> the op without it, and the index of that input."""

_PATHS = {"CacheDataset": 1, "CacheDatasetV2": 1, "SnapshotDataset": 1, "SnapshotDatasetV2": 1,
          "SaveDataset": 1, "SaveDatasetV2": 1}  # fmt: skip
_BUFFERED = {"ShuffleDataset": 1, "ShuffleDatasetV3": 1}


class CannotPin(Exception):
    """The dataset contains something whose randomness or files cannot be fixed; the message says what."""


@dataclass(frozen=True)
class Pins:
    """How to pin a dataset."""

    seed: int = 0
    constant: bool = False  # replace every draw by a constant
    free: int | None = None  # with `constant`: index of the one random op that keeps its draws
    rounds: int = 1  # repetitions of a repeat without end
    epochs: int | None = None  # count for repeats of three and more; a repeat is appended if there is none
    buffers: Mapping[int, int] = field(default_factory=dict)  # shuffle buffer size -> the size to use instead


@dataclass(frozen=True)
class Pinned:
    """A pinned dataset and what was changed in it."""

    dataset: Any
    random_ops: tuple[str, ...]  # op types, in order
    made_serial: tuple[str, ...]  # for each random function that ran in parallel: identity of its draws
    unordered: int  # number of operators that do not keep the order
    repeats: tuple[int, ...]  # counts, sorted, without those of 1; directly consecutive repeats count as one
    buffers: tuple[int, ...]  # shuffle buffer sizes


def pinned(graph: bytes, spec: Any, pins: Pins, *, folder: str) -> Pinned:
    """Rebuilds the dataset of a serialized graph with its randomness fixed.

    Args:
        graph: a serialized GraphDef (`private.serialized_graph`).
        spec: element spec of the dataset.
        folder: where caches and snapshots in files go instead; created when needed.

    Raises:
        CannotPin: something random or some file name cannot be fixed.
    """
    work = _Pinning(graph, pins, folder)
    work.run()
    try:
        dataset = private.dataset_from_graph(work.graph.SerializeToString(), spec)
    except (tf.errors.OpError, ValueError) as error:
        reason = str(error).strip().splitlines() or [""]
        raise CannotPin(f"the dataset cannot be rebuilt: {reason[0]}"[:300]) from error
    return Pinned(
        dataset=dataset.with_options(_as_written()),
        random_ops=tuple(work.random_ops),
        made_serial=tuple(work.made_serial),
        unordered=work.unordered,
        repeats=tuple(sorted(count for count in work.repeats.values() if count != 1)),
        buffers=tuple(work.buffers),
    )


def _as_written() -> tf.data.Options:
    """Options under which TensorFlow does not parallelize, fuse or reorder anything by itself."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return options


class _Pinning:
    def __init__(self, graph: bytes, pins: Pins, folder: str) -> None:
        self.graph = tf.compat.v1.GraphDef.FromString(graph)
        self.library = Library(self.graph)
        self.pins = pins
        self.folder = folder
        self.random_ops: list[str] = []
        self.made_serial: list[str] = []
        self.unordered = 0
        self.repeats: dict[str, int] = {}  # node name -> count; consecutive repeats have their combined count
        self.buffers: list[int] = []
        self._used: Counter[str] = Counter()
        self._shuffles = 0
        self._copies = 0
        self._by_variable = False  # the current function draws with seeds from a variable
        self._constants = 0
        self._files = 0

    def run(self) -> None:
        for node in list(self.graph.node):
            self._operator(node, self.graph.node, "", inside=False)
        if self.pins.epochs is not None and not any(_many(count) for count in self.repeats.values()):
            self._append_repeat(self.pins.epochs)

    def _operator(self, node: Any, nodes: Any, key: str, *, inside: bool) -> None:
        """Pins one node of the graph or of a function body."""
        self._forget_live_state(node, inside=inside)
        if node.op in SEED_INPUTS:
            place = f"{key}/shuffle{self._shuffles}" if not inside else f"{key}/{node.op}"
            self._shuffles += not inside
            self._give_seed_inputs(node, nodes, place, inside=inside)
        if node.op in _BUFFERED and not inside:
            self._resize(node, nodes)
        if node.op in _PATHS:
            self._redirect(node, nodes, inside=inside)
        if node.op == "RepeatDataset" and not inside:
            self._repeat(node, nodes)
        if node.attr["deterministic"].s == b"false" if "deterministic" in node.attr else False:
            node.attr["deterministic"].s = b"true"
            self.unordered += 1
        self._functions(node, key, inside=inside)

    def _functions(self, node: Any, key: str, *, inside: bool) -> None:
        for position, reference in enumerate(list(references(node))):
            if not self.library.random(reference.name):
                continue
            drawing = self.library.drawing(reference.name)
            if inside:
                place = f"{key}/{node.op}{position}.{self._used[key]}"
                self._used[key] += 1
            else:
                place = f"{drawing}#{self._used[drawing]}"
                self._used[drawing] += 1
            self._copies += 1
            body = self.library.copy(reference.name, f"{reference.name}_pinned_{self._copies}")
            reference.name = body.signature.name
            self._by_variable |= not inside and self.library.draws_by_variable(body.signature.name)
            self._function(body, place)
            self._by_variable &= inside
            if _make_serial(node):
                self.made_serial.append(drawing)

    def _function(self, body: Any, key: str) -> None:
        _bypass_prefetch(body)
        drawn = 0
        for node in list(body.node_def):
            if draws(node) or (self._by_variable and node.op in STATELESS_DRAWS):
                self._draw(node, body, f"{key}/{drawn}")
                drawn += 1
            self._operator(node, body.node_def, key, inside=True)

    def _draw(self, node: Any, body: Any, key: str) -> None:
        number = len(self.random_ops)
        self.random_ops.append(node.op)
        if "seed" in node.attr and "seed2" in node.attr:
            node.attr["seed"].i, node.attr["seed2"].i = self._seeds(key)
        if self.pins.constant and number != self.pins.free and not constant_draws.replace(node, body):
            raise CannotPin(f"the draws of {node.op} cannot be replaced by a constant")

    def _seeds(self, key: str) -> tuple[int, int]:
        content = hashlib.sha256(f"{self.pins.seed}:{key}".encode()).digest()
        first, second = content[:4], content[4:8]
        return (int.from_bytes(first, "big") >> 1) | 1, (int.from_bytes(second, "big") >> 1) | 1

    def _forget_live_state(self, node: Any, *, inside: bool) -> None:
        if node.op == "RandomDatasetV2":
            if node.attr["rerandomize_each_iteration"].b:
                raise CannotPin("a random source draws other numbers in each iteration")
            node.op = "RandomDataset"
            del node.input[2]
            del node.attr["rerandomize_each_iteration"]
        if node.op in _WITHOUT_LIVE_STATE and not (inside and node.op == "CacheDatasetV2"):
            node.op, place = _WITHOUT_LIVE_STATE[node.op]
            del node.input[place]
        elif node.op == "ShuffleDatasetV2":
            raise CannotPin("a shuffle has a seed generator of its own")

    def _give_seed_inputs(self, node: Any, nodes: Any, key: str, *, inside: bool) -> None:
        first = SEED_INPUTS[node.op]
        for place, seed in zip((first, first + 1), self._seeds(key), strict=True):
            node.input[place] = self._constant(nodes, tf.constant(seed, tf.int64), inside=inside)

    def _resize(self, node: Any, nodes: Any) -> None:
        place = _BUFFERED[node.op]
        size = _value(nodes, node.input[place])
        if size is not None:
            self.buffers.append(int(size))
            if int(size) in self.pins.buffers:
                smaller = tf.constant(self.pins.buffers[int(size)], tf.int64)
                node.input[place] = self._constant(nodes, smaller, inside=False)

    def _redirect(self, node: Any, nodes: Any, *, inside: bool) -> None:
        place = _PATHS[node.op]
        path = _value(nodes, node.input[place])
        if path is None:
            raise CannotPin(f"the file name of {node.op} is worked out while the pipeline runs")
        if path:
            self._files += 1
            os.makedirs(self.folder, exist_ok=True)
            other = tf.constant(f"{self.folder}/{self._files}")
            node.input[place] = self._constant(nodes, other, inside=inside)

    def _repeat(self, node: Any, nodes: Any) -> None:
        count = _value(nodes, node.input[1])
        if count is None:
            return
        rounds = max(int(count), -1)
        name = node.input[0].split(":")[0]  # no other node reads it: each consumer has its own copy of its upstream
        above = next((other for other in nodes if other.name == name), None)
        if above is not None and above.name in self.repeats:
            # Two consecutive repeats count as one: the number of epochs of a run limits their product.
            rounds = _together(self.repeats.pop(above.name), rounds)
            above.input[1] = self._constant(nodes, tf.constant(1, tf.int64), inside=False)
        self.repeats[node.name] = rounds
        if rounds < 0:
            rounds = max(self.pins.rounds, self.pins.epochs or 1)
        elif self.pins.epochs is not None and _many(rounds):
            rounds = self.pins.epochs
        node.input[1] = self._constant(nodes, tf.constant(rounds, tf.int64), inside=False)

    def _append_repeat(self, rounds: int) -> None:
        (output,) = [node for node in self.graph.node if node.op == "_Retval"]
        last = next(node for node in self.graph.node if node.name == output.input[0].split(":")[0])
        repeat = self.graph.node.add(name="pipetune_epochs", op="RepeatDataset")
        count = self._constant(self.graph.node, tf.constant(rounds, tf.int64), inside=False)
        repeat.input.extend([output.input[0], count])
        source = next(node for node in self._upwards(last) if "output_types" in node.attr)
        for name in ("output_types", "output_shapes"):
            repeat.attr[name].CopyFrom(source.attr[name])
        output.input[0] = repeat.name

    def _upwards(self, node: Any) -> Any:
        by_name = {other.name: other for other in self.graph.node}
        while True:
            yield node
            node = by_name[node.input[0].split(":")[0]]

    def _constant(self, nodes: Any, value: Any, *, inside: bool) -> str:
        self._constants += 1
        node = nodes.add(name=f"pipetune_constant_{self._constants}", op="Const")
        node.attr["dtype"].type = value.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        return f"{node.name}:output:0" if inside else str(node.name)


def _together(one: int, other: int) -> int:
    """The combined count of two consecutive repeats; -1 for infinite."""
    return 0 if 0 in (one, other) else -1 if min(one, other) < 0 else one * other


def _many(count: int) -> bool:
    """Whether a repeat counts as the loop over epochs: without end, or three times and more."""
    return count < 0 or count >= 3


def _value(nodes: Any, reference: str) -> Any:
    """The value of the constant that a node reads (strings as bytes); None if it is not a constant."""
    name = reference.split(":")[0]
    for node in nodes:
        if node.name == name:
            if node.op == "Const":
                return tf.make_ndarray(node.attr["value"].tensor).item()
            if node.op == "Identity":
                return _value(nodes, node.input[0])
    return None


def _make_serial(node: Any) -> bool:
    """Replaces a parallel map, interleave or filter by the serial one of the same order; whether it was parallel."""
    if node.op == "ParallelMapDatasetV2":
        node.op, removed = "MapDataset", 1
    elif node.op == "ParallelInterleaveDatasetV4":
        node.op, removed = "InterleaveDataset", 3
    elif node.op == "ParallelFilterDataset":
        node.op, removed = "FilterDataset", 1
    else:
        return False
    del node.input[-removed:]
    for name in ("deterministic", "use_unbounded_threadpool"):
        if name in node.attr:
            del node.attr[name]
    return True


def _bypass_prefetch(body: Any) -> None:
    """Removes prefetches from a random function: their threads would share the draws of one random op."""
    through = {
        f"{node.name}:handle:0": node.input[0]
        for node in body.node_def
        if node.op.startswith("PrefetchDataset")
    }
    for node in body.node_def:
        for place, reference in enumerate(node.input):
            while reference in through:
                reference = through[reference]
            node.input[place] = reference
    for name, reference in body.ret.items():
        while reference in through:
            reference = through[reference]
        body.ret[name] = reference
