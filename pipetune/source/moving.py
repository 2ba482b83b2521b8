"""Moves a call: within its chain, to another statement, together with its condition, or across functions."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.branches import path_of
from pipetune.source.carriers import carries, handed_to
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
from pipetune.source.conditions import all_of, parsed
from pipetune.source.crossing import Crossing, crossing_of, refuse_other_names
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.flow import Conditional, conditional_move, moved_call, refuse_unsafe, unmet_conditions
from pipetune.source.separation import end_statement
from pipetune.source.statements import (
    Statement,
    assigns_itself,
    deletion,
    function_around,
    names_bound,
    names_read,
    statement_of,
)
from pipetune.source.text import line_end, line_start, newline_of
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import receiver_of

_IN_TRANSIT, _PLACE = "#moved", "#place"


def remove(draft: Draft, node: str) -> Draft:
    """Returns the draft without the call of `node`.

    Raises:
        CannotExpress: the call is not a method of a dataset, or an argument assigns a name, awaits or yields.
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


def move(draft: Draft, node: str, after: str, current: Pipeline) -> Draft:
    """Returns the draft with the call of `node` moved to directly after the call of `after`.

    Args:
        node: id of the operator to move.
        after: id of the operator it is to follow.
        current: the pipeline before the move.

    Raises:
        CannotExpress: the move could change more than the order of the operators.
    """
    tree, call = draft.find(node)
    _, anchor = draft.find(after)
    file = draft.sites[node].file
    link = link_of(tree, call)
    refuse_bindings(call)
    if call_behind(tree, anchor) is call:
        return draft
    crossing = crossing_of(draft, node, after, current) if node in draft.ways and after in draft.ways else None
    if crossing is not None:
        return _move_across(draft, node, after, crossing)
    if draft.sites[after].file != file:
        raise CannotExpress("The call and the place it moves to stand in different files.")
    if anchor in links_above(tree, call) or call in links_above(tree, anchor):
        piece = own_piece(tree, link)
        inserted = insert_link(draft, anchor=after, node=_IN_TRANSIT, text=link.text, piece=piece)
        # If the whole lines cannot be moved, the comments above the link stay where they are.
        return _arrive(_take_link(inserted, node, with_comments=piece is not None), node)
    conditional = conditional_move(draft, tree, call, anchor=anchor)
    if conditional is not None:
        return _move_with_condition(draft, conditional, node=node, after=after)
    here, there = refuse_unsafe(draft, tree, call, anchor=anchor, unmet=True)
    draft = _only_where(draft, tree, file, here, unmet_conditions(draft, tree, here, there))
    if assigns_itself(tree, here, call) and here.name == there.name and there.value is anchor:
        return _move_line(draft, tree, node=node, moved=here, behind=there)
    return _arrive(remove(insert_link(draft, anchor=after, node=_IN_TRANSIT, text=link.text), node), node)


def _only_where(draft: Draft, tree: SyntaxTree, file: str, here: Statement, conditions: list[str]) -> Draft:
    """Records in the draft that the function around `here` is to change only where all `conditions` are true.

    Raises:
        CannotExpress: there is no function, or a condition cannot be evaluated at its beginning.
    """
    if not conditions:
        return draft
    function = function_around(tree, here.small)
    if not isinstance(function, cst.FunctionDef):
        raise CannotExpress("A condition stands between that was not met when the script was run.")
    bound = set().union(*(names_bound(line) for line in function.body.body))
    for text in conditions:
        if bound & set(names_read(parsed(text))):
            raise CannotExpress("A condition that was not met stands between, and asks for what the function binds.")
    return replace(draft, under=(*draft.under, ((file, path_of(tree, function)), all_of(conditions))))


def moves_with_condition(draft: Draft, node: str, after: str) -> bool:
    """Whether the move would take along the condition of the `if` statement around the call."""
    if node not in draft.sites or after not in draft.sites or draft.sites[node].file != draft.sites[after].file:
        return False
    (tree, call), (_, anchor) = draft.find(node), draft.find(after)
    try:
        return conditional_move(draft, tree, call, anchor=anchor) is not None
    except CannotExpress:
        return False


def _move_across(draft: Draft, node: str, after: str, crossing: Crossing) -> Draft:
    """Moves a call across function boundaries to directly after `crossing.behind`, which must be evaluated later."""
    file = draft.sites[node].file
    if draft.sites[after].file != file or crossing.anchor.file != file:
        raise CannotExpress("The call and the place it moves to stand in different files.")
    tree, call = draft.find(node)
    place = tree.calls[crossing.behind.end]
    upper, lower = tree.calls[crossing.moved.end], tree.calls[crossing.anchor.end]
    nested = receiver_of(tree, lower) is upper or any(one.value is upper for one in lower.args)
    if tree.start(upper) > tree.start(lower) and not nested:
        raise CannotExpress("The call would move into a function that is called before it.")
    refuse_other_names(tree, call, place)
    if crossing.behind != crossing.anchor:
        names = [one.value.value for one in lower.args if isinstance(one.value, cst.Name)]
        root = receiver_of(tree, lower)
        names += [root.value] if isinstance(root, cst.Name) else []
        given = [upper] if nested else [handed_to(tree, lower, name) for name in names]
        if not any(one is not None and carries(draft, tree, lower, one) for one in given):
            raise CannotExpress("It is not seen what the function does with the dataset before the call.")
    if not nested and lower not in links_above(tree, upper) and upper not in links_above(tree, lower):
        refuse_unsafe(draft, tree, upper, anchor=lower, moved=moved_call(tree, call))
    text = link_of(tree, call).text
    level = (draft.sites[after], *draft.around(after)).index(crossing.behind)
    draft = draft.place(_PLACE, crossing.behind)
    draft = insert_link(draft, anchor=_PLACE, node=_IN_TRANSIT, text=text)
    draft = draft.at_place_of(after, node, level=level)
    return forget(_arrive(remove(draft, node), node), _PLACE)


def _take_link(draft: Draft, node: str, *, with_comments: bool) -> Draft:
    tree, call = draft.find(node)
    splices = removal(tree, link_of(tree, call), with_comments=with_comments)
    return forget(draft.splice(draft.sites[node].file, splices), node)


def _arrive(draft: Draft, node: str) -> Draft:
    return forget(draft.place(node, draft.sites[_IN_TRANSIT]), _IN_TRANSIT)


def _move_with_condition(draft: Draft, moved: Conditional, *, node: str, after: str) -> Draft:
    """Moves `x = x.method(...)` to after another statement, under a copy of the `if` it was in."""
    draft = end_statement(draft, after, name=moved.name)
    tree, call = draft.find(node)
    _, anchor = draft.find(after)
    statement, behind = statement_of(tree, call), statement_of(tree, anchor)
    assert statement is not None and behind is not None
    condition = next(one for one in tree.ancestors(call) if isinstance(one, cst.If))
    code, file = tree.code, draft.sites[node].file
    first, last = _with_comments(tree, statement), line_end(code, tree.end(statement.small))
    indentation = code[line_start(code, tree.start(behind.small)) : tree.start(behind.small)]
    at = line_end(code, tree.end(behind.small))
    newline = newline_of(code, at)
    heading = indentation + code[tree.start(condition) : tree.end(condition.test)].rstrip() + b":"
    text = newline + heading + newline + code[first:last]
    alone = len(statement.block) == 1
    taken = _whole(tree, condition) if alone else replace(deletion(tree, statement), start=first)
    ends = at + len(newline + heading + newline) + draft.sites[node].end - first
    result = draft.splice(file, [Splice(at, at, text), taken])
    above = taken.end - taken.start if taken.start < at else 0
    return result.place(node, Site(file, ends - above))


def _whole(tree: SyntaxTree, condition: cst.If) -> Splice:
    """Returns the splice that removes an `if` statement with its body."""
    last = line_end(tree.code, tree.end(condition.body.body[-1]) - 1)
    newline = newline_of(tree.code, last)
    end = last + (len(newline) if tree.code[last : last + len(newline)] == newline else 0)
    return Splice(line_start(tree.code, tree.start(condition)), end, b"")


def _with_comments(tree: SyntaxTree, statement: Statement) -> int:
    """Returns the offset at which the line of a statement begins, including comment lines directly above it."""
    code, first = tree.code, line_start(tree.code, tree.start(statement.small))
    assert isinstance(statement.line, cst.SimpleStatementLine)
    for line in reversed(statement.line.leading_lines):
        if line.comment is None:
            break
        first = line_start(code, first - 1 - (code[first - 2 : first] == b"\r\n"))
    return first


def _move_line(draft: Draft, tree: SyntaxTree, *, node: str, moved: Statement, behind: Statement) -> Draft:
    """Moves `x = x.method(...)`, with the comments directly above it, to the line after `behind`."""
    code, site = draft.codes[draft.sites[node].file], draft.sites[node]
    first = _with_comments(tree, moved)
    taken = replace(deletion(tree, moved), start=first)
    piece = code[first : line_end(code, tree.end(moved.small))]
    at = line_end(code, tree.end(behind.small))
    newline = newline_of(code, at)
    if taken.end == len(code) and line_end(code, tree.end(moved.small)) == len(code):
        # The file ended without a newline and must still do so.
        taken = replace(taken, start=first - 1 - (code[first - 2 : first] == b"\r\n"))
    result = draft.splice(site.file, [Splice(at, at, newline + piece), taken])
    removed_above = taken.end - taken.start if taken.start < at else 0
    return result.place(node, Site(site.file, at - removed_above + len(newline) + site.end - first))
