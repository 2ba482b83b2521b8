"""The function library of a serialized dataset: what its functions draw, and copies of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from pipetune.tf import private

DATASET_OP = re.compile(r"Dataset(V\d+)?$")

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

GENERATOR_OPS = frozenset(
    {"RngReadAndSkip", "RngSkip", "StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt",
     "StatefulStandardNormal", "StatefulStandardNormalV2", "StatefulTruncatedNormal",
     "StatefulRandomBinomial", "NonDeterministicInts"}
)  # fmt: skip
"""Ops that draw from a `tf.random.Generator`, whose seed is in a variable."""

STATELESS_DRAWS = frozenset(
    {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal", "StatelessRandomUniformInt",
     "StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2",
     "StatelessRandomUniformIntV2", "StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2"}
)  # fmt: skip
"""Ops that draw from a seed they are given; generators of TensorFlow and Keras pass one from a variable."""

_VARIABLE_WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})


class Library:
    """The functions of one GraphDef, by name; copies are added to the same GraphDef."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._bodies = {function.signature.name: function for function in graph.library.function}
        self._kinds: dict[str, frozenset[str]] = {}
        self._random: dict[str, bool] = {}
        self._drawings: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def __getitem__(self, name: str) -> Any:
        return self._bodies[name]

    def random(self, name: str) -> bool:
        """Whether a function, or one that it calls or passes to an inner dataset, draws random numbers."""
        if name not in self._random:
            self._random[name] = False  # ends the recursion: a function that calls itself adds nothing new
            self._random[name] = name in self and (
                self.draws_by_variable(name)
                or any(
                    draws(node) or node.op in SEED_INPUTS or any(map(self.random, called(node)))
                    for node in self[name].node_def
                )
            )
        return self._random[name]

    def draws_by_variable(self, name: str) -> bool:
        """Whether a function draws with seeds that it reads from a variable and advances."""
        kinds = self._all_kinds(name)
        return bool(kinds & STATELESS_DRAWS) and bool(kinds & (_VARIABLE_WRITES | GENERATOR_OPS))

    def _all_kinds(self, name: str) -> frozenset[str]:
        if name not in self._kinds:
            self._kinds[name] = frozenset()
            nodes = self[name].node_def if name in self else ()
            inner = [self._all_kinds(function) for node in nodes for function in called(node)]
            self._kinds[name] = frozenset({node.op for node in nodes}.union(*inner))
        return self._kinds[name]

    def drawing(self, name: str) -> str:
        """Identity of a function's draws, stable across processes: its random ops and those it calls, in order.

        Whatever else it computes makes no difference, so that a function changed by an edit draws the same numbers as
        long as it makes the same draws in the same order.
        """
        if name not in self._drawings:
            self._drawings[name] = "recursive"
            self._drawings[name] = self._drawing(self[name]) if name in self else "external"
        return self._drawings[name]

    def copy(self, name: str, new_name: str) -> Any:
        """A copy of a function under a new name, in the same library."""
        body = self._graph.library.function.add()
        body.CopyFrom(self._bodies[name])
        body.signature.name = new_name
        self._bodies[new_name] = body
        return body

    def _drawing(self, function: Any) -> str:
        lines = []
        for node in function.node_def:
            if draws(node) or node.op in STATELESS_DRAWS or node.op in SEED_INPUTS:
                lines.append(" ".join([node.op, *_types(node)]))
            lines += [f"{node.op} {self.drawing(one)}" for one in called(node) if self.random(one)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def draws(node: Any) -> bool:
    """Whether a node of a function body draws random numbers that differ from call to call."""
    if node.op in GENERATOR_OPS:
        return True
    if DATASET_OP.search(node.op) or not private.op_has_seed(node.op):
        return False
    return private.op_is_stateful(node.op)


def _types(node: Any) -> list[str]:
    """The dtype attributes of a random node, as "name=type"."""
    return [f"{key}={node.attr[key].type}" for key in sorted(node.attr) if node.attr[key].WhichOneof("value") == "type"]


def called(node: Any) -> Iterator[str]:
    """Names of the functions that a node calls or passes to a dataset."""
    for reference in references(node):
        yield reference.name


def references(node: Any) -> Iterator[Any]:
    """The function references (NameAttrList) in a node's attributes, in a fixed order; they may be changed in place."""
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.WhichOneof("value") == "func":
            yield value.func
        elif value.WhichOneof("value") == "list":
            yield from value.list.func
