"""Moves a call: within its chain, to another statement, between functions; and which places are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from pipetune.core.edits import Insert
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.storage import LIBRARY
from pipetune.source.call_arguments import (
    METHODS,
    RETURNS_ONE_DATASET,
    TAKES_FUNCTION,
    argument_text,
    arguments_by_name,
    is_unbound,
    method_arguments,
    named_arguments,
    parameters,
    receiver_of,
    set_argument,
    write_call,
)
from pipetune.source.chain import (
    chain_root,
    insert_link,
    is_self_assignment,
    last_chain_call,
    lines_of_link,
    link_of,
    next_chain_call,
    refuse_bindings,
    remove_link,
    split_after,
    upstream_calls,
)
from pipetune.source.dataset_flow import (
    MovedCall,
    condition_around,
    conditional_move,
    dataset_argument,
    moved_call,
    only_appends,
    recorded_call_ends,
    refuse_unsafe,
    unmet_conditions,
)
from pipetune.source.dataset_options import returns_one_dataset
from pipetune.source.draft import CallSite, Draft, Splice, called_name
from pipetune.source.skipped_code import refuse_skipped_elsewhere, skipped_conditions
from pipetune.source.source_files import line_end, line_start, newline_of, next_line
from pipetune.source.statements import (
    Statement,
    block_index,
    bound_names,
    conjunction,
    contains_call,
    parse_condition,
    removal_splice,
    start_with_comments,
    statement_of,
    unused_name,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import class_of_method
from pipetune.source.version_merging import path_of


def refuse_inside_library(pipeline: Pipeline, node: str) -> None:
    """Refuses to change an operator that a function makes internally.

    Raises:
        CannotExpress: the operator was made inside a function that the user called.
    """
    operator = pipeline[node]
    location = operator.location
    if location is not None and not _is_direct_call(operator):
        raise CannotExpress(f"{operator.title} is made inside {location.method} ({location}).")


def refuse_append(draft: Draft, pipeline: Pipeline, node: str) -> None:
    """Refuses to append to the call of operator `node` if its value is not the dataset that the operator makes.

    Raises:
        CannotExpress: the call makes a later operator too, may return more than a dataset, or is not in the source.
    """
    tree, call = draft.find(node)
    operator = pipeline[node]
    location = operator.location
    if location is None:
        return  # inserted by the plan: the call is the one that its edit wrote
    for consumer in pipeline.consumers(node):
        if consumer.location == location and not (_is_direct_call(consumer) and _is_direct_call(operator)):
            raise CannotExpress(f"{location.method} adds further operators after {operator.title} ({location}).")
    behind = next_chain_call(tree, call)
    goes_on = behind is not None and called_name(behind) in METHODS
    one = returns_one_dataset(call) if location.library == LIBRARY else location.method in RETURNS_ONE_DATASET
    if not one and not goes_on:
        raise CannotExpress(f"{location.method} may return more than the dataset ({location}).")
    if _returns_several(tree, call, method=location.method):
        raise CannotExpress(f"{location.method} returns several datasets ({location}).")


def _is_direct_call(node: Node) -> bool:
    return node.location is None or node.location.method == node.op


def _returns_several(tree: SyntaxTree, call: cst.Call, *, method: str) -> bool:
    """Whether the call's value is unpacked or indexed, or `subset` is, or may be, "both"."""
    match tree.parent(call):
        case cst.Subscript(value=value) if value is call:
            return True
        case cst.Assign(targets=targets) if any(isinstance(one.target, cst.Tuple | cst.List) for one in targets):
            return True
    if not method.endswith("_dataset_from_directory"):
        return False
    match named_arguments(call).get("subset"):
        case None | cst.Arg(value=cst.SimpleString(evaluated_value="training" | "validation")):
            return any(one.star == "**" for one in call.args)
    return True


_IN_TRANSIT = "#moved"


def remove(draft: Draft, node: str) -> Draft:
    """Returns the draft without the call of `node`.

    Raises:
        CannotExpress: the call is not a method of a dataset, or an argument assigns a name, awaits or yields.
    """
    tree, call = draft.find(node)
    link = link_of(tree, call)
    refuse_bindings(call)
    statement = statement_of(tree, call)
    if statement is not None and is_self_assignment(tree, statement, call):
        splices = [removal_splice(tree, statement)]
    else:
        splices = remove_link(tree, link)
    return draft.splice(draft.sites[node].file, splices).without_site(node)


def move(draft: Draft, node: str, after: str, current: Pipeline) -> Draft:
    """Returns the draft with the call of `node` moved to directly after the call of `after`.

    Args:
        current: the pipeline before the move.

    Raises:
        CannotExpress: the move could change more than the order of the operators.
    """
    tree, call = draft.find(node)
    _, anchor = draft.find(after)
    file = draft.sites[node].file
    link = link_of(tree, call)
    refuse_bindings(call)
    if next_chain_call(tree, anchor) is call:
        return draft
    if node in draft.call_stacks and after in draft.call_stacks:
        crossing = _function_crossing(draft, node, after, current)
        if crossing is not None:
            return _move_across(draft, node, after, crossing)
    if draft.sites[after].file != file:
        raise CannotExpress("The call and its new location are in different files.")
    if anchor in upstream_calls(tree, call) or call in upstream_calls(tree, anchor):
        piece = lines_of_link(tree, link)
        inserted = insert_link(draft, anchor=draft.sites[after], node=_IN_TRANSIT, text=link.text, own_lines=piece)
        tree, call = inserted.find(node)
        # If the whole lines cannot be moved, the comments above the link stay where they are.
        taken = remove_link(tree, link_of(tree, call), with_comments=piece is not None)
        return _finish_move(inserted.splice(file, taken).without_site(node), node)
    apart = _in_own_statement(draft, node, after)
    name = conditional_move(apart, *apart.find(node), anchor=apart.find(after)[1])
    if name is not None:
        return _move_with_condition(apart, node, after, name=name)
    try:
        moved = replace(moved_call(tree, call), may_pass_unmet=True)
        here, there = refuse_unsafe(draft, tree, call, anchor=anchor, moved=moved)
    except CannotExpress:
        named = _with_named_argument(draft, node, after)
        if named is None:
            raise
        draft = named
        tree, call, anchor = *draft.find(node), draft.find(after)[1]
        here, there = _statement(tree, call), _statement(tree, anchor)
    draft = _restrict_to_conditions(draft, file, here.small, unmet_conditions(draft, tree, here, there))
    if is_self_assignment(tree, here, call) and here.name == there.name and there.value is anchor:
        return _move_line(draft, tree, node=node, moved=here, behind=there)
    text = link_of(tree, call).text
    inserted = insert_link(draft, anchor=draft.sites[after], node=_IN_TRANSIT, text=text)
    return _finish_move(remove(inserted, node), node)


def _with_named_argument(draft: Draft, node: str, after: str) -> Draft | None:
    """Returns the draft in which a call that moves down takes a name, which is assigned where the call is now.

    `x = x.shuffle(len(rows))` becomes `x = x.shuffle(buffer_size)` and `buffer_size = len(rows)`, so that the argument
    is computed when it was before, whatever the statements in between do. In this order the lines are wrong until the
    call has moved.

    Returns:
        None if there is no such argument, something else than it stands in the way, or the call moves up.
    """
    tree, call = draft.find(node)
    anchor = draft.find(after)[1]
    op, here = called_name(call), statement_of(tree, call)
    if here is None or op is None or op in TAKES_FUNCTION or is_unbound(tree, call):
        return None
    given = arguments_by_name(call.args, parameters(op)) or {}
    computed = {name: one for name, one in given.items() if not isinstance(one.value, cst.BaseNumber)}
    if len(computed) != 1 or tree.start(anchor) < tree.start(call):
        return None
    ((parameter, argument),) = computed.items()
    text = argument_text(tree, argument)
    behind = [one for one in upstream_calls(tree, last_chain_call(tree, call)) if tree.end(one) > tree.end(call)]
    rebound = bound_names(here.small).intersection(variable_names(argument.value))
    ordered = any(moved_call(tree, one).order_matters for one in behind)
    if rebound or ordered or not here.alone_on_line or len(text.splitlines()) > 1:
        return None
    try:
        refuse_unsafe(draft, tree, call, anchor=anchor, moved=MovedCall(frozenset(), False, may_pass_unmet=True))
    except CannotExpress:
        return None
    name = unused_name(tree, parameter, f"{op}_{parameter}")
    end = line_end(tree.code, tree.end(here.small))
    line = newline_of(tree.code, end) + tree.indentation(here.small) + f"{name} = {text}".encode()
    splices = [*set_argument(tree, call, op=op, name=parameter, text=name), Splice(end, end, line)]
    return draft.splice(draft.sites[node].file, splices)


def _statement(tree: SyntaxTree, call: cst.Call) -> Statement:
    statement = statement_of(tree, call)
    assert statement is not None
    return statement


def _restrict_to_conditions(draft: Draft, file: str, here: cst.CSTNode, conditions: list[str]) -> Draft:
    """Records in the draft that the function around `here` is to change only where all `conditions` are true."""
    if not conditions:
        return draft
    tree = draft.tree(file)
    function = tree.around(here, cst.FunctionDef)
    if function is None:
        raise CannotExpress("Between the two locations is a condition that was false when the script ran.")
    bound = bound_names(function.body)
    if any(bound.intersection(variable_names(parse_condition(text))) for text in conditions):
        raise CannotExpress("A condition that was false when the script ran reads names that the function assigns.")
    more = (file, path_of(tree, function)), conjunction(conditions)
    return replace(draft, conditional_functions=(*draft.conditional_functions, more))


def restrict_cache(
    draft: Draft, edit: Insert, current: Pipeline, *, stack: Sequence[CallSite] = (), undecided: bool = False
) -> Draft:
    """Records in the draft that an operator, if it is a cache, is to be written only where it keeps no other draws.

    In a run that takes a branch above it that was skipped, such as one that augments, it might keep the draws there.

    Args:
        current: the pipeline before the cache is inserted.
        stack: the call at which it is written, and those around it, if that is not the call of `edit.after`.
        undecided: whether conditions that literals decide are left out, because only these calls get the cache.

    Raises:
        CannotExpress: the branch is not in the function around the call, so that no version can be kept for it, or its
            condition may have another value below.
    """
    if edit.op != "cache":
        return draft
    stack = stack or (draft.sites[edit.after], *draft.calls_around(edit.after))
    file, tree = stack[0].file, draft.tree(stack[0].file)
    call = tree.calls.get(stack[0].end)
    if call is None:
        raise CannotExpress("The call at which the cache would be written is not known.")
    refuse_skipped_elsewhere(draft, stack, [*(one.id for one in current.upstream(edit.after)), edit.after])
    conditions = skipped_conditions(draft, file, call, stack=stack[1:], undecided=undecided)
    if conditions and tree.around(call, cst.FunctionDef) is None:
        if skipped_conditions(draft, file, call, undecided=True):
            raise CannotExpress("Above the cache is a condition that was false when the script ran.")
        note = f"The cache is valid only as long as this is true: {conjunction(conditions)}."
        return draft.with_note(note)
    if any(contains_call(parse_condition(text)) for text in conditions):
        raise CannotExpress("A condition above the cache calls a function, and may have another value below.")
    return _restrict_to_conditions(draft, file, call, conditions)


def moves_with_condition(draft: Draft, node: str, after: str) -> bool:
    """Whether the move would take along the condition of the `if` statement around the call."""
    with contextlib.suppress(CannotExpress):
        draft = _in_own_statement(draft, node, after)
        return conditional_move(draft, *draft.find(node), anchor=draft.find(after)[1]) is not None
    return False


def _in_own_statement(draft: Draft, node: str, after: str) -> Draft:
    """Returns the draft in which a call under a condition, which the new place is not under, is `x = x.method(...)`.

    The chain `x = x.one(...).two(...)` around it is split for that, and `if condition: x = ...` gets a second line.
    """
    draft = _below_its_condition(draft, node, after)
    tree, call = draft.find(node)
    here, there = statement_of(tree, call), statement_of(tree, draft.find(after)[1])
    condition = condition_around(tree, here)
    if here is None or there is None or condition is None or condition not in there.block:
        return draft
    root, above = chain_root(tree, call), receiver_of(tree, call)
    goes_on = isinstance(root, cst.Name) and root.value == here.name
    begins = isinstance(above, cst.Call) and here.value is not None and here.name not in variable_names(here.value)
    if here.name is None or not (goes_on or begins):
        return draft
    if isinstance(above, cst.Call):
        draft = split_after(draft, CallSite(draft.sites[node].file, tree.end(above)), name=here.name)
    return split_after(draft, draft.sites[node], name=here.name)


def _below_its_condition(draft: Draft, node: str, after: str) -> Draft:
    """Returns the draft in which the statement of a call has its own line, below the condition on which it is run.

    `if condition: x = x.one()` gets a second line, and so does `x = x.one() if condition else x`, which does the same.
    """
    tree, call = draft.find(node)
    here, there = statement_of(tree, call), statement_of(tree, draft.find(after)[1])
    if here is None or there is None or len(here.line.body) > 1:
        return draft
    code, begin = tree.code, tree.start(here.small)
    if isinstance(here.line, cst.SimpleStatementSuite):
        condition = tree.parent(here.line)
        if not isinstance(condition, cst.If) or condition not in there.block:
            return draft
        colon_ends = len(code[:begin].rstrip(b" \t"))
        indentation = tree.indentation(condition) + tree.indentation_unit
        splices = [Splice(colon_ends, begin, newline_of(code, begin) + indentation)]
    elif isinstance(here.value, cst.IfExp) and here.name is not None and here.line in there.block:
        choice, end = here.value, tree.end(here.small)
        otherwise, first, last = choice.orelse, tree.start(choice.body), tree.end(choice.body)
        same = isinstance(otherwise, cst.Name) and otherwise.value == here.name
        if not same or b"\n" in code[begin:end] or call not in nodes_within(choice.body, cst.Call):
            return draft
        condition_line = b"if " + tree.text(choice.test).encode() + b":" + newline_of(code, begin)
        assignment = tree.indentation(here.small) + tree.indentation_unit + f"{here.name} = ".encode()
        splices = [Splice(begin, first, condition_line + assignment), Splice(last, end, b"")]
    else:
        return draft
    return draft.splice(draft.sites[node].file, splices)


def _move_across(draft: Draft, node: str, after: str, crossing: _FunctionCrossing) -> Draft:
    """Moves a call across function boundaries to directly after `crossing.append_to`, which must run later."""
    file = draft.sites[node].file
    if draft.sites[after].file != file or crossing.anchor.file != file:
        raise CannotExpress("The call and its new location are in different files.")
    tree, call = draft.find(node)
    place = tree.calls[crossing.append_to.end]
    upper, lower = tree.calls[crossing.moved.end], tree.calls[crossing.anchor.end]
    nested = receiver_of(tree, lower) is upper or any(one.value is upper for one in lower.args)
    if tree.start(upper) > tree.start(lower) and not nested:
        raise CannotExpress("The call would move into a function that is called before it.")
    _refuse_other_names(tree, call, place)
    if crossing.append_to != crossing.anchor:
        names = [one.value.value for one in lower.args if isinstance(one.value, cst.Name)]
        root = receiver_of(tree, lower)
        names += [root.value] if isinstance(root, cst.Name) else []
        given = [upper] if nested else [dataset_argument(tree, lower, name) for name in names]
        if not any(one is not None and only_appends(draft, tree, lower, one) for one in given):
            raise CannotExpress("pipetune cannot determine what the function does with the dataset before the call.")
    if not nested and lower not in upstream_calls(tree, upper) and upper not in upstream_calls(tree, lower):
        refuse_unsafe(draft, tree, upper, anchor=lower, moved=moved_call(tree, call))
    text = link_of(tree, call).text
    level = (draft.sites[after], *draft.calls_around(after)).index(crossing.append_to)
    draft = insert_link(draft, anchor=crossing.append_to, node=_IN_TRANSIT, text=text)
    return _finish_move(remove(draft.with_position_of(after, node, level=level), node), node)


def move_out_of_list_files(draft: Draft, node: str, after: str, current: Pipeline) -> Draft:
    """Returns the draft in which `list_files` does not shuffle, and a `shuffle` of as many files follows `after`.

    Args:
        current: the pipeline before the move.

    Raises:
        CannotExpress: more depends on one of the calls, one may run without the other, or how it shuffles is not said.
    """
    tree, call = draft.find(node)
    anchor, file = draft.find(after)[1], draft.sites[node].file
    refuse_append(draft, current, after)
    known = node in draft.call_stacks and after in draft.call_stacks
    if (known and _function_crossing(draft, node, after, current)) or draft.sites[after].file != file:
        raise CannotExpress("list_files and the new place of its shuffle are in different functions.")
    if call not in upstream_calls(tree, anchor):
        refuse_unsafe(draft, tree, call, anchor=anchor, moved=MovedCall(frozenset(), False))
    if len(draft.built_by_same_call(node)) != 2 or len(draft.built_by_same_call(after)) != 1:
        raise CannotExpress("A call makes more than one dataset of this pipeline.")
    arguments = arguments_by_name(method_arguments(tree, call), parameters("list_files"))
    size = current[node].argument("buffer_size")
    if arguments is None or not isinstance(size, int):
        raise CannotExpress("It is not known how list_files is called, or how many files it lists.")
    given = {name: argument_text(tree, argument) for name, argument in arguments.items()}
    seed = given.get("seed", "None")
    if given.get("shuffle", "None") not in ("None", "True") or not (seed == "None" or seed.isdecimal()):
        raise CannotExpress("The arguments of list_files do not say whether it shuffles, or with which seed.")
    draft = draft.splice(file, set_argument(tree, call, op="list_files", name="seed", text=None))
    draft = draft.splice(file, set_argument(*draft.find(node), op="list_files", name="shuffle", text="False"))
    values = {"buffer_size": size, "seed": None if seed == "None" else int(seed)}
    text = write_call(*draft.find(after), values, op="shuffle")
    draft = insert_link(draft, anchor=draft.sites[after], node=node, text=text.encode())
    return draft.with_note(f"{text} has room for all files that there are now; with more of them, raise the number.")


def _finish_move(draft: Draft, node: str) -> Draft:
    return draft.with_site(node, draft.sites[_IN_TRANSIT]).without_site(_IN_TRANSIT)


def _move_with_condition(draft: Draft, node: str, after: str, *, name: str) -> Draft:
    """Moves `name = name.method(...)` to after another statement, under a copy of the `if` it was in."""
    draft = split_after(draft, draft.sites[after], name=name)
    tree, call = draft.find(node)
    statement, behind = _statement(tree, call), _statement(tree, draft.find(after)[1])
    condition = tree.around(call, cst.If)
    assert condition is not None
    code = tree.code
    first, last = start_with_comments(tree, statement.line), line_end(code, tree.end(statement.small))
    comments = b""  # above the `if`
    if len(statement.block) == 1:  # nothing is left of it
        begins, end = start_with_comments(tree, condition), next_line(code, tree.end(condition.body.body[-1]) - 1)
        lines = code[begins : line_start(code, tree.start(condition))].splitlines(keepends=True)
        comments = b"".join(tree.indentation(statement.small) + line.lstrip() for line in lines)
        taken = Splice(begins, end, b"")
    else:
        taken = replace(removal_splice(tree, statement), start=first)
    inside = _same_test_behind(tree, behind, condition, statement)
    at = line_end(code, tree.whole_span(inside.test)[1] if inside is not None else tree.end(behind.small))
    heading = newline = newline_of(code, at)
    if inside is None:
        test = code[tree.start(condition) : tree.whole_span(condition.test)[1]]
        heading += tree.indentation(behind.small) + test + b":" + newline
    return _move_lines(draft, node, (first, last), at=at, heading=heading + comments, taken=taken)


def _same_test_behind(tree: SyntaxTree, behind: Statement, condition: cst.If, statement: Statement) -> cst.If | None:
    """Returns the `if` directly behind a statement that has the same test as `condition`, and can take its line."""
    at = block_index(behind) + 1
    following = behind.block[at] if at < len(behind.block) else None
    if not isinstance(following, cst.If) or following is condition or following.orelse is not None:
        return None
    if tree.text(following.test) != tree.text(condition.test) or not isinstance(following.body, cst.IndentedBlock):
        return None
    code, end = tree.code, tree.whole_span(following.test)[1]
    plain = code[end : line_end(code, end)].strip() == b":"
    column = len(tree.indentation(statement.small))
    return following if plain and len(tree.indentation(following.body.body[0])) == column else None


def _move_line(draft: Draft, tree: SyntaxTree, *, node: str, moved: Statement, behind: Statement) -> Draft:
    """Moves `x = x.method(...)`, with the comments directly above it, to the line after `behind`."""
    code = tree.code
    first, last = start_with_comments(tree, moved.line), line_end(code, tree.end(moved.small))
    taken = replace(removal_splice(tree, moved), start=first)
    at = line_end(code, tree.end(behind.small))
    if taken.end == len(code) == last:
        # The file ended without a newline and must still do so.
        taken = replace(taken, start=first - 1 - (code[first - 2 : first] == b"\r\n"))
    return _move_lines(draft, node, (first, last), at=at, heading=newline_of(code, at), taken=taken)


def _move_lines(draft: Draft, node: str, lines: tuple[int, int], *, at: int, heading: bytes, taken: Splice) -> Draft:
    """Moves the lines of the call of `node`, between two offsets, to `at`, behind `heading`; `taken` removes them."""
    (first, last), site = lines, draft.sites[node]
    moved = heading + draft.codes[site.file][first:last]
    removed_above = taken.end - taken.start if taken.start < at else 0
    end = at - removed_above + len(heading) + site.end - first
    return draft.splice(site.file, [Splice(at, at, moved), taken]).with_site(node, CallSite(site.file, end))


@dataclass(frozen=True)
class _FunctionCrossing:
    """Two calls in the body of one function; each of them built an operator itself, or called a function that did."""

    moved: CallSite
    anchor: CallSite
    append_to: CallSite  # the call to append to: `anchor`, or the operator's own call in the function that it calls


def _function_crossing(draft: Draft, node: str, after: str, current: Pipeline) -> _FunctionCrossing | None:
    """Returns the calls that stand for two operators in the innermost function on both call stacks.

    None if the calls of both operators are in the same function, reached by the same calls.
    """
    one, other = ((draft.sites[name], *draft.calls_around(name)) for name in (node, after))  # innermost first
    if one[1:] == other[1:]:
        return None
    common = 0
    while common < min(len(one), len(other)) and one[-1 - common] == other[-1 - common]:
        common += 1
    if common == len(one) or common == len(other):
        raise CannotExpress("One of the calls is made inside the other.")
    left, right = len(one) - 1 - common, len(other) - 1 - common
    crossing = _FunctionCrossing(one[left], other[right], other[right])
    if crossing.moved.file != crossing.anchor.file or -1 in (crossing.moved.end, crossing.anchor.end):
        raise CannotExpress("The call and its new place are in different files.")
    if left:
        refuse_other_value(draft, node, left, current)
        _refuse_skipped_below(draft, node, left)
    try:
        if right:
            refuse_other_value(draft, after, right, current)
            _refuse_skipped_below(draft, after, right)
    except CannotExpress:
        crossing = replace(crossing, append_to=draft.sites[after])  # its function processes the dataset further
    tree = draft.tree(crossing.moved.file)
    if any(site.end not in tree.calls for site in (crossing.moved, crossing.anchor)):
        raise CannotExpress("The functions that build the dataset are not both called in their common function.")
    moved, anchor = (tree.calls[site.end] for site in (crossing.moved, crossing.anchor))
    if tree.around(moved, cst.FunctionDef) is not tree.around(anchor, cst.FunctionDef):
        raise CannotExpress("The call and its new place are in different functions.")
    return crossing


def refuse_other_value(draft: Draft, node: str, level: int, current: Pipeline) -> None:
    """Refuses if the call `level` frames around an operator does not return the dataset that the operator outputs.

    Args:
        level: 0 for the operator's own call, 1 for the innermost call around it.

    Raises:
        CannotExpress: the functions in between process the dataset further, or return more than it.
    """
    around = draft.calls_around(node)[level - 1 :]
    for below in current.consumers(node):
        if draft.calls_around(below.id)[-len(around) :] == around:
            raise CannotExpress("The function that builds the dataset processes it further.")
    for site in (draft.sites[node], *draft.calls_around(node))[:level]:
        tree = draft.tree(site.file)
        function = tree.around(tree.calls.get(site.end), cst.FunctionDef)
        if function is None or not _returns_one_value(function) or not _may_return_dataset(draft, tree, function):
            raise CannotExpress("A function in between returns more than the dataset.")


_CHANGES = METHODS.keys() - {"prefetch", "with_options"}


def _refuse_skipped_below(draft: Draft, node: str, level: int) -> None:
    """Refuses if a function within `level` frames around an operator may do more to its dataset in another run."""
    for site in (draft.sites[node], *draft.calls_around(node))[:level]:
        tree = draft.tree(site.file)
        function = tree.around(tree.calls[site.end], cst.FunctionDef)
        known = recorded_call_ends(draft, tree)
        for call in nodes_within(function.body, cst.Call) if function is not None else ():
            method = isinstance(call.func, cst.Attribute) and call.func.attr.value in _CHANGES
            if method and tree.end(call) > site.end and tree.end(call) not in known:
                raise CannotExpress("A branch that was skipped in the function might process the dataset further.")


def _returns_one_value(function: cst.FunctionDef) -> bool:
    """Whether a function returns a single value, which may be a dataset.

    That is no collection, nor None or `self`, and the function is no generator, coroutine or constructor.
    """
    name = function.name.value
    implicit = name.startswith("__") and name.endswith("__") and name != "__call__"
    if implicit or function.asynchronous is not None:
        return False
    returned = _returned_values(function)
    yields = any(nodes_within(function.body, cst.Yield, without=_NESTED))
    several = cst.Tuple | cst.List | cst.Dict | cst.Set | cst.BaseComp
    single = all(value is not None and not isinstance(value, several) for value in returned)
    other = any(isinstance(value, cst.Name) and value.value in ("None", "self") for value in returned)
    return bool(returned) and not yields and single and not other


_NESTED = (cst.FunctionDef, cst.Lambda)


def _returned_values(function: cst.FunctionDef) -> list[cst.BaseExpression | None]:
    return [one.value for one in nodes_within(function.body, cst.Return, without=_NESTED)]


def _may_return_dataset(draft: Draft, tree: SyntaxTree, function: cst.FunctionDef) -> bool:
    """Whether a function returns anything but the values of calls that made no dataset, such as `iter(ds)`."""
    known = recorded_call_ends(draft, tree)
    return any(
        not isinstance(value, cst.Call) or tree.end(value) in known or called_name(value) in METHODS
        for value in _returned_values(function)
    )


def _refuse_other_names(tree: SyntaxTree, call: cst.Call, place: cst.Call) -> None:
    """Refuses to write the arguments of a call at a place where a name in them means, or may mean, something else."""
    here, there = tree.scope(call), tree.scope(place)
    one, other = (class_of_method(tree, tree.around(inside, cst.FunctionDef)) for inside in (call, place))
    same_object = one is not None and one is other  # a method of the class calls the other one
    for argument in method_arguments(tree, call):
        inside = {one.name.value for one in nodes_within(argument.value, cst.Param)}  # parameters of lambdas
        for name in variable_nodes(argument.value):
            meant, means = list(here[name.value]), list(there[name.value])
            same = name.value in inside or (meant and meant == means)
            if not same and not (name.value == "self" and same_object):
                raise CannotExpress(f"{name.value} means something else at the call's new place.")
