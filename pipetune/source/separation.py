"""Splits a statement after a call, so that other statements can be inserted there."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.chain import USUAL_WIDTH, link_of, root_of, top_of
from pipetune.source.draft import Draft, Splice
from pipetune.source.locate import called_name
from pipetune.source.signatures import METHODS
from pipetune.source.statements import Statement, names_read, statement_of
from pipetune.source.text import NEWLINE, line_start, newline_of
from pipetune.source.tree import SyntaxTree


def end_statement(draft: Draft, node: str, *, name: str) -> Draft:
    """Returns the draft in which the chain up to the call of `node` is assigned to `name` in its own statement.

    `return ds.shuffle(9).batch(2)` becomes `ds = ds.shuffle(9).batch(2)` and `return ds`.

    Raises:
        CannotExpress: the statement continues over several lines after the call, does more than make the dataset, or
            uses `name` for something else.
    """
    tree, call = draft.find(node)
    statement = statement_of(tree, call)
    if statement is None or not statement.alone:
        raise CannotExpress("The call is no part of a statement that has its line to itself.")
    top = top_of(tree, call)
    if statement.value is not top:
        raise CannotExpress("The statement does more than make the dataset.")
    if top is call and statement.name == name:
        return draft
    code = tree.code
    start, end = tree.start(statement.small), tree.end(statement.small)
    begins = tree.start(top.lpar[0]) if top.lpar else tree.start(top)
    if top is not call and (top.lpar or b"\n" in code[begins:end] or b"\r" in code[begins:end]):
        raise CannotExpress("The statement goes on over several lines behind the call.")
    if not isinstance(statement.small, cst.Return | cst.Assign | cst.AnnAssign | cst.Expr):
        raise CannotExpress("The statement does more than make the dataset.")
    if not _may_carry(tree, statement, top, name):
        raise CannotExpress(f"{name} means something else in the statement, or outside of it.")
    indentation = code[line_start(code, start) : start]
    rest = b"" if top is call else code[tree.end(call) : end]
    again = newline_of(code, end) + indentation + code[start:begins] + name.encode() + rest
    splices = [Splice(start, begins, f"{name} = ".encode())]
    splices.append(Splice(end if top is call else tree.end(call), end, again))
    return draft.splice(draft.sites[node].file, splices)


def spread(draft: Draft, node: str) -> Draft:
    """Returns the draft in which the call of `node` has its own statement if its line has become too long."""
    if node not in draft.sites:
        return draft
    tree, call = draft.find(node)
    statement = statement_of(tree, call)
    if statement is None or not statement.alone or called_name(call) not in METHODS:
        return draft
    top = top_of(tree, call)
    name = _name_of(tree, statement, top)
    if name is None or statement.value is not top or top.lpar or not _too_long(tree, statement):
        return draft
    if not _may_carry(tree, statement, top, name):
        return draft
    code, link = tree.code, link_of(tree, call)
    start, begins, ends = tree.start(statement.small), tree.start(top), tree.end(top)
    if link.unbound is not None:
        return draft
    heading, again = code[start:begins], name.encode() + b" = " + name.encode()
    line = newline_of(code, ends) + code[line_start(code, start) : start]
    goes_on = link.end < ends
    splices = []
    if code[begins : link.dot] != name.encode():
        splices.append(Splice(start, begins, name.encode() + b" = "))
        splices.append(Splice(link.dot, link.dot, line + (again if goes_on else heading + name.encode())))
    elif goes_on:
        splices.append(Splice(start, begins, name.encode() + b" = "))
    if goes_on:
        splices.append(Splice(link.end, link.end, line + heading + name.encode()))
    return draft.splice(draft.sites[node].file, splices)


def _name_of(tree: SyntaxTree, statement: Statement, top: cst.Call) -> str | None:
    """Returns the name that holds the dataset: the target of an assignment, or the name that a return begins with."""
    if isinstance(statement.small, cst.Assign):
        return statement.name
    root = root_of(tree, top)
    return root.value if isinstance(statement.small, cst.Return) and isinstance(root, cst.Name) else None


def _may_carry(tree: SyntaxTree, statement: Statement, top: cst.Call, name: str) -> bool:
    """Whether `name` can hold the dataset in between: a local variable, read only where the chain begins."""
    root = root_of(tree, top)
    begins = isinstance(root, cst.Name) and root.value == name
    reads = names_read(statement.small).count(name) - (statement.name == name)
    scope = tree.scope(top)
    local = scope is not None and all(one.scope is scope for one in scope[name])
    return reads == int(begins) and local


def _too_long(tree: SyntaxTree, statement: Statement) -> bool:
    first, last = tree.line(tree.start(statement.small)), tree.line(tree.end(statement.small))
    lengths = [len(line.decode()) for line in NEWLINE.split(tree.code)]
    own = lengths.pop(first - 1)
    return first == last and own > max(USUAL_WIDTH, *lengths)
