"""How a dataset flows from one statement to another, through attributes and helpers, and whether a call may move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import ClassScope, GlobalScope

from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import TAKES_FUNCTION, method_arguments, receiver_of
from pipetune.source.chain import chain_root, is_self_assignment, last_chain_call, upstream_calls
from pipetune.source.draft import Draft
from pipetune.source.map_functions import plain_parameters
from pipetune.source.statements import (
    Statement,
    block_index,
    bound_names,
    bound_targets,
    contains_call,
    is_dotted,
    negate,
    only_binds_or_reports,
    only_reads,
    runs_once,
    statement_of,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import UserFunction, functions_of, is_read_by_others, referenced_functions


def _flows_in_attribute(draft: Draft, tree: SyntaxTree, upper: Statement, lower: Statement, *, first: cst.Call) -> bool:
    """Whether a call may move between two statements because one attribute holds the dataset all the way.

    Each statement from `upper` to `lower` calls methods on the attribute and assigns the result back to it, and nothing
    else reads it in between: no other statement, and no method of the same object called in an argument. The chain of
    `first`, the call in the earlier statement, may start with something else.
    """
    target, whole = upper.target, last_chain_call(tree, first)
    if not isinstance(target, cst.Attribute) or not is_dotted(target) or upper.value is not whole:
        return False
    known = recorded_call_ends(draft, tree)
    for line in upper.block[block_index(upper) : block_index(lower) + 1]:
        step = statement_of(tree, line.body[0]) if isinstance(line, cst.SimpleStatementLine) else None
        if step is None or not step.alone_on_line or not isinstance(step.value, cst.Call) or step.target is None:
            return False
        begins = step.small is upper.small
        continues = tree.text(chain_root(tree, step.value)) == tree.text(target) and all(
            tree.end(link) in known for link in upstream_calls(tree, step.value)
        )
        if tree.text(step.target) != tree.text(target) or not (begins or continues):
            return False
        if _reads_outside_chain(tree, step):
            return False
    return True


def _reads_outside_chain(tree: SyntaxTree, step: Statement) -> bool:
    """Whether the statement may read the attribute anywhere but at the start of its method chain."""
    assert step.target is not None and isinstance(step.value, cst.Call)
    attribute, base = tree.text(step.target), tree.text(step.target).partition(".")[0]
    for name in variable_nodes(step.value):
        if name.value != base:
            continue
        parents = [parent for parent in tree.ancestors(name) if isinstance(parent, cst.Attribute)]
        if not parents or parents[0].value is not name:
            return True  # the object itself is passed on
        called = [tree.parent(parent) for parent in parents]
        if any(tree.text(parent) == attribute for parent in parents):
            if tree.start(chain_root(tree, step.value)) != tree.start(name):
                return True
        elif any(isinstance(call, cst.Call) and call.func in parents for call in called):
            return True  # a method of the object, which may read the attribute
    return False


def recorded_call_ends(draft: Draft, tree: SyntaxTree) -> set[int]:
    """Returns the end offsets of the calls in a file that built operators of the pipeline, or that were around them."""
    files = {file for file, code in draft.codes.items() if code == tree.code}
    sites = [*draft.sites.values(), *(one for stack in draft.call_stacks.values() for one in stack)]
    return {site.end for site in sites if site.file in files}


def _file_of(draft: Draft, tree: SyntaxTree) -> str | None:
    return next((file for file, code in draft.codes.items() if code == tree.code), None)


def dataset_argument(tree: SyntaxTree, call: cst.Call, name: str) -> cst.BaseExpression | None:
    """Returns the only expression that passes the dataset `name` to a call, as argument or receiver, or None."""
    given = [receiver_of(tree, call), *(one.value for one in call.args if not one.star)]
    found = [one for one in given if isinstance(one, cst.Name) and one.value == name]
    return found[0] if len(found) == 1 else None


def only_appends(draft: Draft, tree: SyntaxTree, call: cst.Call, given: cst.BaseExpression) -> bool:
    """Whether a call takes a dataset and only appends operators to it, all of them recorded.

    This covers `ds.apply(prepare)` as well as `prepare(ds, 12)`.

    Args:
        given: the expression in the call that passes the dataset.
    """
    file = _file_of(draft, tree)
    around = {site.end for stack in draft.call_stacks.values() for site in stack if site.file == file}
    if file is None or tree.end(call) not in around:
        return False
    applied = isinstance(call.func, cst.Attribute) and call.func.attr.value == "apply" and len(call.args) == 1
    if applied and receiver_of(tree, call) is given:
        return _function_only_appends(draft, file, call.args[0].value, position=0)
    handed = [(place, one) for place, one in enumerate(call.args) if one.value is given and not one.star]
    if len(handed) != 1 or not isinstance(call.func, cst.Name | cst.Attribute):
        return False
    place, argument = handed[0]
    keyword = argument.keyword.value if argument.keyword is not None else ""
    if not keyword and any(one.star for one in call.args[:place]):
        return False
    return _function_only_appends(draft, file, call.func, position=place, keyword=keyword)


def _function_only_appends(
    draft: Draft, file: str, value: cst.BaseExpression, *, position: int, keyword: str = ""
) -> bool:
    """Whether a function only calls recorded methods on the dataset it gets, assigns the result and returns it."""
    try:
        found = functions_of(draft, file, value)
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
    return bool(name) and name in names and _reads_are_recorded_calls(draft, function, name)


def _reads_are_recorded_calls(draft: Draft, function: UserFunction, name: str) -> bool:
    tree = draft.tree(function.file)
    known = recorded_call_ends(draft, tree)
    reads = [one for one in variable_nodes(function.body) if one.value == name]
    for read in reads:
        parent = tree.parent(read)
        if isinstance(parent, cst.AssignTarget | cst.Return | cst.IfExp):
            continue
        first = tree.parent(parent) if isinstance(parent, cst.Attribute) else None
        if not isinstance(first, cst.Call) or receiver_of(tree, first) is not read:
            return False
        last = last_chain_call(tree, first)
        recorded = all(tree.end(link) in known for link in upstream_calls(tree, last))
        if not recorded or chain_root(tree, last) is not read:
            return False
    return bool(reads)


@dataclass(frozen=True)
class MovedCall:
    """A call to be moved, and what must have the same meaning at its new place."""

    names: frozenset[str]  # in its arguments, and in the functions of this file that these refer to
    order_matters: bool  # whether it matters when it runs: it traces a function, or its arguments call one
    may_pass_unmet: bool = False  # whether it may move past code that was skipped: `unmet_conditions`


def moved_call(tree: SyntaxTree, call: cst.Call) -> MovedCall:
    """Returns what has to be known about `call` to move it."""
    arguments = [one for one in method_arguments(tree, call) if not _is_closed(one.value)]
    named = {name for argument in arguments for name in variable_names(argument)}
    traces = bool(arguments) and isinstance(call.func, cst.Attribute) and call.func.attr.value in TAKES_FUNCTION
    if traces:
        for function in referenced_functions(tree, [one.value for one in arguments]):
            named |= set(variable_names(function.body))
    return MovedCall(frozenset(named), traces or any(contains_call(one) for one in arguments))


def _is_closed(value: cst.BaseExpression) -> bool:
    """Whether an argument is a lambda that calls nothing and reads its parameters alone: traced alike anywhere."""
    if not isinstance(value, cst.Lambda) or contains_call(value.body):
        return False
    parameters = plain_parameters(value)
    return parameters is not None and set(variable_names(value.body)) <= set(parameters)


def refuse_unsafe(
    draft: Draft, tree: SyntaxTree, call: cst.Call, *, anchor: cst.Call, moved: MovedCall | None = None
) -> tuple[Statement, Statement]:
    """Returns the statements of the call and of its new place, if moving between them changes nothing else.

    The dataset must flow from the upper (earlier) statement to the lower one through variables that nothing else reads
    (or through one attribute, see `_flows_in_attribute`), and the names in the call's arguments must have the same
    meaning at both places.

    Args:
        anchor: the call at the new place.
        moved: what moves, if that is not all that `moved_call` tells of `call`.

    Raises:
        CannotExpress: the flow of the dataset is not visible, or something between the statements could change.
    """
    here, there = statement_of(tree, call), statement_of(tree, anchor)
    if here is None or there is None or here.block is not there.block:
        raise CannotExpress("The call and its new place are in different blocks.")
    moved = moved or moved_call(tree, call)
    upper, lower = sorted((here, there), key=lambda statement: tree.start(statement.small))
    upper_call, lower_call = (call, anchor) if upper is here else (anchor, call)
    refuse_conditional(tree, lower_call, lower)
    if _flows_in_attribute(draft, tree, upper, lower, first=upper_call):
        return here, there
    if upper.name is None or upper.value is not last_chain_call(tree, upper_call):
        raise CannotExpress("The earlier of the two statements does not assign its dataset to a single name.")
    between = upper.block[block_index(upper) + 1 : block_index(lower)]
    name, in_line = _follow_dataset(draft, tree, between, upper.name, tree.end(upper.small), moved)
    _refuse_other_reads(tree, lower, lower_call, name)
    if bound_names(upper.small) & moved.names or (bound_names(lower.small) - {name}) & moved.names:
        raise CannotExpress("A name in the call's arguments is assigned by one of the two statements.")
    _refuse_read_later(draft, tree, name, behind=in_line, step=lower)
    return here, there


def conditional_move(draft: Draft, tree: SyntaxTree, call: cst.Call, *, anchor: cst.Call) -> str | None:
    """Returns the variable `x` of `x = x.method(...)` under a condition, if both can move out of its block together.

    Returns:
        None if the call is under no condition, or its new place is under the same one.

    Raises:
        CannotExpress: the condition may have another value at the new place, or something in between could change.
    """
    here, there = statement_of(tree, call), statement_of(tree, anchor)
    condition = condition_around(tree, here)
    if here is None or there is None or condition is None or condition not in there.block:
        return None
    if not here.alone_on_line or here.name is None or not is_self_assignment(tree, here, call):
        raise CannotExpress("The call and its new place are in different blocks.")
    if not only_reads(tree, condition.test):
        raise CannotExpress("The condition around the call runs a function or assigns, and may differ later.")
    moved = moved_call(tree, call)
    tested = frozenset(variable_names(condition.test))
    # What a list or a dictionary holds, statements in between may change.
    looks_up = any(nodes_within(condition.test, cst.Call, cst.Subscript, cst.In, cst.NotIn))
    other = condition.orelse
    if other is not None and (looks_up or len(here.block) == 1 or bound_names(other) & tested):
        raise CannotExpress("The call and its new place are in different blocks.")
    moved = MovedCall(moved.names | tested, moved.order_matters or looks_up)
    body, own, outside = condition.body.body, block_index(here), there.block.index(condition)
    name, bound = here.name, bound_names(there.small) - {here.name}
    if tree.start(condition) < tree.start(there.small):
        if there.value is not None:
            bound = bound_names(there.value)  # what the statement assigns, it assigns after the new place
        name, _ = _follow_dataset(draft, tree, body[own + 1 :], name, tree.end(here.small), moved, same_name=True)
        between = there.block[outside + 1 : block_index(there)]
        name, behind = _follow_dataset(draft, tree, between, name, tree.end(condition), moved)
        _refuse_other_reads(tree, there, anchor, name)
        _refuse_read_later(draft, tree, name, behind=behind, step=there)
    else:
        if there.name != name or there.value is not last_chain_call(tree, anchor):
            raise CannotExpress("The earlier of the two statements does not assign its dataset to a single name.")
        _follow_dataset(draft, tree, there.block[block_index(there) + 1 : outside], name, tree.end(there.small), moved)
        _follow_dataset(draft, tree, body[:own], name, tree.start(condition), moved, same_name=True)
    if bound & moved.names or name in tested:
        raise CannotExpress("A name in the call's arguments or in its condition is reassigned in between.")
    return name


def unmet_conditions(draft: Draft, tree: SyntaxTree, here: Statement, there: Statement) -> list[str]:
    """Returns the conditions under which all code between two statements that was skipped in the run is skipped again.

    A move between the statements is safe only if they are met.

    Args:
        here, there: two statements of one block, in any order.
    """
    upper, lower = sorted((here, there), key=lambda statement: tree.start(statement.small))
    between = upper.block[block_index(upper) + 1 : block_index(lower)]
    names, found = {upper.name}, list[str]()
    for line in between:
        if names.intersection(variable_names(line)):  # else the dataset does not pass it
            names |= bound_names(line)
            found += [_executed_branch(draft, tree, line)[0]] if isinstance(line, cst.If) else []
            found += [_unchanged_condition(draft, tree, line)]
    return list(filter(None, found))


def _unchanged_condition(draft: Draft, tree: SyntaxTree, line: cst.CSTNode) -> str:
    """Returns the condition under which `x = x.method(...) if test else x` is `x`; empty if the method was called."""
    match line:
        case cst.SimpleStatementLine(body=[cst.Assign(value=cst.IfExp(test=test, body=body, orelse=orelse))]):
            match body, orelse:
                case (cst.Call() as call, cst.Name()) | (cst.Name(), cst.Call() as call):
                    if tree.end(call) not in recorded_call_ends(draft, tree):
                        return negate(tree.text(test)) if body is call else tree.text(test)
    return ""


def _executed_branch(draft: Draft, tree: SyntaxTree, branch: cst.If) -> tuple[str, cst.BaseSuite | None]:
    """Returns the condition under which an `if` takes the branch that ran, and the body of that branch.

    The condition is empty for an `if` without `else` whose body ran; the body is None if no branch ran.
    """
    test = tree.text(branch.test)
    ran = _has_pipeline_call(draft, tree, branch.body)
    if branch.orelse is None:
        return ("", branch.body) if ran else (negate(test), None)
    if not isinstance(branch.orelse, cst.Else) or ran is _has_pipeline_call(draft, tree, branch.orelse.body):
        raise CannotExpress("There is an `if` with several branches in between, and it is unknown which of them ran.")
    return (test, branch.body) if ran else (negate(test), branch.orelse.body)


def _has_pipeline_call(draft: Draft, tree: SyntaxTree, suite: cst.BaseSuite) -> bool:
    return any(tree.start(suite) < end <= tree.end(suite) for end in recorded_call_ends(draft, tree))


def condition_around(tree: SyntaxTree, here: Statement | None) -> cst.If | None:
    """Returns the `if` in whose body a statement is; None if it is in none, or in that of an `elif` or `else`."""
    block = tree.parent(here.line) if here is not None else None
    owner = tree.parent(block)
    if isinstance(owner, cst.If) and owner.body is block:
        return None if isinstance(tree.parent(owner), cst.If) else owner  # an `elif` depends on more conditions
    return None


def _follow_dataset(
    draft: Draft,
    tree: SyntaxTree,
    between: Sequence[cst.BaseSmallStatement | cst.BaseStatement],
    name: str,
    assigned_at: int,
    moved: MovedCall,
    *,
    same_name: bool = False,
) -> tuple[str, int]:
    """Returns the variable that has the dataset after some statements, and the offset where its assignment ends.

    Before them, `name` has it, assigned up to the offset `assigned_at`. With `same_name` it must stay in this variable.
    """
    for line in between:
        if (bound_names(line) - {name}) & moved.names:
            raise CannotExpress("A name in the call's arguments is reassigned between the two statements.")
        if name not in variable_names(line):
            if moved.order_matters and not only_binds_or_reports(tree, line):
                raise CannotExpress("The call's arguments may depend on statements in between.")
            continue
        if isinstance(line, cst.If):
            _refuse_branches(draft, tree, line, name=name, moved=moved)
            assigned_at = tree.end(line)
            continue
        step = _dataset_step(draft, tree, line, name=name, may_pass_unmet=moved.may_pass_unmet)
        if bound_names(line) & moved.names or (same_name and step.name != name):
            raise CannotExpress("A name in the call's arguments is reassigned between the two statements.")
        _refuse_read_later(draft, tree, name, behind=assigned_at, step=step)
        assert step.name is not None
        name, assigned_at = step.name, tree.end(step.small)
    return name, assigned_at


def _refuse_other_reads(tree: SyntaxTree, lower: Statement, lower_call: cst.Call, name: str) -> None:
    root = chain_root(tree, lower_call)
    reads = variable_names(lower.small).count(name) - (lower.name == name)
    given = [one.value for one in lower_call.args if not one.star]
    in_argument = any(isinstance(one, cst.Name) and one.value == name for one in given)  # as in `batched(ds)`
    if reads != 1 or not (in_argument or (isinstance(root, cst.Name) and root.value == name)):
        raise CannotExpress("The dataset does not reach the later statement through a single name.")


def _dataset_step(
    draft: Draft, tree: SyntaxTree, line: cst.CSTNode, *, name: str, may_pass_unmet: bool = False
) -> Statement:
    """Returns `line` as a statement that only appends operators to the dataset in `name`, and assigns the result.

    Args:
        may_pass_unmet: whether a method in a conditional expression may be one that was not called.
    """
    refused = CannotExpress(f"{name} is used between the two statements.")
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise refused
    step = statement_of(tree, line.body[0])
    if step is None or step.name is None:
        raise refused
    reads = variable_names(step.small).count(name) - (step.name == name)
    if isinstance(step.value, cst.IfExp) and reads == 2 and not contains_call(step.value.test):
        branches = step.value.body, step.value.orelse
        kept = [one for one in branches if isinstance(one, cst.Name) and one.value == name]
        calls = [one for one in branches if isinstance(one, cst.Call)]
        continued = [one for one in calls if _chain_only_appends(draft, tree, one, name)]
        if len(kept) == len(calls) == 1 and (continued or may_pass_unmet):
            return step
    if isinstance(step.value, cst.Call) and reads == 1 and _chain_only_appends(draft, tree, step.value, name):
        return step
    raise refused


def _chain_only_appends(draft: Draft, tree: SyntaxTree, value: cst.Call, name: str) -> bool:
    """Whether a chain that begins with the name, or a call that gets it, only appends recorded operators."""
    given = dataset_argument(tree, value, name)
    if given is not None and only_appends(draft, tree, value, given):
        return True
    root, known = chain_root(tree, value), recorded_call_ends(draft, tree)
    links = upstream_calls(tree, value)
    return isinstance(root, cst.Name) and root.value == name and all(tree.end(link) in known for link in links)


def _refuse_branches(draft: Draft, tree: SyntaxTree, branch: cst.If, *, name: str, moved: MovedCall) -> None:
    """Refuses to move past a condition unless it only appends recorded operators to the dataset.

    Code under an `else`, or code that did not run, is in no pipeline: it is unknown whether the call may move past it.
    """
    refused = CannotExpress(f"{name} is used between the two statements.")
    if name in variable_names(branch.test) or (moved.order_matters and contains_call(branch.test)):
        raise CannotExpress("There is an `if` in between that may depend on the call, or the call on it.")
    condition, taken = _executed_branch(draft, tree, branch)
    if condition and branch.orelse is not None and not moved.may_pass_unmet:
        raise CannotExpress("There is an `if` with two branches in between, and only one of them ran.")
    if condition and (not moved.may_pass_unmet or contains_call(branch.test)):
        raise refused
    if taken is None:
        return
    for line in taken.body:
        harmless = name not in variable_names(line) and only_binds_or_reports(tree, line)
        if harmless and not bound_names(line) & (moved.names | {name}):
            continue
        if _dataset_step(draft, tree, line, name=name).name != name:
            raise refused


def _refuse_read_later(draft: Draft, tree: SyntaxTree, name: str, *, behind: int, step: Statement) -> None:
    """Refuses if the value that `name` has after the offset `behind` is read anywhere but in `step`."""
    if step.name == name:
        return
    owner = tree.around(step.small, cst.FunctionDef) or tree.module
    elsewhere = _names_in(owner) - _names_in(step.small)
    later = any(node.value == name and tree.start(node) > behind for node in elsewhere)
    if later or _is_carried_over(tree, name, step) or _is_read_outside(draft, tree, name, step):
        raise CannotExpress(f"{name} is also read elsewhere, where its value would change.")


def _is_carried_over(tree: SyntaxTree, name: str, step: Statement) -> bool:
    """Whether an iteration of a loop around a statement begins with the value that a variable had in the one before."""
    for loop in tree.ancestors(step.small):
        if isinstance(loop, cst.FunctionDef):
            return False
        if not isinstance(loop, cst.For | cst.While):
            continue
        targets = [one for target in bound_targets(loop.body) for one in nodes_within(target, cst.Name)]
        bound = sorted((one for one in targets if one.value == name), key=tree.start)
        line = tree.around(bound[0], cst.SimpleStatementLine) if bound else None
        header = isinstance(loop, cst.For) and name in variable_names(loop.target)
        if line is None or header:
            continue
        reads = (one for one in _names_in(loop.body) - set(bound) if one.value == name)
        if any(tree.start(one) < tree.end(line) for one in reads):
            return True
    return False


def _is_read_outside(draft: Draft, tree: SyntaxTree, name: str, step: Statement) -> bool:
    """Whether a variable is read in another function, or as an attribute of a class or of a module."""
    function = tree.around(step.small, cst.FunctionDef)
    homes = {one.scope for one in tree.scope(step.small)[name]}
    same = (one for one in variable_nodes(tree.module) if one.value == name)
    others = (one for one in same if tree.around(one, cst.FunctionDef) is not function)
    if any(homes & {bound.scope for bound in tree.scope(one)[name]} for one in others):
        return True
    if any(isinstance(one, ClassScope) for one in homes):
        return any(one.attr.value == name for one in tree.nodes(cst.Attribute))
    file, of_module = _file_of(draft, tree), any(isinstance(one, GlobalScope) for one in homes)
    return of_module and file is not None and is_read_by_others(draft, file, name)


def _names_in(node: cst.CSTNode) -> set[cst.Name]:
    """Returns the variables that a piece of code names, and its keywords, but no attributes."""
    return set(nodes_within(node, cst.Name)) - {one.attr for one in nodes_within(node, cst.Attribute)}


def refuse_conditional(tree: SyntaxTree, call: cst.Call, statement: Statement) -> None:
    if not runs_once(tree, call, statement):
        raise CannotExpress("The call is at a place where it may not run, or run more than once.")
