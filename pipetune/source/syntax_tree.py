"""One source file as a LibCST tree with byte spans, parents and scopes, and its text, of which no byte changes."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import types
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    ByteSpanPositionProvider,
    CodeSpan,
    MetadataWrapper,
    QualifiedName,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from pipetune.core.errors import CannotExpress
from pipetune.source.source_files import line_start, line_starts

NodeType = TypeVar("NodeType", bound=cst.CSTNode)
EFFECTS = (cst.Await, cst.NamedExpr, cst.Yield)
"""Expressions, besides calls, that do more than compute a value."""


class SyntaxTree:
    """The tree of one source text.

    Offsets are UTF-8 bytes from the start of the text, as `code.co_positions()` counts, without a byte order mark.

    Raises:
        CannotExpress: LibCST cannot read the text, or would not write the same bytes back.
    """

    def __init__(self, code: bytes) -> None:
        self.code = code
        try:
            module = cst.parse_module(code.decode())
        except (cst.ParserSyntaxError, UnicodeDecodeError, RecursionError) as error:
            raise CannotExpress("The source cannot be parsed.") from error
        if module.code.encode() != code:
            raise CannotExpress("LibCST does not reproduce the source exactly.")
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = self._wrapper.module
        self._spans = cast(Mapping[cst.CSTNode, CodeSpan], self._wrapper.resolve(ByteSpanPositionProvider))
        self._parents = _parents(self.module)
        self._lines = line_starts(code)

    @property
    def indentation_unit(self) -> bytes:
        """The indentation of one block level."""
        return self.module.default_indent.encode()

    def start(self, node: cst.CSTNode) -> int:
        """Returns the offset at which `node` begins, without parentheses around it."""
        return self._spans[node].start

    def end(self, node: cst.CSTNode) -> int:
        """Returns the offset at which `node` ends, without parentheses around it."""
        span = self._spans[node]
        return span.start + span.length

    def text(self, node: cst.CSTNode) -> str:
        """Returns the source of a node, without parentheses around it.

        `Module.code_for_node` must not be used: it drops the indentation of the lines after the first.
        """
        return self.code[self.start(node) : self.end(node)].decode()

    def whole_span(self, value: cst.BaseExpression) -> tuple[int, int]:
        """Returns the offsets at which an expression begins and ends, with the parentheses around it."""
        return self.start(value.lpar[0] if value.lpar else value), self.end(value.rpar[-1] if value.rpar else value)

    def whole_text(self, value: cst.BaseExpression) -> str:
        """Returns the source of an expression, with the parentheses around it."""
        start, end = self.whole_span(value)
        return self.code[start:end].decode()

    def indentation(self, node: cst.CSTNode) -> bytes:
        """Returns what is in front of a node on its line."""
        start = self.start(node)
        return self.code[line_start(self.code, start) : start]

    def parent(self, node: cst.CSTNode | None) -> cst.CSTNode | None:
        """Returns the parent of `node`; None for the module and for no node."""
        return self._parents.get(node) if node is not None else None

    def ancestors(self, node: cst.CSTNode | None) -> Iterator[cst.CSTNode]:
        """Yields the parents of `node`, nearest first."""
        parent = self.parent(node)
        while parent is not None:
            yield parent
            parent = self.parent(parent)

    def around(self, node: cst.CSTNode | None, *kinds: type[NodeType]) -> NodeType | None:
        """Returns the innermost node of these types that contains `node`; None if there is none."""
        return next((parent for parent in self.ancestors(node) if isinstance(parent, kinds)), None)

    def nodes(self, *kinds: type[NodeType]) -> list[NodeType]:
        """Returns every node of these types, in source order."""
        return sorted((node for node in self._parents if isinstance(node, kinds)), key=self.start)

    def scope(self, node: cst.CSTNode) -> Scope:
        """Returns the scope in which names at `node` are looked up."""
        return next(filter(None, map(self._scopes.get, (node, *self.ancestors(node)))))  # the module has one

    def qualified_names(self, code: str | cst.CSTNode, *, at: cst.CSTNode) -> Collection[QualifiedName]:
        """Returns the qualified names that code, read at a node, may have."""
        return self.scope(at).get_qualified_names_for(code)

    def imported_names(self, node: cst.CSTNode) -> set[str]:
        """Returns the qualified names of an expression through imports: `{"tensorflow.io"}` for `tf.io`."""
        return {one.name for one in self.qualified_names(node, at=node) if one.source is QualifiedNameSource.IMPORT}

    def means_import(self, code: str | cst.CSTNode, *names: str, at: cst.CSTNode) -> bool:
        """Whether code that is read at a node can only be an import with one of these qualified names."""
        found = {(one.name, one.source) for one in self.qualified_names(code, at=at)}
        return any(found == {(name, QualifiedNameSource.IMPORT)} for name in names)

    def assignments(self, name: cst.Name) -> list[Assignment]:
        """Returns what may bind a name where it is read, imports among it, but not the builtins."""
        return [one for one in self.scope(name)[name.value] if isinstance(one, Assignment)]

    def only_assignment(self, name: cst.BaseExpression) -> BaseAssignment | None:
        """Returns what binds a name where it is read; None if that is not known, or may be one of several."""
        assignments = list(self.scope(name)[name.value]) if isinstance(name, cst.Name) else []
        return assignments[0] if len(assignments) == 1 else None

    def assigned_value(self, assignment: BaseAssignment | None) -> cst.BaseExpression | None:
        """Returns the value that a statement with a single target assigns; None if the name is bound in another way."""
        for parent in self.ancestors(assignment.node) if isinstance(assignment, Assignment) else ():
            match parent:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value):
                    return value
                case cst.BaseStatement():
                    return None
        return None

    def offset(self, line: int, column: int) -> int:
        """Returns the byte offset of a line (from 1) and a column (from 0, in bytes); -1 if there is no such line."""
        return self._lines[line - 1] + column if 0 < line <= len(self._lines) else -1

    def line(self, offset: int) -> int:
        """Returns the line (from 1) that holds `offset`."""
        return bisect.bisect_right(self._lines, offset)

    def lines(self, node: cst.CSTNode) -> range:
        """Returns the lines (from 1) of a node, without parentheses around it."""
        return range(self.line(self.start(node)), self.line(self.end(node)) + 1)

    @functools.cached_property
    def calls(self) -> dict[int, cst.Call]:
        """Every call by the byte offset of its end: no two calls share a closing parenthesis."""
        return {self.end(call): call for call in self.nodes(cst.Call)}

    @functools.cached_property
    def _scopes(self) -> Mapping[cst.CSTNode, Scope | None]:
        return cast(Mapping[cst.CSTNode, "Scope | None"], self._wrapper.resolve(ScopeProvider))


def nodes_within(
    code: cst.CSTNode, *kinds: type[NodeType], without: tuple[type[cst.CSTNode], ...] = ()
) -> Iterator[NodeType]:
    """Yields the nodes of these types in a piece of code, itself included, in no particular order.

    Args:
        without: nodes of these types are left out, with all that is in them.
    """
    waiting = [code]
    while waiting:
        node = waiting.pop()
        if isinstance(node, without):
            continue
        if isinstance(node, kinds):
            yield node
        waiting += _children(node)


_EXPRESSIONS: tuple[type[cst.CSTNode], ...] = (cst.BaseExpression,)


def consists_of(code: cst.CSTNode, kinds: types.UnionType) -> bool:
    """Whether all expressions in a piece of code, itself included, are of these types."""
    return all(isinstance(one, kinds) for one in nodes_within(code, *_EXPRESSIONS))


def _parents(module: cst.Module) -> dict[cst.CSTNode, cst.CSTNode]:
    parents: dict[cst.CSTNode, cst.CSTNode] = {}
    waiting: list[cst.CSTNode] = [module]
    while waiting:
        node = waiting.pop()
        for child in _children(node):
            parents[child] = node
            waiting.append(child)
    return parents


def _children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields the children of a node; reading the fields takes a fifth of the time of LibCST's visitor."""
    for name in _fields(type(node)):
        value = getattr(node, name)
        for child in value if isinstance(value, list | tuple) else (value,):
            if isinstance(child, cst.CSTNode):
                yield child


@functools.cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.lru_cache(maxsize=64)
def parse(code: bytes) -> SyntaxTree:
    """Returns the tree of `code`; cached, because several edits read the same text."""
    return SyntaxTree(code)
