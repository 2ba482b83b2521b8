"""Calls that take a dataset and return one: a helper `shuffled(ds)`, `ds.apply(prepare)`."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.chain import links_above, root_of, top_of
from pipetune.source.draft import Draft
from pipetune.source.functions import UsersFunction, functions_of
from pipetune.source.statements import name_nodes
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import receiver_of


def known_ends(draft: Draft, tree: SyntaxTree) -> set[int]:
    """Returns the end offsets of the calls in a file that built operators of the pipeline, or that were around them."""
    files = {file for file, code in draft.codes.items() if code == tree.code}
    sites = [*draft.sites.values(), *(one for way in draft.ways.values() for one in way)]
    return {site.end for site in sites if site.file in files}


def handed_to(tree: SyntaxTree, call: cst.Call, name: str) -> cst.BaseExpression | None:
    """Returns the only expression that passes the dataset `name` to a call, as argument or receiver, or None."""
    given = [receiver_of(tree, call), *(one.value for one in call.args if not one.star)]
    found = [one for one in given if isinstance(one, cst.Name) and one.value == name]
    return found[0] if len(found) == 1 else None


def carries(draft: Draft, tree: SyntaxTree, call: cst.Call, given: cst.BaseExpression) -> bool:
    """Whether a call takes a dataset and only appends operators to it, all of them recorded.

    This covers `ds.apply(prepare)` as well as `prepare(ds, 12)`.

    Args:
        given: the expression in the call that passes the dataset.
    """
    file = next((one for one, code in draft.codes.items() if code == tree.code), None)
    around = {site.end for way in draft.ways.values() for site in way if site.file == file}
    if file is None or tree.end(call) not in around:
        return False
    applied = isinstance(call.func, cst.Attribute) and call.func.attr.value == "apply" and len(call.args) == 1
    if applied and receiver_of(tree, call) is given:
        return _only_goes_on(draft, file, call.args[0].value, position=0)
    handed = [(place, one) for place, one in enumerate(call.args) if one.value is given and not one.star]
    if len(handed) != 1 or not isinstance(call.func, cst.Name | cst.Attribute):
        return False
    place, argument = handed[0]
    if argument.keyword is not None:
        return _only_goes_on(draft, file, call.func, keyword=argument.keyword.value)
    if any(one.star for one in call.args[:place]):
        return False
    return _only_goes_on(draft, file, call.func, position=place)


def _only_goes_on(
    draft: Draft, file: str, value: cst.BaseExpression, *, position: int = 0, keyword: str = ""
) -> bool:
    """Whether a function only calls recorded methods on the dataset it gets, assigns the result and returns it."""
    try:
        draft, found = functions_of(draft, file, value)
    except CannotExpress:
        return False
    if len(found) != 1:
        return False
    function = found[0]
    given = function.node.params.params
    names = [one.name.value for one in given]
    is_method = bool(names) and names[0] in ("self", "cls") and isinstance(function.reference, cst.Attribute)
    names = names[1:] if is_method else names
    name = keyword or (names[position] if position < len(names) else "")
    return bool(name) and name in names and _reads_are_steps(draft, function, name)


def _reads_are_steps(draft: Draft, function: UsersFunction, name: str) -> bool:
    tree = draft.tree(function.file)
    known = known_ends(draft, tree)
    reads = [one for one in name_nodes(function.body) if one.value == name]
    for read in reads:
        parent = tree.parent(read)
        if isinstance(parent, cst.AssignTarget | cst.Return | cst.IfExp):
            continue
        first = tree.parent(parent) if isinstance(parent, cst.Attribute) else None
        if not isinstance(first, cst.Call) or receiver_of(tree, first) is not read:
            return False
        last = top_of(tree, first)
        if any(tree.end(link) not in known for link in links_above(tree, last)) or root_of(tree, last) is not read:
            return False
    return bool(reads)
