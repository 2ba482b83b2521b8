"""Moving a call: within its chain, or to another statement of the same block."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.chain import (
    call_behind,
    forget,
    insert_link,
    link_of,
    links_above,
    own_piece,
    refuse_bindings,
    removal,
)
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.flow import refuse_unsafe
from pipetune.source.statements import Statement, assigns_itself, deletion, statement_of
from pipetune.source.text import line_end, line_start, newline_of
from pipetune.source.tree import SyntaxTree

_IN_TRANSIT = "#moved"


def remove(draft: Draft, node: str) -> Draft:
    """The draft without the call of `node`.

    Raises:
        CannotExpress: it is no link of a chain, or its arguments do more than give values.
    """
    tree, call = draft.find(node)
    link = link_of(tree, call)
    refuse_bindings(call)
    statement = statement_of(tree, call)
    if statement is not None and assigns_itself(tree, statement, call):
        splices = [deletion(tree, statement)]
    else:
        splices = removal(tree, link)
    return forget(draft.splice(draft.sites[node].file, splices), node)


def move(draft: Draft, node: str, after: str) -> Draft:
    """The draft with the call of `node` taken out and put directly behind the call of `after`.

    Raises:
        CannotExpress: the two stand where a move could change more than the order of the operators.
    """
    tree, call = draft.find(node)
    _, anchor = draft.find(after)
    file = draft.sites[node].file
    if draft.sites[after].file != file:
        raise CannotExpress("The call and the place it moves to stand in different files.")
    link = link_of(tree, call)
    refuse_bindings(call)
    if call_behind(tree, anchor) is call:
        return draft
    in_chain = anchor in links_above(tree, call) or call in links_above(tree, anchor)
    text = link.text
    if in_chain:
        piece = own_piece(tree, link)
        inserted = insert_link(draft, anchor=after, node=_IN_TRANSIT, text=text, piece=piece)
        # Where the whole lines could not be taken along, comments above the link stay where they are.
        return _arrive(_take_link(inserted, node, with_comments=piece is not None), node)
    here, there = refuse_unsafe(draft, tree, call, anchor=anchor)
    if assigns_itself(tree, here, call) and here.name == there.name and there.value is anchor:
        return _move_line(draft, tree, node=node, moved=here, behind=there)
    return _arrive(remove(insert_link(draft, anchor=after, node=_IN_TRANSIT, text=text), node), node)


def _take_link(draft: Draft, node: str, *, with_comments: bool) -> Draft:
    tree, call = draft.find(node)
    splices = removal(tree, link_of(tree, call), with_comments=with_comments)
    return forget(draft.splice(draft.sites[node].file, splices), node)


def _arrive(draft: Draft, node: str) -> Draft:
    return forget(draft.place(node, draft.sites[_IN_TRANSIT]), _IN_TRANSIT)


def _move_line(draft: Draft, tree: SyntaxTree, *, node: str, moved: Statement, behind: Statement) -> Draft:
    """Moves `x = x.method(...)` with the comments directly above it to the line behind `behind`."""
    code, site = draft.codes[draft.sites[node].file], draft.sites[node]
    assert isinstance(moved.line, cst.SimpleStatementLine)
    first = line_start(code, tree.start(moved.small))
    for line in reversed(moved.line.leading_lines):
        if line.comment is None:
            break
        first = line_start(code, first - 1 - (code[first - 2 : first] == b"\r\n"))
    taken = replace(deletion(tree, moved), start=first)
    piece = code[first : line_end(code, tree.end(moved.small))]
    at = line_end(code, tree.end(behind.small))
    newline = newline_of(code, at)
    if taken.end == len(code) and line_end(code, tree.end(moved.small)) == len(code):
        # The file goes on ending as it ended, without a newline.
        taken = replace(taken, start=first - 1 - (code[first - 2 : first] == b"\r\n"))
    result = draft.splice(site.file, [Splice(at, at, newline + piece), taken])
    removed_above = taken.end - taken.start if taken.start < at else 0
    return result.place(node, Site(site.file, at - removed_above + len(newline) + site.end - first))
