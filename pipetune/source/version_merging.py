"""Merges two versions of a function into one: common statements once, the others under a condition."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft, FunctionKey
from pipetune.source.source_files import NEWLINE, line_end, line_start, newline_of, next_line
from pipetune.source.statements import ends_function, first_line_start, last_line_end, negate
from pipetune.source.syntax_tree import SyntaxTree


def path_of(tree: SyntaxTree, function: cst.FunctionDef) -> tuple[str, ...]:
    """Returns the names of the functions and classes around a function, outermost first, and its own."""
    around = [one for one in tree.ancestors(function) if isinstance(one, cst.FunctionDef | cst.ClassDef)]
    return tuple(one.name.value for one in reversed([function, *around]))


def function_at(tree: SyntaxTree, path: tuple[str, ...]) -> cst.FunctionDef:
    """Returns the only function with this path.

    Raises:
        CannotExpress: there is not exactly one.
    """
    found = [one for one in tree.nodes(cst.FunctionDef) if path_of(tree, one) == path]
    if len(found) != 1:
        raise CannotExpress(f"There is not exactly one function named {path[-1]}.")
    return found[0]


def refuse_changes_beyond(before: Draft, after: Draft, function: FunctionKey) -> None:
    """Refuses changes outside the body of one function.

    Raises:
        CannotExpress: the drafts differ outside the body, or the body is on the line of its `def`.
    """
    file, path = function
    for name, code in after.codes.items():
        was = before.code(name)
        if name == file:
            trees = before.tree(file), after.tree(file)
            spans = [(tree, _block_span(tree, _body(function_at(tree, path)))) for tree in trees]
            was, code = (tree.code[:start] + tree.code[end:] for tree, (start, end) in spans)
        if was != code:
            raise CannotExpress(f"If the condition is not met, code outside {path[-1]} would change, too.")


def _body(function: cst.FunctionDef) -> cst.IndentedBlock:
    if not isinstance(function.body, cst.IndentedBlock):
        raise CannotExpress(f"The body of {function.name.value} is on the same line as its def.")
    return function.body


def merge_versions(before: Draft, after: Draft, function: FunctionKey, *, condition: str) -> Draft:
    """Returns `after` with a function that behaves as in `after` if the condition is met, and as in `before` otherwise.

    Args:
        condition: a Python expression that can be evaluated anywhere in the function.

    Raises:
        CannotExpress: the body of the function is on the line of its `def`.
    """
    file, path = function
    old, new = before.tree(file), after.tree(file)
    one, other = function_at(old, path), function_at(new, path)
    if old.text(one) == new.text(other):
        return after
    pieces = _TextBuilder()
    start, end = _block_span(new, _body(other))
    _merge_blocks(pieces, (old, _body(one)), (new, _body(other)), condition)
    nodes = {
        node
        for node, site in after.sites.items()
        if site.file == file and any(first < site.end <= last for first, last in pieces.conditional)
    }
    result = _replace_span(after, file, start, end, pieces)
    return replace(result, exclusive=result.exclusive | nodes)


@dataclass
class _TextBuilder:
    """Text under construction, with the positions of the parts that were copied from a draft."""

    text: bytearray = field(default_factory=bytearray)
    copied: list[tuple[int, int, int]] = field(default_factory=list)  # start and end in the draft, start in the text
    conditional: list[tuple[int, int]] = field(default_factory=list)  # spans of the draft that run under the condition

    def copy(
        self, code: bytes, start: int, end: int, *, indentation: bytes = b"", unindented: Sequence[int] = ()
    ) -> None:
        """Appends a part of a draft, indented by `indentation` except at the offsets `unindented` (within strings)."""
        at = start
        while at < end:
            stop = min(end, next_line(code, at))
            line = code[at:stop]
            if line.strip() and at == line_start(code, at) and at not in unindented:
                self.text += indentation
            self.copied.append((at, stop, len(self.text)))
            self.text += line
            at = stop


def _replace_span(draft: Draft, file: str, start: int, end: int, pieces: _TextBuilder) -> Draft:
    """Returns the draft with a part of a file replaced by `pieces`; its sites move with the text copied from it."""
    text = bytes(pieces.text)
    grown = len(text) - (end - start)

    def moved(site_end: int) -> int | None:
        if site_end <= start:
            return site_end
        if site_end > end:
            return site_end + grown
        for first, last, at in pieces.copied:
            if first < site_end <= last:
                return start + at + site_end - first
        return None

    code = draft.codes[file]
    return draft.with_code(file, code[:start] + text + code[end:], moved)


_Block = tuple[SyntaxTree, cst.IndentedBlock]


@dataclass(frozen=True)
class _StatementLines:
    """A statement of a block; offsets in bytes."""

    tree: SyntaxTree
    statement: cst.BaseStatement
    start: int  # of the blank lines and comments above it
    statement_start: int  # of its own first line
    end: int

    @property
    def head(self) -> bytes:
        """The blank lines and comments above it."""
        return self.tree.code[self.start : self.statement_start]

    @property
    def text(self) -> bytes:
        return self.tree.code[self.statement_start : self.end].strip()


_Statements = Sequence[_StatementLines]


def _merge_blocks(pieces: _TextBuilder, old: _Block, new: _Block, test: str) -> None:
    """Appends two blocks merged: common lines once, the others under the condition `test` or its negation."""
    one, other = _lines(*old), _lines(*new)
    indentation = new[0].indentation(new[1].body[0])
    heads: dict[int, bytes] = {}  # by index in the new block: heads that replace those of the draft
    texts = [line.text for line in one], [line.text for line in other]
    for kind, first, last, begin, stop in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        removed, added = one[first:last], other[begin:stop]
        if kind == "equal":
            for position, line in enumerate(added, begin):
                if position in heads:
                    pieces.text += heads[position]
                else:
                    pieces.copy(line.tree.code, line.start, line.statement_start)
                pieces.copy(line.tree.code, line.statement_start, line.end)
        elif (inside := _same_heading(removed, added)) is not None:
            head, tail = _block_span(new[0], inside[1])
            pieces.copy(new[0].code, added[0].start, head)
            _merge_blocks(pieces, (old[0], inside[0]), (new[0], inside[1]), test)
            pieces.copy(new[0].code, tail, added[0].end)
        elif not _merge_arguments(pieces, removed, added, test) and not _merge_links(
            pieces, removed, added, test, indentation=indentation
        ):
            if removed and not added and stop < len(other) and other[stop].head == removed[0].head:
                heads[stop] = one[last].head if last < len(one) else b""  # the change removed lines but left their head
            _merge_lines(pieces, removed, added, test, indentation=indentation, head_written=stop in heads)


def _merge_lines(
    pieces: _TextBuilder, removed: _Statements, added: _Statements, test: str, *, indentation: bytes, head_written: bool
) -> None:
    """Appends the lines `removed` from the old block, and those `added` in their place, under their conditions.

    With `head_written`, the head of the old lines is written once, above the condition.
    """
    first = (added or removed)[0]
    newline = newline_of(first.tree.code, first.statement_start)
    same = head_written or bool(removed and added and removed[0].head == added[0].head)
    blank = len(first.head) if same else _leading_blank_length(first.head)
    pieces.text += first.head[:blank]
    condition = test.encode()
    for position, line in enumerate(added):
        if not position:
            pieces.text += indentation + b"if " + condition + b":" + newline
        start = line.start if position else line.start + blank
        kept = _string_line_starts(line.tree, start, line.end)
        pieces.copy(line.tree.code, start, line.end, indentation=line.tree.indentation_unit, unindented=kept)
    leaves = bool(added) and ends_function(added[-1].statement)
    if removed and not leaves:
        pieces.text += indentation + (b"else:" if added else b"if " + negate(test).encode() + b":") + newline
    for position, line in enumerate(removed):
        skipped = 0 if position else len(line.head) if same else _leading_blank_length(line.head)
        old = _TextBuilder()
        kept = _string_line_starts(line.tree, line.start, line.end)
        unit = b"" if leaves else line.tree.indentation_unit
        old.copy(line.tree.code, line.start + skipped, line.end, indentation=unit, unindented=kept)
        pieces.text += bytes(old.text)
    if added:
        pieces.conditional.append((added[0].start, added[-1].end))


def _leading_blank_length(head: bytes) -> int:
    """Length in bytes of the blank lines in the head of a statement, up to the first comment."""
    at = 0
    while at < len(head) and not head[at : line_end(head, at)].strip():
        at = next_line(head, at)
    return at


def _same_heading(removed: _Statements, added: _Statements) -> tuple[cst.IndentedBlock, cst.IndentedBlock] | None:
    """Returns the bodies of two compound statements that differ only in their bodies; None for others."""
    if len(removed) != 1 or len(added) != 1:
        return None
    match removed[0].statement, added[0].statement:
        case (
            (cst.If(body=cst.IndentedBlock() as one, orelse=None) | cst.With(body=cst.IndentedBlock() as one)),
            (cst.If(body=cst.IndentedBlock() as other, orelse=None) | cst.With(body=cst.IndentedBlock() as other)),
        ):
            heads = [
                line.tree.code[line.statement_start : _block_span(line.tree, block)[0]].strip()
                for line, block in ((removed[0], one), (added[0], other))
            ]
            return (one, other) if heads[0] == heads[1] else None
    return None


def _merge_arguments(pieces: _TextBuilder, removed: _Statements, added: _Statements, test: str) -> bool:
    """Appends statements that each differ in one argument, with both values; False if they differ otherwise."""
    if len(removed) != len(added):
        return False
    found = [_differing_argument(*pair) for pair in zip(removed, added, strict=True)]
    if None in found:
        return False
    for line, (place, was) in zip(added, filter(None, found), strict=True):
        pieces.copy(line.tree.code, line.start, place)
        pieces.text += b" if " + test.encode() + b" else " + was
        pieces.copy(line.tree.code, place, line.end)
    return True


def _merge_links(
    pieces: _TextBuilder, removed: _Statements, added: _Statements, test: str, *, indentation: bytes
) -> bool:
    """Appends `x = ...` and, under the condition, the links that the new statement adds; False if it does not fit."""
    if len(removed) != 1 or len(added) != 1 or removed[0].head != added[0].head:
        return False
    old, new = removed[0].text, added[0]
    match new.statement:
        case cst.SimpleStatementLine(
            body=[
                cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=target))], value=cst.Call(func=cst.Attribute())
                )
            ]
        ):
            pass
        case _:
            return False
    if not new.text.startswith(old + b".") or b"\n" in new.text[len(old) :]:
        return False
    place = new.statement_start + len(indentation) + len(old)
    newline = newline_of(new.tree.code, new.statement_start)
    pieces.copy(new.tree.code, new.start, place)
    pieces.text += newline + indentation + b"if " + test.encode() + b":" + newline
    pieces.text += indentation + new.tree.indentation_unit + f"{target} = {target}".encode()
    pieces.copy(new.tree.code, place, new.end)
    pieces.conditional.append((place, new.end))
    return True


def _differing_argument(removed: _StatementLines, added: _StatementLines) -> tuple[int, bytes] | None:
    """Returns where the only argument that differs ends and its old text; None if the statements differ otherwise."""
    if not isinstance(added.statement, cst.SimpleStatementLine):
        return None
    old, new = removed.tree, added.tree
    found = [_arguments(line.tree, line.statement) for line in (removed, added)]
    if len(found[0]) != len(found[1]):
        return None
    differing = [pair for pair in zip(*found, strict=True) if old.text(pair[0]) != new.text(pair[1])]
    if len(differing) != 1 or any(not isinstance(one, _PLAIN) for one in differing[0]):
        return None
    was, now = differing[0]
    text = old.text(was).encode()
    as_before = new.code[added.statement_start : new.start(now)] + text + new.code[new.end(now) : added.end]
    return (new.end(now), text) if as_before.strip() == removed.text else None


_PLAIN = cst.Name | cst.Attribute | cst.BaseNumber | cst.Call  # need no parentheses in `new if test else old`


def _arguments(tree: SyntaxTree, statement: cst.CSTNode) -> list[cst.BaseExpression]:
    """Returns the values of the arguments in a statement that contain no other argument, in order."""
    start, end = tree.start(statement), tree.end(statement)
    inside = [one for one in tree.nodes(cst.Arg) if start <= tree.start(one) and tree.end(one) <= end]
    around = {up for one in inside for up in tree.ancestors(one)}
    return [one.value for one in inside if one not in around and not one.value.lpar]


def _string_line_starts(tree: SyntaxTree, start: int, end: int) -> list[int]:
    """Returns the offsets of lines that begin inside a multi-line string and therefore must not be indented."""
    inside = []
    for text in tree.nodes(cst.SimpleString, cst.FormattedString):
        first, last = tree.start(text), tree.end(text)
        if first < end and last > start:
            inside += [newline.end() for newline in NEWLINE.finditer(tree.code, first, last)]
    return inside


def _lines(tree: SyntaxTree, block: cst.IndentedBlock) -> list[_StatementLines]:
    """Returns every statement of a block; comments at the end of the block belong to none of them."""
    found: list[_StatementLines] = []
    start, _ = _block_span(tree, block)
    for statement in block.body:
        end = next_line(tree.code, last_line_end(tree, statement))
        found.append(_StatementLines(tree, statement, start, first_line_start(tree, statement), end))
        start = end
    return found


def _block_span(tree: SyntaxTree, block: cst.IndentedBlock) -> tuple[int, int]:
    """Returns the span of a block, from the comments above its first statement to the end of its last line."""
    begin = first_line_start(tree, block.body[0])
    while begin:
        above = tree.offset(tree.line(begin) - 1, 0)
        line = tree.code[above:begin].strip()
        if line and not line.startswith(b"#"):
            break
        begin = above
    return begin, next_line(tree.code, last_line_end(tree, block.body[-1]))
