"""Making a call the end of a statement of its own, so that other statements can stand behind it."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.chain import top_of
from pipetune.source.draft import Draft, Splice
from pipetune.source.statements import statement_of
from pipetune.source.text import line_start, newline_of


def end_statement(draft: Draft, node: str, *, name: str) -> Draft:
    """The draft in which the call of `node` is all that a statement assigns to `name`.

    `return ds.shuffle(9).batch(2)` becomes `ds = ds.shuffle(9).batch(2)` and `return ds`.

    Raises:
        CannotExpress: the statement goes on over lines behind the call, or does something before the call.
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
    indentation = code[line_start(code, start) : start]
    rest = b"" if top is call else code[tree.end(call) : end]
    again = newline_of(code, end) + indentation + code[start:begins] + name.encode() + rest
    splices = [Splice(start, begins, f"{name} = ".encode())]
    splices.append(Splice(end if top is call else tree.end(call), end, again))
    return draft.splice(draft.sites[node].file, splices)
