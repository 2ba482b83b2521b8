"""Callers of the functions that build a dataset: calls recorded for datasets of the run, and code that has not run.

A function without parameters builds the same dataset each time, so its callers do not matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import takewhile

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.location import SourceLocation
from pipetune.core.pipeline import Node, Pipeline
from pipetune.source.callables import parameters_of
from pipetune.source.draft import Draft
from pipetune.source.statements import function_around
from pipetune.source.tree import SyntaxTree
from pipetune.source.uses import Use, uses_of

_REPEATING = (cst.For, cst.While, cst.BaseComp, cst.Lambda)
_NEVER_NAMED = frozenset({"__enter__", "__getattr__", "__getattribute__", "__getitem__", "__new__", "__next__"})
"""Methods that can be called without writing their name or the name of their class."""


class Callers:
    """Answers questions about callers in the source files before any edit.

    Args:
        untouched: the draft of these files.
        pipelines: all captured pipelines, the studied one first.
    """

    def __init__(self, untouched: Draft, pipelines: Sequence[Pipeline]) -> None:
        self._draft = untouched
        self._seen = {
            (one.file, one.end_line, one.end_column)
            for pipeline in pipelines
            for node in pipeline
            for one in _frames(node)
        }
        self._unseen: dict[tuple[str, int], Use | None] = {}

    def functions(self, node: Node) -> list[tuple[str, cst.FunctionDef]]:
        """Returns the functions on the call stack that built the operator, with their files, innermost first."""
        found = []
        for place in (node.location, *node.calls):
            function = self._function_at(place) if place is not None else None
            if function is None or place is None:
                break
            found.append((place.file, function))
        return found

    def level(self, node: Node) -> int:
        """Returns the depth of the innermost call that leads to this dataset only; 0 is the operator's own call.

        Raises:
            CannotExpress: every call on the stack leads to other datasets, too.
        """
        found = 0
        for depth, (file, function) in enumerate(self.functions(node)):
            if _takes_nothing(function):
                break
            own = node.calls[: depth + 1]
            others = [way for way in node.other_calls if way[:depth] == own[:depth] and way[: depth + 1] != own]
            if others or self.unseen(file, function) is not None:
                found = depth + 1
        if found > len(node.calls) or () in node.other_calls:
            raise CannotExpress(f"The call at {node.location} makes other datasets too, on the same way.")
        return found

    def repeated(self, node: Node) -> bool:
        """Whether one of the calls that lead to an operator may build several datasets, as in a loop over splits.

        Callers of a function without parameters are not checked: it builds the same dataset each time.
        """
        for place in (node.location, *node.calls):
            if place is None:
                return True
            inside = self._call_at(place)
            tree = self._draft.tree(place.file) if inside is not None else None
            if inside is None or tree is None:
                return True
            function = function_around(tree, inside)
            around = takewhile(lambda one: one is not function, tree.ancestors(inside))  # noqa: B023
            if any(isinstance(one, _REPEATING) for one in around):
                return True
            if isinstance(function, cst.FunctionDef) and _takes_nothing(function):
                return False
        return True

    def unseen(self, file: str, function: cst.FunctionDef) -> Use | None:
        """Returns a reference to a function at which no call was recorded; None if there is none."""
        key = (file, self._draft.tree(file).start(function))
        if key not in self._unseen:
            self._unseen[key] = next(self._not_seen(file, function), None)
        return self._unseen[key]

    def not_run(self, node: Node) -> Use | None:
        """Returns a reference to a function that builds the operator, where no call was recorded; None if all ran."""
        for file, function in self.functions(node):
            if _takes_nothing(function):
                return None
            found = self.unseen(file, function)
            if found is not None:
                return found
        return None

    def _not_seen(self, file: str, function: cst.FunctionDef) -> Iterator[Use]:
        if function.name.value in _NEVER_NAMED:  # its callers cannot be found
            yield Use(file, function, f"{os.path.basename(file)}: {function.name.value}")
        draft, uses = uses_of(self._draft, file, function)
        for use in uses:
            tree = draft.tree(use.file)
            around = [use.node, *tree.ancestors(use.node)]
            if not any(self._is_seen(tree, use.file, one) for one in around):
                yield use

    def _is_seen(self, tree: SyntaxTree, file: str, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call | cst.Attribute | cst.Name):
            return False
        end = tree.end(node)
        line = tree.line(end - 1)
        return (file, line, end - tree.offset(line, 0)) in self._seen

    def _function_at(self, place: SourceLocation) -> cst.FunctionDef | None:
        inside = self._call_at(place)
        function = function_around(self._draft.tree(place.file), inside) if inside is not None else None
        return function if isinstance(function, cst.FunctionDef) else None

    def _call_at(self, place: SourceLocation) -> cst.CSTNode | None:
        """Returns the call at the location of a stack frame, or the attribute if a property was read there."""
        try:
            self._draft = self._draft.opened(place.file)
            tree = self._draft.tree(place.file)
        except CannotExpress:
            return None
        offset = tree.offset(place.end_line, place.end_column)
        return tree.calls.get(offset) or _ending_at(tree, offset)


def _ending_at(tree: SyntaxTree, offset: int) -> cst.CSTNode | None:
    """Returns the attribute that ends at `offset`, where a property was read."""
    return next((one for one in tree.nodes(cst.Attribute) if tree.end(one) == offset), None)


def _frames(node: Node) -> Iterator[SourceLocation]:
    if node.location is not None:
        yield node.location
    yield from node.calls
    for way in node.other_calls:
        yield from way


def _takes_nothing(function: cst.FunctionDef) -> bool:
    """Whether a function has no parameters, not counting `self` or `cls`."""
    names = parameters_of(function)
    return not names[1:] if names[:1] in (["self"], ["cls"]) else not names
