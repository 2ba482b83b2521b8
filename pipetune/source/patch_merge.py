"""Finds the places of a patch by content, in a file that was edited since the analysis.

A patch is the change from one text to another. Its places are looked up in a third text, scope by scope: a function or
method by its qualified name, wherever it is now; within a scope, by the lines that the patch replaces or between which
it inserts. Line endings and lines elsewhere do not matter.

Matching lines do not prove that the patch still means the same. When it is applied, the statements of the scope that
bind the datasets it changes must be those that were analyzed, up to the place, and so must the functions of the file
that they use: a cache that was proven safe after `map(decode)` would freeze the draws of a `decode` that is random by
now. That may be a nested function, a lambda or partial with a name, or a method of an object whose class is in the
file. Syntax trees (`ast`) are compared, so comments and layout do not matter; text is never generated from a tree.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

from pipetune.core.operators import OPERATORS
from pipetune.source.source_files import BYTE_ORDER_MARK
from pipetune.source.unified_diffs import matcher

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")  # as Python counts lines
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_OPERATORS = OPERATORS.keys() - {"choose", "load", "random", "range", "unique"}  # NumPy has these as functions
_MAX_LINES = 24  # shown of each version; a place is rarely longer, and both versions fit on a screen


class PlaceChanged(Exception):
    """The text differs from the analyzed one at a place of the patch.

    Args:
        where: the function or method, such as "load()"; empty for module-level statements.
        analyzed: the code of the place when it was analyzed.
        now: the code of the place now; None if the function no longer exists.
    """

    def __init__(self, where: str, analyzed: CodeExcerpt, now: CodeExcerpt | None) -> None:
        super().__init__(where)
        self.where, self.analyzed, self.current = where, analyzed, now


class InvalidSource(Exception):
    """The text is not valid Python; the message says where."""


@dataclass(frozen=True)
class CodeExcerpt:
    """A range of lines of a text."""

    first_line: int  # number of the first line, from 1
    text: str

    @property
    def display_text(self) -> str:
        """The lines without their common indentation; if there are many, the middle is omitted."""
        lines = self.text.expandtabs().splitlines()
        indentation = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        lines = [line[indentation:] for line in lines]
        if len(lines) > _MAX_LINES:
            half = _MAX_LINES // 2
            lines = [*lines[:half], f"... ({len(lines) - 2 * half} more lines)", *lines[-half:]]
        return "\n".join(lines)


@dataclass(frozen=True)
class _ScopeEdit:
    """Replaces the elements `first:last` of a scope by lines; an empty range inserts the lines before `first`."""

    scope: str
    first: int
    last: int
    lines: tuple[str, ...]
    start: int  # range of these lines in the new text
    end: int

    @property
    def depth(self) -> int:
        return len(self.scope.split(".")) if self.scope else 0


class _SourceText:
    """A source text, its lines and its scopes.

    The elements of a scope are its lines and the definitions nested in it, which are scopes of their own. `bounds` has
    the index of the line at which each begins, and behind the last one the index at which the scope ends.
    """

    def __init__(self, text: str) -> None:
        self.byte_order_mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        self.lines: list[str] = _LINE.findall(text.removeprefix(BYTE_ORDER_MARK))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's warnings about the user's source
                tree = ast.parse("".join(self.lines))
        except (SyntaxError, ValueError, RecursionError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise InvalidSource(f"it is not valid Python{line}") from error
        self.nodes: dict[str, ast.Module | _Definition] = {}
        self.elements: dict[str, list[str]] = {}  # per scope: the text or name of each element
        self.bounds: dict[str, list[int]] = {}
        self._index_scope("", tree, 0, len(self.lines))

    def _index_scope(self, scope: str, node: ast.Module | _Definition, first: int, last: int) -> None:
        elements, at = list[tuple[int, str]](), first
        for inner in () if isinstance(node, _Function) else _definitions(node):
            start = min([inner.lineno, *(decorator.lineno for decorator in inner.decorator_list)]) - 1
            end = inner.end_lineno or start + 1
            if start < at:  # two definitions on one line
                continue
            name = f"{scope}.{inner.name}".lstrip(".")
            while name in self.elements:
                name += "'"
            elements += [(line, _without_line_end(self.lines[line])) for line in range(at, start)]
            elements.append((start, f"\0{name}"))
            self._index_scope(name, inner, start, end)
            at = end
        elements += [(line, _without_line_end(self.lines[line])) for line in range(at, last)]
        self.elements[scope], self.nodes[scope] = [key for _, key in elements], node
        self.bounds[scope] = [*(line for line, _ in elements), last]

    def excerpt(self, start: int, end: int) -> CodeExcerpt:
        return CodeExcerpt(start + 1, "".join(self.lines[start:end]))

    def statements(self, scope: str) -> list[_StatementHead]:
        """Returns the statements of a scope in order, without the definitions that are scopes of their own."""
        node = self.nodes[scope]
        own = [] if isinstance(node, _Function) else list(_definitions(node))
        return list(_block_statements([one for one in node.body if one not in own], ()))

    @functools.cached_property
    def bindings(self) -> dict[str, list[ast.stmt]]:
        """What binds each name, by the names of its scope and itself: definitions, and heads of other statements."""
        bound: list[tuple[str, ast.stmt]] = []
        for scope, node in self.nodes.items():
            if isinstance(node, _Definition):
                bound.append((_qualified(scope, ""), node))
            for one in self.statements(scope):
                names = [one.node.name] if isinstance(one.node, _Definition) else one.bound
                bound += [(_qualified(name, scope), one.node) for name in names]
        found: dict[str, list[ast.stmt]] = {}
        for name, statement in bound:
            found.setdefault(name, []).append(statement)
        return found

    def statement_excerpt(self, statement: ast.stmt | None) -> CodeExcerpt | None:
        if statement is None:
            return None
        first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
        return self.excerpt(first - 1, statement.end_lineno or first)

    def scope_excerpt(self, scope: str) -> CodeExcerpt:
        return self.excerpt(self.bounds[scope][0], self.bounds[scope][-1])


def merge(before: str, after: str, text: str, *, strict: bool) -> str:
    """Returns `text` with the change from `before` to `after` applied.

    Args:
        strict: whether the datasets of a place and the functions they use must be those of `before`.

    Raises:
        PlaceChanged: a place of the change is not in `text`, or the change is already in it.
        InvalidSource: one of the texts is not valid Python.
    """
    old, new, now = _SourceText(before), _SourceText(after), _SourceText(text)
    edits = list(_edits(old, new))
    found = [(*_locate_edit(edit, old, now), edit) for edit in edits]
    if strict:
        for scope in dict.fromkeys(edit.scope for edit in edits):
            _refuse_changed_context(scope, [edit for edit in edits if edit.scope == scope], old, new, now)
    lines = list(now.lines)
    # From the end, so that line numbers stay valid; at the same place, lines of an outer scope end up after inner ones.
    for start, end, edit in sorted(found, key=lambda one: (one[0], one[1], -one[2].depth), reverse=True):
        lines[start:end] = _match_line_ends(edit.lines, lines, start)
        if start and edit.lines and not _has_line_end(lines[start - 1]):
            lines[start - 1] += _line_end(lines)
    merged = _SourceText(now.byte_order_mark + "".join(lines))
    if strict:
        _refuse_changed_result(edits, old, new, now, merged)
    return merged.byte_order_mark + "".join(merged.lines)


def _edits(old: _SourceText, new: _SourceText) -> Iterator[_ScopeEdit]:
    for scope in old.elements:
        if scope not in new.elements:
            continue  # removed with its element in the enclosing scope
        for tag, i, j, k, m in matcher(old.elements[scope], new.elements[scope]).get_opcodes():
            if tag != "equal":
                start, end = new.bounds[scope][k], new.bounds[scope][m]
                yield _ScopeEdit(scope, i, j, tuple(new.lines[start:end]), start, end)


def _locate_edit(edit: _ScopeEdit, old: _SourceText, now: _SourceText) -> tuple[int, int]:
    """Returns the lines of `now` that the edit replaces, as (start, end); raises PlaceChanged if they differ."""
    scope = edit.scope
    if scope not in now.elements:
        raise PlaceChanged(_display_name(scope), old.scope_excerpt(scope), None)
    there, here, bounds = old.elements[scope], now.elements[scope], now.bounds[scope]
    same = [code for code in matcher(there, here).get_opcodes() if code[0] == "equal"]
    at = {i + step: k + step for _, i, j, k, _ in same for step in range(j - i)}
    if edit.first < edit.last:
        return _locate_replaced(edit, at, old, now)
    behind = -1 if edit.first == 0 else _index_before(edit.first, at, there, here)
    front = len(here) if edit.first == len(there) else at.get(edit.first)
    after = None if behind is None else bounds[behind + 1]
    before = None if front is None else bounds[front]
    if after is None or before is None:
        place = before if after is None else after
        if place is None:
            raise _edit_conflict(edit, old, now)
        return place, place
    if _contains_lines(now.lines[after:before], edit.lines):
        raise _edit_conflict(edit, old, now)  # already applied
    place = after if after == before or _same_indentation(now.lines, after, edit.lines) else before
    return place, place


def _locate_replaced(edit: _ScopeEdit, at: Mapping[int, int], old: _SourceText, now: _SourceText) -> tuple[int, int]:
    """Finds lines that are replaced: all must be there, without gaps; blank lines around them may be missing."""
    there, here, bounds = old.bounds[edit.scope], now.elements[edit.scope], now.bounds[edit.scope]
    solid = [position for position in range(edit.first, edit.last) if old.elements[edit.scope][position].strip()]
    low, high = (solid[0], solid[-1] + 1) if solid else (edit.first, edit.last)
    first = at.get(low)
    if first is None or any(at.get(low + step) != first + step for step in range(high - low)):
        raise _edit_conflict(edit, old, now)
    last = first + high - low
    if not _same_lines(now.lines[bounds[first] : bounds[last]], old.lines[there[low] : there[high]]):
        raise _edit_conflict(edit, old, now)  # a definition that the patch removes was edited
    for _ in range(low - edit.first):
        first -= first > 0 and not here[first - 1].strip()
    for _ in range(edit.last - high):
        last += last < len(here) and not here[last].strip()
    return bounds[first], bounds[last]


def _index_before(first: int, at: Mapping[int, int], there: Sequence[str], here: Sequence[str]) -> int | None:
    """Returns the current index of the element before `first`; a blank line is found by the element before it."""
    position = first - 1
    while position > 0 and position not in at and not there[position].strip():
        position -= 1
    found = at.get(position)
    if found is not None:
        for _ in range(first - 1 - position):
            if found + 1 < len(here) and not here[found + 1].strip():
                found += 1
    return found


def _same_lines(lines: Sequence[str], others: Sequence[str]) -> bool:
    return [_without_line_end(line) for line in lines] == [_without_line_end(line) for line in others]


def _contains_lines(lines: Sequence[str], searched: Sequence[str]) -> bool:
    size = len(searched)
    return any(_same_lines(lines[start : start + size], searched) for start in range(len(lines) - size + 1))


def _same_indentation(lines: Sequence[str], after: int, new: Sequence[str]) -> bool:
    """Whether `new`, inserted before line index `after`, has the indentation of the line above it."""
    return after > 0 and bool(new) and _indentation(lines[after - 1]) == _indentation(new[0])


def _edit_conflict(edit: _ScopeEdit, old: _SourceText, now: _SourceText) -> PlaceChanged:
    """Returns the error with both versions of the place of an edit, including adjacent lines that differ."""
    return _range_conflict(edit.scope, edit.first, max(edit.last, edit.first + 1), old, now)


def _range_conflict(scope: str, first: int, last: int, old: _SourceText, now: _SourceText) -> PlaceChanged:
    last = min(last, len(old.elements[scope]))
    starts, ends = [first], [last]
    changed: list[int] = []
    for tag, i, j, k, m in matcher(old.elements[scope], now.elements[scope]).get_opcodes():
        if j < first or i > last:
            continue
        if tag == "equal":
            changed += [k + max(0, first - i), m - max(0, j - last)]
        else:
            starts.append(i)
            ends.append(j)
            changed += [k, m]
    before = old.excerpt(old.bounds[scope][min(starts)], old.bounds[scope][max(ends)])
    if not changed or min(changed) >= max(changed):
        return PlaceChanged(_display_name(scope), before, None if scope else CodeExcerpt(1, ""))
    current = now.excerpt(now.bounds[scope][min(changed)], now.bounds[scope][max(changed)])
    return PlaceChanged(_display_name(scope), before, current)


# -- the meaning of a place


@dataclass(frozen=True)
class _StatementHead:
    """A statement with its enclosing blocks and its lines; of a compound statement, only the head."""

    code: tuple[str, ...]  # the heads of the enclosing blocks, outermost first, then its own code
    start: int  # line index, from 0
    end: int
    bound: frozenset[str]  # names that it binds
    used: frozenset[str]
    methods: frozenset[str]  # names of the methods that it calls
    receivers: frozenset[str]  # names whose methods it calls as those of a dataset
    node: ast.stmt  # the head; of a definition, all of it

    @property
    def makes_dataset(self) -> bool:
        """Whether what it binds looks like a dataset."""
        return bool(self.methods & _OPERATORS) or any(name.endswith("Dataset") for name in self.used)

    def overlaps(self, start: int, end: int) -> bool:
        return self.start < end and start < self.end


def _refuse_changed_context(
    scope: str, edits: Sequence[_ScopeEdit], old: _SourceText, new: _SourceText, now: _SourceText
) -> None:
    """Raises PlaceChanged if the datasets of a place are built in another way up to there, or by other functions."""
    bounds, there = old.bounds[scope], old.statements(scope)
    spans = [(bounds[edit.first], bounds[edit.last]) for edit in edits]
    touched = [one for one in there if any(one.overlaps(*span) for span in spans)]
    touched += [one for one in new.statements(scope) if any(one.overlaps(edit.start, edit.end) for edit in edits)]
    end = max(end for _, end in spans)
    every = [*there, *new.statements(scope)]
    datasets = _dataset_names(every, touched)
    sources = datasets.union(*(one.receivers for one in every if one in touched or one.bound & datasets))
    made = _binding_code(there, sources, end)
    if _binding_code(now.statements(scope), sources)[: len(made)] != made:
        first = min([one.start for one in there if one.bound & sources] + [start for start, _ in spans])
        inside = [at for at, start in enumerate(bounds[:-1]) if first <= start < max(end, first + 1)]
        raise _range_conflict(scope, inside[0], inside[-1] + 1, old, now)
    running = [*touched, *(one for one in there if one.start < end and one.bound & datasets)]
    compared = {_qualified(name, scope) for name in datasets}
    analyzed, current = (
        _used_functions([one.node for one in running], scope, text, without=compared) for text in (old, now)
    )
    for name in (*analyzed, *current):
        for one, other in zip_longest(analyzed.get(name, ()), current.get(name, ())):
            same = one is not None and other is not None and ast.dump(one) == ast.dump(other)
            if not same and name != _qualified(scope, ""):
                where = name if isinstance(one or other, _Definition) else name.rpartition(".")[0]
                before = old.statement_excerpt(one) or CodeExcerpt(1, "")
                raise PlaceChanged(_display_name(where), before, now.statement_excerpt(other))


def _refuse_changed_result(
    edits: Sequence[_ScopeEdit], old: _SourceText, new: _SourceText, now: _SourceText, merged: _SourceText
) -> None:
    """Raises PlaceChanged if the result builds other datasets than were proven: inserted lines may end up too late."""
    for name in new.elements.keys() - old.elements.keys():
        if name in now.elements:  # the patch adds a function of this name
            raise PlaceChanged(_display_name(name), CodeExcerpt(1, ""), now.scope_excerpt(name))
    for scope in dict.fromkeys(edit.scope for edit in edits):
        own = [edit for edit in edits if edit.scope == scope]
        statements, end = new.statements(scope), max(edit.end for edit in own)
        touched = [one for one in statements if any(one.overlaps(edit.start, edit.end) for edit in own)]
        datasets = _dataset_names(statements, touched)
        made = _binding_code(statements, datasets, end)
        if _binding_code(merged.statements(scope), datasets)[: len(made)] != made:
            raise _edit_conflict(own[0], old, now)


def _binding_code(
    statements: Sequence[_StatementHead], datasets: set[str], end: int | None = None
) -> list[tuple[str, ...]]:
    """Returns the code of the statements before line `end` that bind one of these names."""
    return [one.code for one in statements if one.bound & datasets and (end is None or one.start < end)]


def _dataset_names(statements: Sequence[_StatementHead], touched: Sequence[_StatementHead]) -> set[str]:
    """Returns the names that the touched statements bind, and the names of the datasets these are built from."""
    known = {name for one in statements for name in one.bound if one.makes_dataset}
    found = {name for one in touched for name in (*one.bound, *(one.used & known))}
    while True:
        more = {name for one in statements if one.bound & found for name in one.used & known}
        if more <= found:
            return found
        found |= more


def _used_functions(
    code: Sequence[ast.stmt], scope: str, text: _SourceText, *, without: Collection[str]
) -> dict[str, list[ast.stmt]]:
    """Returns the functions of a text that code of a scope may call, directly or indirectly, by qualified name.

    Other statements that bind a function or an object are among them, except those that bind a name in `without`.
    """
    found: dict[str, list[ast.stmt]] = {}
    waiting = [one for statement in code for one in _qualified_names(statement, scope)]
    while waiting:
        name, called = waiting.pop()
        for bound in text.bindings.get(name, ()) if name not in found else ():
            if isinstance(bound, ast.ClassDef):
                if called:
                    found[name] = []
                    waiting += [(member, False) for member in text.bindings if member.startswith(f"{name}.")]
                    waiting += [one for base in bound.bases for one in _qualified_names(ast.Call(base, [], []), name)]
            elif isinstance(bound, _Function) or (name not in without and _binds_function(bound, name, text)):
                found.setdefault(name, []).append(bound)
                waiting += _qualified_names(bound, name)
    return found


def _binds_function(statement: ast.stmt, name: str, text: _SourceText) -> bool:
    """Whether a statement binds a lambda, a partial, a function of the text, or an instance of one of its classes."""
    if any(isinstance(one, ast.Lambda) or _dotted_name(one).endswith("partial") for one in ast.walk(statement)):
        return True
    return any(
        isinstance(one, ast.ClassDef) and _has_methods(one) if called else isinstance(one, _Function)
        for used, called in _qualified_names(statement, name)
        for one in text.bindings.get(used, ())
    )


def _has_methods(node: ast.ClassDef) -> bool:
    return bool(node.bases) or any(isinstance(one, _Function) for one in ast.walk(node))


def _qualified_names(code: ast.AST, scope: str) -> list[tuple[str, bool]]:
    """Returns what the names in code of a scope may refer to, and whether it calls them."""
    called = {_dotted_name(one.func) for one in ast.walk(code) if isinstance(one, ast.Call)}
    scopes = ["", *accumulate(scope.split("."), "{}.{}".format)]
    return [(_qualified(name, one), name in called) for name in sorted(_used_names(code)) for one in scopes]


def _qualified(name: str, scope: str) -> str:
    """Returns a name with those of its scope in front; an attribute of `self` belongs to the class."""
    is_attribute = name.startswith(("self.", "cls."))
    owner, attribute = scope.rpartition(".")[0], name.partition(".")[2]
    return _without_marks(f"{owner}.{attribute}" if is_attribute else f"{scope}.{name}".lstrip("."))


def _block_statements(body: Sequence[ast.stmt], around: tuple[str, ...]) -> Iterator[_StatementHead]:
    for statement in body:
        fields = dict(ast.iter_fields(statement))
        blocks = {name: fields[name] for name in _BLOCKS if isinstance(fields.get(name), list)}
        head = _head(statement, blocks)
        code = (*around, ast.unparse(head))
        inner = [part for block in blocks.values() for part in block]
        end = max(min((part.lineno for part in inner if hasattr(part, "lineno")), default=0) - 1, statement.lineno)
        last = end if blocks else statement.end_lineno or statement.lineno
        called = [one.func for one in ast.walk(head) if isinstance(one, ast.Call)]
        attributes = [function for function in called if isinstance(function, ast.Attribute)]
        methods = frozenset(one.attr for one in attributes)
        receivers = frozenset({_dotted_name(one.value) for one in attributes if one.attr in _OPERATORS} - {""})
        node = statement if isinstance(statement, _Definition) else head
        bound, used = _bound_names(head), _used_names(head)
        yield _StatementHead(code, statement.lineno - 1, last, bound, used, methods, receivers, node)
        for name, block in blocks.items():
            for part in block:
                if isinstance(part, ast.ExceptHandler):
                    caught = ast.unparse(part.type) if part.type else ""
                    yield from _block_statements(part.body, (*code, f"except {caught}"))
                elif isinstance(part, ast.match_case):
                    yield from _block_statements(part.body, (*code, f"case {ast.unparse(part.pattern)}"))
                else:
                    yield from _block_statements([part], (*code, name))


def _head(statement: ast.stmt, blocks: Mapping[str, object]) -> ast.stmt:
    """Returns the head of a compound statement, its blocks emptied; any other statement is returned as it is."""
    if not blocks:
        return statement
    if isinstance(statement, ast.Match):
        return ast.copy_location(ast.Expr(statement.subject), statement)
    if isinstance(statement, ast.Try | ast.TryStar):
        return ast.copy_location(ast.Pass(), statement)
    fields = dict(ast.iter_fields(statement)) | {name: [] for name in blocks} | {"body": [ast.Pass()]}
    return ast.copy_location(type(statement)(**fields), statement)


def _bound_names(head: ast.stmt) -> frozenset[str]:
    """Returns the names and dotted names that a statement binds; for an item of a container, the container's."""
    stored = [node for node in ast.walk(head) if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)]
    return frozenset({_dotted_name(node.value if isinstance(node, ast.Subscript) else node) for node in stored} - {""})


def _used_names(node: ast.AST) -> frozenset[str]:
    """Returns the names and dotted names in a piece of code."""
    return frozenset({_dotted_name(one) for one in ast.walk(node)} - {""})


def _dotted_name(node: ast.AST) -> str:
    """Returns a name, or a dotted name such as "self.data"; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted_name(node.value)):
        return f"{owner}.{node.attr}"
    return ""


# -- lines


def _definitions(node: ast.Module | ast.ClassDef) -> Iterator[_Definition]:
    return (one for one in node.body if isinstance(one, _Definition))


def _display_name(scope: str) -> str:
    return f"{_without_marks(scope)}()" if scope else ""


def _without_marks(scope: str) -> str:
    """Returns the name of a scope as it is written: marks tell those of the same name apart."""
    return scope.replace("'", "")


def _without_line_end(line: str) -> str:
    return line.rstrip("\r\n")


def _has_line_end(line: str) -> bool:
    return line.endswith(("\r", "\n"))


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _line_end(lines: Sequence[str]) -> str:
    """Returns the line ending of the first line that has one; a line feed if there is none."""
    return next((line[len(_without_line_end(line)) :] for line in lines if _has_line_end(line)), "\n")


def _match_line_ends(new: Sequence[str], lines: Sequence[str], place: int) -> list[str]:
    """Returns lines with the line endings of the text they go into; the last line of a text may have none."""
    end = _line_end(lines[max(0, place - 1) :] or lines)
    made = [_without_line_end(line) + end for line in new]
    if made and place == len(lines) and not _has_line_end(new[-1]):
        made[-1] = _without_line_end(made[-1])
    return made
