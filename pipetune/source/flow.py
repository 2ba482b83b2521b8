"""How a dataset flows from one statement to another, and whether a call may move between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.attribute_flow import flows_in_attribute
from pipetune.source.carriers import carries, handed_to, known_ends
from pipetune.source.chain import links_above, root_of, top_of
from pipetune.source.conditions import negated
from pipetune.source.draft import Draft
from pipetune.source.purity import calls_something, names_of_functions, only_tells
from pipetune.source.signatures import TAKES_FUNCTION
from pipetune.source.statements import (
    Statement,
    assigns_itself,
    block_index,
    function_around,
    names_bound,
    names_read,
    statement_of,
)
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import own_arguments

_Lines = Sequence[cst.BaseSmallStatement | cst.BaseStatement]


@dataclass(frozen=True)
class Moved:
    """A call to be moved, and what must have the same meaning at its new place."""

    names: frozenset[str]  # in its arguments, and in the functions of this file that these refer to
    evaluates: bool  # whether it matters when it runs: it traces a function, or its arguments call one
    unmet: bool = False  # whether it may move past code that was skipped: `unmet_conditions`


def moved_call(tree: SyntaxTree, call: cst.Call) -> Moved:
    arguments = own_arguments(tree, call)
    named = {name for argument in arguments for name in names_read(argument)}
    traces = isinstance(call.func, cst.Attribute) and call.func.attr.value in TAKES_FUNCTION
    within = names_of_functions(tree, arguments) if traces else frozenset[str]()
    return Moved(frozenset(named) | within, traces or any(calls_something(one) for one in arguments))


def refuse_unsafe(
    draft: Draft, tree: SyntaxTree, call: cst.Call, *, anchor: cst.Call, moved: Moved | None = None, unmet: bool = False
) -> tuple[Statement, Statement]:
    """Returns the statements of the call and of its new place, if moving between them changes nothing else.

    The dataset must flow from the upper (earlier) statement to the lower one through variables that nothing else reads
    (or through one attribute, see `attribute_flow`), and the names in the call's arguments must have the same meaning
    at both places.

    Args:
        call: the call to move.
        anchor: the call at the new place.
        moved: what moves, if that is not `call` itself but a call within the function that it calls.
        unmet: whether it may move past conditions that were not met, see `unmet_conditions`.

    Raises:
        CannotExpress: the flow of the dataset is not visible, or something between the statements could change.
    """
    here, there = statement_of(tree, call), statement_of(tree, anchor)
    if here is None or there is None or here.block is not there.block:
        raise CannotExpress("The call and the place it moves to stand in different blocks.")
    moved = replace(moved or moved_call(tree, call), unmet=unmet)
    upper, lower = sorted((here, there), key=lambda statement: tree.start(statement.small))
    upper_call, lower_call = (call, anchor) if upper is here else (anchor, call)
    _refuse_conditional(tree, lower_call, lower)
    if flows_in_attribute(draft, tree, upper, lower, first=upper_call):
        return here, there
    if upper.name is None or upper.value is not top_of(tree, upper_call):
        raise CannotExpress("The upper of the two statements does not assign its dataset to one name.")
    between = upper.block[block_index(upper) + 1 : block_index(lower)]
    name, in_line = _carried(draft, tree, between, upper.name, tree.end(upper.small), moved)
    _refuse_otherwise_read(tree, lower, lower_call, name)
    if names_bound(upper.small) & moved.names or (names_bound(lower.small) - {name}) & moved.names:
        raise CannotExpress("A name in the call's arguments is assigned by one of the two statements.")
    _refuse_read_later(tree, name, behind=in_line, step=lower)
    return here, there


@dataclass(frozen=True)
class Conditional:
    """A statement `x = x.method(...)` under a condition, which moves together with it."""

    condition: cst.If
    statement: Statement
    name: str


def conditional_move(draft: Draft, tree: SyntaxTree, call: cst.Call, *, anchor: cst.Call) -> Conditional | None:
    """Returns the condition that a call is under, if the call can move out of its block together with it.

    Returns:
        None if the call is under no such condition.

    Raises:
        CannotExpress: the condition may have another value at the new place, or something in between could change.
    """
    here, there = statement_of(tree, call), statement_of(tree, anchor)
    condition = _condition_around(tree, here)
    if here is None or there is None or condition is None or condition not in there.block:
        return None
    if not here.alone or here.name is None or not assigns_itself(tree, here, call):
        raise CannotExpress("The call and the place it moves to stand in different blocks.")
    if calls_something(condition.test):
        raise CannotExpress("The condition that the call stands under calls something, and may be another later.")
    moved = moved_call(tree, call)
    asked = frozenset(names_read(condition.test))
    moved = Moved(moved.names | asked, moved.evaluates)
    body, own, outside = condition.body.body, block_index(here), there.block.index(condition)
    name = here.name
    if tree.start(condition) < tree.start(there.small):
        name, _ = _carried(draft, tree, body[own + 1 :], name, tree.end(here.small), moved, same_name=True)
        name, behind = _carried(
            draft, tree, there.block[outside + 1 : block_index(there)], name, tree.end(condition), moved
        )
        _refuse_otherwise_read(tree, there, anchor, name)
        _refuse_read_later(tree, name, behind=behind, step=there)
    else:
        if there.name != name or there.value is not top_of(tree, anchor):
            raise CannotExpress("The upper of the two statements does not assign its dataset to one name.")
        _carried(draft, tree, there.block[block_index(there) + 1 : outside], name, tree.end(there.small), moved)
        _carried(draft, tree, body[:own], name, tree.start(condition), moved, same_name=True)
    if (names_bound(there.small) - {name}) & moved.names or name in asked:
        raise CannotExpress("A name in the call's arguments or its condition is assigned on the way.")
    return Conditional(condition, here, name)


def unmet_conditions(draft: Draft, tree: SyntaxTree, here: Statement, there: Statement) -> list[str]:
    """Returns the conditions under which all code between two statements that was skipped in the run is skipped again.

    A move between the statements is safe only if they are met.
    """
    upper, lower = sorted((here, there), key=lambda statement: tree.start(statement.small))
    between = upper.block[block_index(upper) + 1 : block_index(lower)]
    found = [_way_taken(draft, tree, line)[0] for line in between if isinstance(line, cst.If)]
    found += [_kept_where(draft, tree, line) for line in between]
    return list(filter(None, found))


def _kept_where(draft: Draft, tree: SyntaxTree, line: cst.CSTNode) -> str:
    """Returns the condition under which `x = x.method(...) if test else x` is `x`; empty if the method was called."""
    match line:
        case cst.SimpleStatementLine(
            body=[cst.Assign(value=cst.IfExp(test=test, body=cst.Call() as call, orelse=cst.Name()) as value)]
        ) | cst.SimpleStatementLine(
            body=[cst.Assign(value=cst.IfExp(test=test, body=cst.Name(), orelse=cst.Call() as call) as value)]
        ):
            if tree.end(call) in known_ends(draft, tree):
                return ""
            return negated(tree.text(test)) if value.body is call else tree.text(test)
    return ""


def _way_taken(draft: Draft, tree: SyntaxTree, branch: cst.If) -> tuple[str, cst.BaseSuite | None]:
    """Returns the condition under which an `if` takes the branch that ran, and the body of that branch.

    Returns:
        The condition is empty for an `if` without `else` whose body ran; the body is None if no branch ran.

    Raises:
        CannotExpress: it is not known which of several branches ran.
    """
    test = tree.text(branch.test)
    ran = _was_run(draft, tree, branch.body)
    if branch.orelse is None:
        return ("", branch.body) if ran else (negated(test), None)
    if not isinstance(branch.orelse, cst.Else) or ran is _was_run(draft, tree, branch.orelse.body):
        raise CannotExpress("A condition with several ways stands between, of which it is not seen which one was run.")
    return (test, branch.body) if ran else (negated(test), branch.orelse.body)


def _was_run(draft: Draft, tree: SyntaxTree, suite: cst.BaseSuite) -> bool:
    """Whether the lines contain a call of the pipeline."""
    return any(tree.start(suite) < end <= tree.end(suite) for end in known_ends(draft, tree))


def _condition_around(tree: SyntaxTree, here: Statement | None) -> cst.If | None:
    block = tree.parent(here.line) if here is not None else None
    owner = tree.parent(block) if block is not None else None
    if isinstance(owner, cst.If) and owner.body is block and owner.orelse is None:
        return None if isinstance(tree.parent(owner), cst.If) else owner  # an `elif` depends on more conditions
    return None


def _carried(
    draft: Draft,
    tree: SyntaxTree,
    between: _Lines,
    name: str,
    in_line: int,
    moved: Moved,
    *,
    same_name: bool = False,
) -> tuple[str, int]:
    """Returns the variable that has the dataset after some statements, and the offset where its assignment ends.

    Args:
        between: the statements.
        name: the variable that has the dataset before them.
        in_line: the offset where its assignment ends.
        same_name: whether the dataset must stay in this variable.

    Raises:
        CannotExpress: a statement does more with the dataset, or with a name that the moved call uses.
    """
    for line in between:
        if (names_bound(line) - {name}) & moved.names:
            raise CannotExpress("A name in the call's arguments is assigned between the two statements.")
        if name not in names_read(line):
            if moved.evaluates and not only_tells(tree, line):
                raise CannotExpress("Statements stand between, on which the call's arguments may depend.")
            continue
        if isinstance(line, cst.If):
            _refuse_branches(draft, tree, line, name=name, moved=moved)
            in_line = tree.end(line)
            continue
        step = _step(draft, tree, line, name=name, unmet=moved.unmet)
        if names_bound(line) & moved.names or (same_name and step.name != name):
            raise CannotExpress("A name in the call's arguments is assigned between the two statements.")
        _refuse_read_later(tree, name, behind=in_line, step=step)
        assert step.name is not None
        name, in_line = step.name, tree.end(step.small)
    return name, in_line


def _refuse_otherwise_read(tree: SyntaxTree, lower: Statement, lower_call: cst.Call, name: str) -> None:
    root = root_of(tree, lower_call)
    reads = names_read(lower.small).count(name) - (lower.name == name)
    in_argument = _handed_over(lower_call, name)
    if reads != 1 or not (in_argument or (isinstance(root, cst.Name) and root.value == name)):
        raise CannotExpress("The dataset reaches the lower statement on another way than through one name.")


def _handed_over(call: cst.Call, name: str) -> bool:
    """Whether a call gets the dataset as an argument, as in `batched(ds)`."""
    return any(isinstance(one.value, cst.Name) and one.value.value == name and not one.star for one in call.args)


def _step(
    draft: Draft, tree: SyntaxTree, line: cst.CSTNode, *, name: str, unmet: bool = False
) -> Statement:
    """Returns `line` as a statement that only appends operators to the dataset in `name`, and assigns the result.

    Args:
        unmet: whether a method in a conditional expression may be one that was not called.

    Raises:
        CannotExpress: it does something else.
    """
    refused = CannotExpress(f"{name} is used between the two statements.")
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise refused
    step = statement_of(tree, line.body[0])
    if step is None or step.name is None:
        raise refused
    reads = names_read(step.small).count(name) - (step.name == name)
    if isinstance(step.value, cst.IfExp) and reads == 2 and not calls_something(step.value.test):
        ways = step.value.body, step.value.orelse
        kept = [one for one in ways if isinstance(one, cst.Name) and one.value == name]
        calls = [one for one in ways if isinstance(one, cst.Call)]
        gone_on = [one for one in calls if _goes_on(draft, tree, one, name)]
        if len(kept) == len(calls) == 1 and (gone_on or unmet):
            return step
    if isinstance(step.value, cst.Call) and reads == 1 and _goes_on(draft, tree, step.value, name):
        return step
    raise refused


def _goes_on(draft: Draft, tree: SyntaxTree, value: cst.Call, name: str) -> bool:
    """Whether a chain that begins with the name, or a call that gets it, only appends recorded operators."""
    given = handed_to(tree, value, name)
    if given is not None and carries(draft, tree, value, given):
        return True
    root, known = root_of(tree, value), known_ends(draft, tree)
    links = links_above(tree, value)
    return isinstance(root, cst.Name) and root.value == name and all(tree.end(link) in known for link in links)


def _refuse_branches(draft: Draft, tree: SyntaxTree, branch: cst.If, *, name: str, moved: Moved) -> None:
    """Refuses to move past a condition unless all it does with the dataset is to append operators that were recorded.

    Code under an `else`, or code that did not run, is in no pipeline: it is unknown whether the call may move past it.
    """
    refused = CannotExpress(f"{name} is used between the two statements.")
    if name in names_read(branch.test) or (moved.evaluates and calls_something(branch.test)):
        raise CannotExpress("A condition stands between that may depend on the call, or the call on it.")
    condition, taken = _way_taken(draft, tree, branch)
    if condition and branch.orelse is not None and not moved.unmet:
        raise CannotExpress("A condition with two ways stands between, of which only one was run.")
    if condition and (not moved.unmet or calls_something(branch.test)):
        raise refused
    for line in taken.body if taken is not None else ():
        told = isinstance(line, cst.CSTNode) and name not in names_read(line) and only_tells(tree, line)
        if told and not names_bound(line) & (moved.names | {name}):
            continue
        if not isinstance(line, cst.CSTNode) or _step(draft, tree, line, name=name).name != name:
            raise refused


def _refuse_read_later(tree: SyntaxTree, name: str, *, behind: int, step: Statement) -> None:
    """Refuses if the value that `name` has after the offset `behind` is read anywhere but in `step`."""
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
