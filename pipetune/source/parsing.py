"""Rewrites a function that parses one example to parse a batch: `parse_example` replaces `parse_single_example`.

If only the map calls the function, the function itself is changed. If other code calls it too, it gets a parameter for
the parsing function, whose default is the original one.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.arguments import add_argument
from pipetune.source.callables import callee_of, function_given, replace_function
from pipetune.source.draft import Draft, Splice
from pipetune.source.functions import UsersFunction, functions_called, functions_of
from pipetune.source.parameters import add_parameter
from pipetune.source.statements import name_nodes
from pipetune.source.tree import SyntaxTree
from pipetune.source.uses import uses_of

_SINGLE, _WHOLE = "parse_single_example", "parse_example"
_MOST_FUNCTIONS = 40  # user functions that are searched


def parse_batches(draft: Draft, node: str, *, several: bool, called: str, alone: bool) -> Draft:
    """Returns the draft in which the function of the map `node` parses batches.

    Args:
        several: whether the elements are tuples.
        called: the name of the function, as captured.
        alone: False if the call of the map also makes another dataset, which must stay as it is.

    Raises:
        CannotExpress: the parsing call is not found, or cannot be changed for this map alone.
    """
    tree, call = draft.find(node)
    file, argument = draft.sites[node].file, function_given(tree, call)
    if argument is None:
        raise CannotExpress("The call of map does not show its function.")
    draft, way = _way_to_parsing(draft, file, argument.value, called)
    first_shared = len(way)
    for position, function in enumerate(way):
        draft, shared = _named_elsewhere(draft, function)
        if shared or (position == 0 and not alone and not _stands_in(tree, call, function)):
            first_shared = position
            break
    if first_shared == len(way):
        last = way[-1]
        other = draft.tree(last.file)
        splices = [Splice(other.start(one.attr), other.end(one.attr), _WHOLE.encode()) for one in _parsers(last)]
        return draft.splice(last.file, splices)
    return _with_parameter(draft, node, way, first_shared, several=several, called=called)


def _way_to_parsing(
    draft: Draft, file: str, value: cst.BaseExpression, called: str
) -> tuple[Draft, list[UsersFunction]]:
    """Returns the call path from the map's own function to the only one that names `parse_single_example`."""
    draft, roots = functions_of(draft, file, value, called=called)
    if len(roots) != 1:
        raise CannotExpress("It is not seen which function the map is given.")
    waiting = [[roots[0]]]
    known, found = [roots[0]], list[list[UsersFunction]]()
    while waiting and len(known) < _MOST_FUNCTIONS:
        way = waiting.pop(0)
        if _parsers(way[-1]):
            found.append(way)
        draft, more = functions_called(draft, way[-1], known)
        known += more
        waiting += [[*way, one] for one in more]
    if len(found) != 1:
        count = f"{len(found)} functions" if found else "No function"
        raise CannotExpress(f"{count} that the map calls {'call' if found else 'calls'} {_SINGLE}.")
    return draft, found[0]


def _parsers(function: UsersFunction) -> list[cst.Attribute]:
    """Returns where the body of a function names `parse_single_example`, as in `tf.io.parse_single_example`."""
    finder = _Named()
    function.body.visit(finder)
    return finder.found


class _Named(cst.CSTVisitor):
    """Collects the attributes named `parse_single_example`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[cst.Attribute] = []

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if node.attr.value == _SINGLE:
            self.found.append(node)


def _stands_in(tree: SyntaxTree, call: cst.Call, function: UsersFunction) -> bool:
    """Whether a function is written in the call of the map, or contains that call."""
    return function.node in [call, *tree.ancestors(call)] or any(one is call for one in tree.ancestors(function.node))


def _named_elsewhere(draft: Draft, function: UsersFunction) -> tuple[Draft, bool]:
    """Returns whether code outside the call path also names a function, and the draft with the other files opened."""
    if isinstance(function.node, cst.Lambda):
        return draft, function.handed_on
    draft, uses = uses_of(draft, function.file, function.node)
    reference = function.reference
    way = 0 if reference is None else sum(one.node is reference for one in uses)
    return draft, len(uses) > way or way != 1 or function.handed_on


def _with_parameter(
    draft: Draft, node: str, way: Sequence[UsersFunction], first: int, *, several: bool, called: str
) -> Draft:
    """Returns the draft in which the functions of the path from index `first` on get the parser as a parameter."""
    last = way[-1]
    parsers = _parsers(last)
    texts = {draft.tree(last.file).text(one) for one in parsers}
    if len(texts) != 1:
        raise CannotExpress(f"{_SINGLE} goes by several names.")
    (single,) = texts
    whole = single.removesuffix(_SINGLE) + _WHOLE
    functions = way[first:]
    name = _free_parameter(functions)
    changes: dict[str, list[Splice]] = {}
    for position, function in enumerate(functions):
        tree = draft.tree(function.file)
        if not isinstance(function.node, cst.FunctionDef):
            raise CannotExpress("The function that parses is a lambda that others use too.")
        changes.setdefault(function.file, []).extend(add_parameter(tree, function.node, name, single))
        if position:
            changes.setdefault(function.referred_in, []).extend(_passed(draft, function, f"{name}={name}"))
    changes.setdefault(last.file, []).extend(
        Splice(draft.tree(last.file).start(one), draft.tree(last.file).end(one), name.encode()) for one in parsers
    )
    if first:
        changes.setdefault(functions[0].referred_in, []).extend(_passed(draft, functions[0], f"{name}={whole}"))
    for file, splices in changes.items():
        draft = draft.splice(file, splices)
    if first:
        return draft
    place = draft.sites[node].file
    if place != last.file:
        raise CannotExpress("The function that parses is used elsewhere too, and stands in another file.")
    draft, callee = callee_of(draft, node, called=called)
    batch = callee.free_name("batch", "batched", "examples")
    given = f"*{batch}" if several else batch
    return replace_function(draft, node, f"lambda {given}: {callee.call(f'{given}, {name}={whole}')}")


def _free_parameter(functions: Sequence[UsersFunction]) -> str:
    taken = {name.value for one in functions for name in name_nodes(one.node)}
    for name in ("parse_example", "parse_function", "parser"):
        if name not in taken:
            return name
    raise CannotExpress("There is no plain name left for what parses.")


def _passed(draft: Draft, function: UsersFunction, text: str) -> list[Splice]:
    """Returns the splices that pass an argument to a function where its caller on the path calls it."""
    tree, reference = draft.tree(function.referred_in), function.reference
    call = tree.parent(reference) if reference is not None else None
    if not isinstance(call, cst.Call) or call.func is not reference:
        raise CannotExpress("The function that parses is handed on before it is called.")
    return add_argument(tree, call, text)
