"""Method chains: their links and line breaks, how a link is inserted or removed, and a chain split into statements."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import CONSTRUCTORS, METHODS, is_unbound, method_arguments, receiver_of
from pipetune.source.draft import CallSite, Draft, Splice, called_name
from pipetune.source.source_files import NEWLINE, line_end, newline_of
from pipetune.source.statements import Statement, is_dotted, statement_of, variable_names
from pipetune.source.syntax_tree import EFFECTS, SyntaxTree, nodes_within

MIN_LINE_WIDTH = 88
"""Columns that a line may always take; in a file with longer lines, the longest is the limit."""

_COMMENT = re.compile(rb"[ \t]*#[^\r\n]*")


@dataclass(frozen=True)
class LinkBreak:
    """What is around the dot in front of a link: nothing, or a line break in one of its three forms."""

    before: bytes = b""
    after: bytes = b""

    @property
    def own_line(self) -> bool:
        """Whether the link begins a line of its own inside parentheses (not after a backslash)."""
        return b"\\" not in self.before and NEWLINE.search(self.before) is not None


@dataclass(frozen=True)
class ChainLink:
    """A link `.method(...)` behind its receiver; offsets in bytes."""

    receiver: cst.BaseExpression
    start: int  # end of the receiver, including its parentheses
    dot: int
    end: int
    text: bytes  # `method(...)`
    parenthesized: bool  # the whitespace before the dot spans lines without a backslash
    unbound: tuple[int, int] | None = None  # start of `Dataset.method(receiver, ...)` and of its receiver


def link_of(tree: SyntaxTree, call: cst.Call) -> ChainLink:
    """Returns the link that `call` forms.

    Raises:
        CannotExpress: the call is no method of a dataset expression, or does not show its dataset.
    """
    func, code, end = call.func, tree.code, tree.end(call)
    if not isinstance(func, cst.Attribute) or func.attr.value in CONSTRUCTORS:
        raise CannotExpress("The call is not a method of a dataset, so it cannot be removed from a chain.")
    if not is_unbound(tree, call):
        start, dot = tree.start(func.dot.whitespace_before), tree.start(func.dot)
        spread = isinstance(func.dot.whitespace_before, cst.ParenthesizedWhitespace)
        return ChainLink(func.value, start, dot, end, code[tree.start(func.attr) : end], spread)
    method, receiver, own = func.attr.value, receiver_of(tree, call), method_arguments(tree, call)
    if receiver is None:
        raise CannotExpress(f"{method} is called through the class, and its first argument is not the dataset.")
    begins, ends = tree.whole_span(receiver)
    first = tree.start(own[0]) if own else end - 1
    text = method.encode() + b"(" + code[first:end]
    return ChainLink(receiver, ends, ends, end, text, False, (tree.start(call), begins))


def next_chain_call(tree: SyntaxTree, call: cst.Call) -> cst.Call | None:
    """Returns the method call that has `call` itself as its receiver, or None."""
    outer = tree.parent(tree.parent(call))
    return outer if isinstance(outer, cst.Call) and receiver_of(tree, outer) is call else None


def last_chain_call(tree: SyntaxTree, call: cst.Call) -> cst.Call:
    """Returns the last call of the chain that contains `call`."""
    while (outer := next_chain_call(tree, call)) is not None:
        call = outer
    return call


def upstream_calls(tree: SyntaxTree, call: cst.Call) -> list[cst.Call]:
    """Returns `call` and the calls upstream of it in its chain, nearest first."""
    found = [call]
    while isinstance(above := receiver_of(tree, found[-1]), cst.Call):
        found.append(above)
    return found


def chain_root(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression:
    """Returns the expression that the chain begins with: the name `ds` in `ds.map(f).batch(2)`."""
    first = upstream_calls(tree, call)[-1]
    return receiver_of(tree, first) or first


def break_before(tree: SyntaxTree, func: cst.BaseExpression) -> LinkBreak:
    """Returns what is around the dot of a method, without comments; an empty break for anything else."""
    if not isinstance(func, cst.Attribute):
        return LinkBreak()
    before, after = func.dot.whitespace_before, func.dot.whitespace_after
    return LinkBreak(_line_break(before, tree.text(before).encode()), _line_break(after, tree.text(after).encode()))


def _line_break(whitespace: cst.BaseParenthesizableWhitespace, text: bytes) -> bytes:
    """Returns the line break in `text` without its comments; empty if there is none."""
    newlines = list(NEWLINE.finditer(text))
    if not newlines:
        return b""
    return text[newlines[-1].start() :] if isinstance(whitespace, cst.ParenthesizedWhitespace) else text


def insert_link(
    draft: Draft, *, anchor: CallSite, node: str, text: bytes, own_lines: tuple[bytes, int] | None = None
) -> Draft:
    """Returns the draft with `.text` appended to the call at `anchor`, as the call of `node`.

    Args:
        text: `method(...)`, without the dot.
        own_lines: the complete lines for a link with lines of its own, and the offset in them where the call ends.
    """
    tree, at = draft.tree(anchor.file), anchor.end
    call = tree.calls[at]
    style = break_before(tree, call.func)
    if style == LinkBreak() and (behind := next_chain_call(tree, call)) is not None:
        style = break_before(tree, behind.func)
    if style.own_line and (comment := _COMMENT.match(tree.code, at)):
        at = comment.end()  # the comment keeps its line
    new = style.before + b"." + style.after + text
    ends = len(new)
    if own_lines is not None and style.own_line:
        new, ends = own_lines
    elif not (style.before or style.after):
        statement = statement_of(tree, call)
        if (
            statement is not None
            and statement.alone_on_line
            and statement.name is not None
            and statement.value is call
            and _exceeds_other_lines(tree, statement, extra=len(new))
        ):
            at, again = line_end(tree.code, at), f"{statement.name} = {statement.name}".encode()
            new = newline_of(tree.code, at) + tree.indentation(statement.small) + again + new
            ends = len(new)
    return draft.splice(anchor.file, [Splice(at, at, new)]).with_site(node, CallSite(anchor.file, at + ends))


def _exceeds_other_lines(tree: SyntaxTree, statement: Statement, *, extra: int = 0) -> bool:
    """Whether a statement on one line, `extra` bytes longer, is longer than every other line may be."""
    first, last = tree.line(tree.start(statement.small)), tree.line(tree.end(statement.small))
    lengths = [len(line.decode()) for line in NEWLINE.split(tree.code)]
    own = lengths.pop(first - 1)
    return first == last and own + extra > max([MIN_LINE_WIDTH, *lengths])


def lines_of_link(tree: SyntaxTree, link: ChainLink) -> tuple[bytes, int] | None:
    """Returns the lines of a link that are its own, with comments, and the offset in them where its call ends."""
    (span, *_) = remove_link(tree, link, with_comments=True)
    if not link.parenthesized or NEWLINE.match(tree.code, span.start) is None:
        return None
    return tree.code[span.start : span.end], link.end - span.start


def remove_link(tree: SyntaxTree, link: ChainLink, *, with_comments: bool = False) -> list[Splice]:
    """Returns the changes that remove the link from its chain.

    A comment behind it on its line is removed, too; comments on the lines above it only if they move, `with_comments`.
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
        # The rest of the line joins the line above, unless it is a link or would become part of a comment.
        line_above = before[: newlines[-1].start()]
        goes_on = rest.lstrip().startswith(b".") or b"#" in line_above
        return [Splice(link.dot if goes_on else link.start + newlines[-1].start(), link.end, b"")]
    first = newlines[0] if with_comments else newlines[-1]
    return [Splice(link.start + first.start(), link.end + len(rest.rstrip()), b"")]


def refuse_bindings(call: cst.Call) -> None:
    """Refuses to remove a call whose arguments do more than compute values.

    Raises:
        CannotExpress: an argument assigns a name, awaits or yields.
    """
    if any(any(nodes_within(argument, *EFFECTS)) for argument in call.args):
        raise CannotExpress("An argument of the call assigns a name, awaits or yields; this would be lost.")


def split_after(draft: Draft, site: CallSite, *, name: str) -> Draft:
    """Returns the draft in which the chain up to the call at `site` is assigned to `name` in its own statement.

    `return ds.shuffle(9).batch(2)` becomes `ds = ds.shuffle(9).batch(2)` and `return ds`.

    Raises:
        CannotExpress: the statement goes on below the call, does more than make the dataset, or uses `name` otherwise.
    """
    tree = draft.tree(site.file)
    call = tree.calls[site.end]
    statement = statement_of(tree, call)
    if statement is None or not statement.alone_on_line:
        raise CannotExpress("The call is not in a statement that is alone on its line.")
    top = last_chain_call(tree, call)
    if statement.value is not top:
        raise CannotExpress("The statement does more than build the dataset.")
    if top is call and statement.name == name:
        return draft
    code = tree.code
    start, end = tree.start(statement.small), tree.end(statement.small)
    begins, _ = tree.whole_span(top)
    if top is not call and (top.lpar or NEWLINE.search(code, begins, end)):
        raise CannotExpress("The statement continues on further lines after the call.")
    if not _can_hold_dataset(tree, statement, top, name):
        raise CannotExpress(f"{name} is also used for something else, inside or outside of the statement.")
    again = newline_of(code, end) + tree.indentation(statement.small) + code[start:begins] + name.encode()
    at = end if top is call else tree.end(call)
    return draft.splice(site.file, [Splice(start, begins, f"{name} = ".encode()), Splice(at, at, again)])


def split_long_statement(draft: Draft, node: str) -> Draft:
    """Returns the draft in which the call of `node` has its own statement if its line has become too long."""
    if node not in draft.sites:
        return draft
    tree, call = draft.find(node)
    statement = statement_of(tree, call)
    if statement is None or not statement.alone_on_line or called_name(call) not in METHODS:
        return draft
    top = last_chain_call(tree, call)
    name = _dataset_name(tree, statement, top)
    if name is None or statement.value is not top or top.lpar or is_unbound(tree, call):
        return draft
    if not _exceeds_other_lines(tree, statement) or not _can_hold_dataset(tree, statement, top, name):
        return draft
    code, link = tree.code, link_of(tree, call)
    start, begins, ends = tree.start(statement.small), tree.start(top), tree.end(top)
    variable, heading = name.encode(), code[start:begins]
    assigned, line = variable + b" = ", newline_of(code, ends) + tree.indentation(statement.small)
    follows, goes_on = code[begins : link.dot] != variable, link.end < ends
    splices = []
    if follows or goes_on:
        splices.append(Splice(start, begins, assigned))
    if follows:
        splices.append(Splice(link.dot, link.dot, line + (assigned if goes_on else heading) + variable))
    if goes_on:
        splices.append(Splice(link.end, link.end, line + heading + variable))
    return draft.splice(draft.sites[node].file, splices)


def _dataset_name(tree: SyntaxTree, statement: Statement, top: cst.Call) -> str | None:
    """Returns the name that holds the dataset: the target of an assignment, or the name that a return begins with."""
    if isinstance(statement.small, cst.Assign):
        return statement.name
    root = chain_root(tree, top)
    return root.value if isinstance(statement.small, cst.Return) and isinstance(root, cst.Name) else None


def _can_hold_dataset(tree: SyntaxTree, statement: Statement, top: cst.Call, name: str) -> bool:
    """Whether `name` can hold the dataset in between: a local variable, read only where the chain begins."""
    root = chain_root(tree, top)
    begins = isinstance(root, cst.Name) and root.value == name
    reads = variable_names(statement.small).count(name) - (statement.name == name)
    scope = tree.scope(top)
    local = all(one.scope is scope for one in scope[name])
    return reads == int(begins) and local


def is_self_assignment(tree: SyntaxTree, statement: Statement | None, call: cst.Call) -> bool:
    """Whether the statement is `x = x.method(...)` and `call` is that method call: nothing is left without it."""
    if statement is None or statement.target is None or statement.value is not call:
        return False
    receiver = receiver_of(tree, call)
    return receiver is not None and is_dotted(receiver) and tree.text(receiver) == tree.text(statement.target)
