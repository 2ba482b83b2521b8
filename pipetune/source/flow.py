"""How a dataset flows from one statement to another, and whether a call may move between them."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.attribute_flow import flows_in_attribute
from pipetune.source.chain import links_above, root_of, top_of
from pipetune.source.draft import Draft
from pipetune.source.signatures import TAKES_FUNCTION
from pipetune.source.statements import (
    Statement,
    block_index,
    function_around,
    names_bound,
    names_read,
    statement_of,
)
from pipetune.source.tree import SyntaxTree


def refuse_unsafe(draft: Draft, tree: SyntaxTree, call: cst.Call, *, anchor: cst.Call) -> tuple[Statement, Statement]:
    """The statements of the call and of its new place, when moving between them changes nothing else.

    The dataset must flow from the upper statement to the lower one through names nobody else reads (or through one
    attribute, `attribute_flow`), and
    what the call's arguments name must mean the same at both places.
    """
    here, there = statement_of(tree, call), statement_of(tree, anchor)
    if here is None or there is None or here.block is not there.block:
        raise CannotExpress("The call and the place it moves to stand in different blocks.")
    upper, lower = sorted((here, there), key=lambda statement: tree.start(statement.small))
    upper_call, lower_call = (call, anchor) if upper is here else (anchor, call)
    _refuse_conditional(tree, lower_call, lower)
    if flows_in_attribute(draft, tree, upper, lower, first=upper_call):
        return here, there
    if upper.name is None or upper.value is not top_of(tree, upper_call):
        raise CannotExpress("The upper of the two statements does not assign its dataset to one name.")
    between = upper.block[block_index(upper) + 1 : block_index(lower)]
    name, in_line = upper.name, tree.end(upper.small)
    argument_names = {name for argument in call.args for name in names_read(argument)}
    evaluates = _traces(call) or any(_calls(argument) for argument in call.args)
    for other in between:
        if names_bound(other) & argument_names:
            raise CannotExpress("A name in the call's arguments is assigned between the two statements.")
        if name not in names_read(other):
            if evaluates:
                raise CannotExpress("Statements stand between, on which the call's arguments may depend.")
            continue
        if isinstance(other, cst.If):
            _refuse_branches(draft, tree, other, name=name, evaluates=evaluates)
            in_line = tree.end(other)
            continue
        step = _step(draft, tree, other, name=name)
        _refuse_read_later(tree, name, behind=in_line, step=step)
        assert step.name is not None
        name, in_line = step.name, tree.end(step.small)
    root = root_of(tree, lower_call)
    reads = names_read(lower.small).count(name) - (lower.name == name)
    if not isinstance(root, cst.Name) or root.value != name or reads != 1:
        raise CannotExpress("The dataset reaches the lower statement on another way than through one name.")
    if names_bound(upper.small) & argument_names or (names_bound(lower.small) - {name}) & argument_names:
        raise CannotExpress("A name in the call's arguments is assigned by one of the two statements.")
    _refuse_read_later(tree, name, behind=in_line, step=lower)
    return here, there


def _step(draft: Draft, tree: SyntaxTree, line: cst.CSTNode, *, name: str) -> Statement:
    """A statement between the two that only carries the dataset on."""
    refused = CannotExpress(f"{name} is used between the two statements.")
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise refused
    step = statement_of(tree, line.body[0])
    if step is None or step.name is None or not isinstance(step.value, cst.Call):
        raise refused
    root = root_of(tree, step.value)
    known = {site.end for site in draft.sites.values()}
    carried = isinstance(root, cst.Name) and root.value == name
    reads = names_read(step.small).count(name) - (step.name == name)
    if not carried or reads != 1 or any(tree.end(link) not in known for link in links_above(tree, step.value)):
        raise refused
    return step


def _refuse_branches(draft: Draft, tree: SyntaxTree, branch: cst.If, *, name: str, evaluates: bool) -> None:
    """Refuses to pass a condition unless all it does was seen to be done, and only carries the dataset on.

    What stands under an `else`, or was not run, is in no pipeline: nobody knows whether the call may pass it.
    """
    refused = CannotExpress(f"{name} is used between the two statements.")
    if branch.orelse is not None:
        raise CannotExpress("A condition with two ways stands between, of which only one was run.")
    if name in names_read(branch.test) or (evaluates and _calls(branch.test)):
        raise CannotExpress("A condition stands between that may depend on the call, or the call on it.")
    for line in branch.body.body:
        if not isinstance(line, cst.CSTNode) or _step(draft, tree, line, name=name).name != name:
            raise refused


def _refuse_read_later(tree: SyntaxTree, name: str, *, behind: int, step: Statement) -> None:
    """The value `name` has behind a statement must go nowhere but into `step`."""
    if step.name == name:
        return
    function = function_around(tree, step.small)
    within = {id(node) for node in _names_in(step.small)}
    elsewhere = [node for node in _names_in(function) if node.value == name and id(node) not in within]
    if any(tree.start(node) > behind for node in elsewhere):
        raise CannotExpress(f"{name} is read elsewhere too, and would change there.")


def _names_in(node: cst.CSTNode) -> list[cst.Name]:
    found: list[cst.Name] = []

    class Collect(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:
            found.append(node)

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            node.value.visit(self)
            return False

    node.visit(Collect())
    return found


def _refuse_conditional(tree: SyntaxTree, call: cst.Call, statement: Statement) -> None:
    for parent in tree.ancestors(call):
        if parent is statement.small:
            return
        if isinstance(parent, cst.Lambda | cst.IfExp | cst.BooleanOperation | cst.BaseComp):
            raise CannotExpress("The call stands where it may run never, or more than once.")


def _traces(call: cst.Call) -> bool:
    """Whether the call traces a function of the user, so that running it earlier or later may matter."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in TAKES_FUNCTION


def _calls(node: cst.CSTNode) -> bool:
    found = False

    class Find(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:
            nonlocal found
            found = True

    node.visit(Find())
    return found
