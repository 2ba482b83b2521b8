"""Method chains: the links of one, how it is broken over lines, putting a link in and taking one out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.signatures import CONSTRUCTORS
from pipetune.source.statements import Statement, statement_of
from pipetune.source.text import NEWLINE, line_end, line_start, newline_of
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import is_unbound, own_arguments, receiver_of

USUAL_WIDTH = 88
"""Columns a line may take at least; where the file has longer lines, as many as the longest."""

_COMMENT = re.compile(rb"[ \t]*#[^\r\n]*")


@dataclass(frozen=True)
class Break:
    """What stands around the dot in front of a link: nothing, or a line break in one of its three forms."""

    before: bytes = b""
    after: bytes = b""

    @property
    def own_line(self) -> bool:
        """Whether the link begins a line of its own inside parentheses (not behind a backslash)."""
        return b"\\" not in self.before and NEWLINE.search(self.before) is not None


@dataclass(frozen=True)
class Link:
    """`.method(...)` as it stands behind its receiver; offsets in bytes."""

    receiver: cst.BaseExpression
    start: int  # where the receiver ends, its parentheses included
    dot: int
    end: int
    text: bytes  # `method(...)`
    parenthesized: bool  # the whitespace before the dot spans lines without a backslash
    unbound: tuple[int, int] | None = None  # of `Dataset.method(receiver, ...)`: where it and the receiver begin


def link_of(tree: SyntaxTree, call: cst.Call) -> Link:
    """The link that `call` is.

    Raises:
        CannotExpress: the call is no method of a dataset expression.
    """
    func = call.func
    if not isinstance(func, cst.Attribute) or func.attr.value in CONSTRUCTORS:
        raise CannotExpress("The call is no method of a dataset, so it cannot be taken out of a chain.")
    end = tree.end(call)
    if is_unbound(tree, call):
        return _unbound_link(tree, call, func)
    dot = tree.start(func.dot)
    start = tree.start(func.dot.whitespace_before)
    spread = isinstance(func.dot.whitespace_before, cst.ParenthesizedWhitespace)
    return Link(func.value, start, dot, end, tree.code[tree.start(func.attr) : end], spread)


def _unbound_link(tree: SyntaxTree, call: cst.Call, func: cst.Attribute) -> Link:
    receiver, own = receiver_of(tree, call), own_arguments(tree, call)
    if receiver is None:
        raise CannotExpress(f"{func.attr.value} is called through the class, and its dataset is not given first.")
    begins, ends = (receiver.lpar[0] if receiver.lpar else receiver), (receiver.rpar[-1] if receiver.rpar else receiver)
    end, first = tree.end(ends), tree.start(own[0]) if own else tree.end(call) - 1
    text = func.attr.value.encode() + b"(" + tree.code[first : tree.end(call)]
    return Link(receiver, end, end, tree.end(call), text, False, (tree.start(call), tree.start(begins)))


def call_behind(tree: SyntaxTree, call: cst.Call) -> cst.Call | None:
    """The call of the method that is called on `call` itself."""
    parent = tree.parent(call)
    outer = tree.parent(parent) if parent is not None else None
    if not isinstance(outer, cst.Call):
        return None
    if isinstance(parent, cst.Attribute) and outer.func is parent:
        return outer
    unbound = isinstance(parent, cst.Arg) and is_unbound(tree, outer) and receiver_of(tree, outer) is call
    return outer if unbound else None


def top_of(tree: SyntaxTree, call: cst.Call) -> cst.Call:
    """The last call of the chain that `call` is a link of."""
    while (outer := call_behind(tree, call)) is not None:
        call = outer
    return call


def links_above(tree: SyntaxTree, call: cst.Call) -> list[cst.Call]:
    """`call` and the calls of its chain before it, nearest first."""
    found = [call]
    while isinstance(above := receiver_of(tree, found[-1]), cst.Call):
        found.append(above)
    return found


def root_of(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression:
    """What the chain begins with: the name `ds` in `ds.map(f).batch(2)`."""
    first = links_above(tree, call)[-1]
    return receiver_of(tree, first) or first


def break_behind(tree: SyntaxTree, call: cst.Call) -> Break:
    """How a careful colleague would set a link behind `call`: as the chain is set there."""
    own = break_of(tree, call.func)
    if own.before or own.after:
        return own
    outer = call_behind(tree, call)
    return break_of(tree, outer.func) if outer is not None else Break()


def break_of(tree: SyntaxTree, func: cst.BaseExpression) -> Break:
    """What stands around the dot of a method, comments left out; nothing for what is no method."""
    if not isinstance(func, cst.Attribute):
        return Break()
    before, after = func.dot.whitespace_before, func.dot.whitespace_after
    return Break(_line_break(before, tree.text(before).encode()), _line_break(after, tree.text(after).encode()))


def _line_break(whitespace: cst.BaseParenthesizableWhitespace, text: bytes) -> bytes:
    """The line break in `text` without its comments; nothing when it stays on the line."""
    newlines = list(NEWLINE.finditer(text))
    if not newlines:
        return b""
    return text[newlines[-1].start() :] if isinstance(whitespace, cst.ParenthesizedWhitespace) else text


def insert_link(draft: Draft, *, anchor: str, node: str, text: bytes, piece: tuple[bytes, int] | None = None) -> Draft:
    """The draft with `.text` behind the call of `anchor`, as the call of `node`.

    Args:
        piece: the whole line to use where the link gets a line of its own, and where the call ends in it.
    """
    tree, call = draft.find(anchor)
    site = draft.sites[anchor]
    style = break_behind(tree, call)
    at = tree.end(call)
    if style.own_line and (comment := _COMMENT.match(tree.code, at)):
        at = comment.end()  # the comment keeps its line
    new = style.before + b"." + style.after + text
    ends = len(new)
    if piece is not None and style.own_line:
        new, ends = piece
    elif not (style.before or style.after):
        statement = statement_of(tree, call)
        if statement is not None and _too_long(tree, statement, call, extra=len(new)):
            start, at = line_start(tree.code, tree.start(statement.small)), line_end(tree.code, at)
            indentation = tree.code[start : tree.start(statement.small)]
            new = newline_of(tree.code, at) + indentation + f"{statement.name} = {statement.name}".encode() + new
            ends = len(new)
    return draft.splice(site.file, [Splice(at, at, new)]).place(node, Site(site.file, at + ends))


def _too_long(tree: SyntaxTree, statement: Statement, call: cst.Call, *, extra: int) -> bool:
    """Whether `name = <call>` on one line should get the next call in a statement of its own."""
    if not statement.alone or statement.name is None or statement.value is not call:
        return False
    lines = [len(line.decode()) for line in NEWLINE.split(tree.code)]
    first, last = tree.line(tree.start(statement.small)), tree.line(tree.end(statement.small))
    return first == last and lines[first - 1] + extra > max(USUAL_WIDTH, *lines)


def own_piece(tree: SyntaxTree, link: Link) -> tuple[bytes, int] | None:
    """The lines of a link that has lines to itself, with their comments, and where its call ends in them."""
    (span, *_) = removal(tree, link, with_comments=True)
    if not link.parenthesized or NEWLINE.match(tree.code, span.start) is None:
        return None
    return tree.code[span.start : span.end], link.end - span.start


def removal(tree: SyntaxTree, link: Link, *, with_comments: bool = False) -> list[Splice]:
    """The changes that take the link out, so that the chain goes on without it.

    A comment behind it on its line goes too; comments on lines above it only when they move with it.
    """
    code = tree.code
    if link.unbound is not None:
        return [Splice(*link.unbound, b""), Splice(link.start, link.end, b"")]
    before = code[link.start : link.dot]
    newlines = list(NEWLINE.finditer(before))
    if not link.parenthesized or not newlines:
        return [Splice(link.start, link.end, b"")]
    rest = code[link.end : line_end(code, link.end)]
    if rest.strip() and not rest.lstrip().startswith(b"#"):
        # What follows on the line goes up to the line above, unless it is a link or would end in a comment.
        line_above = before[: newlines[-1].start()]
        goes_on = rest.lstrip().startswith(b".") or b"#" in line_above
        return [Splice(link.dot if goes_on else link.start + newlines[-1].start(), link.end, b"")]
    first = newlines[0] if with_comments else newlines[-1]
    return [Splice(link.start + first.start(), link.end + len(rest.rstrip()), b"")]


def refuse_bindings(call: cst.Call) -> None:
    """Refuses to take out a call whose arguments do more than give values.

    Raises:
        CannotExpress: an argument assigns a name, awaits or yields.
    """
    for argument in call.args:
        finder = _Finder()
        argument.visit(finder)
        if finder.found:
            raise CannotExpress("An argument of the call assigns, awaits or yields, which would be lost.")


class _Finder(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self.found = True

    def visit_Await(self, node: cst.Await) -> None:
        self.found = True

    def visit_Yield(self, node: cst.Yield) -> None:
        self.found = True


def forget(draft: Draft, node: str) -> Draft:
    """The draft without a site for `node`."""
    return replace(draft, sites={name: site for name, site in draft.sites.items() if name != node})
