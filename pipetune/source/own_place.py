"""Writes a change of a call that serves several datasets at a place that affects one of them only.

An insertion, and some moves, are written in front of what reads the shared call's dataset, behind or in front of the
call of a helper, or where `fit` gets the dataset. For a move upstream of shared calls, the dataset gets its own calls.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from pipetune.core.edits import Insert, Move
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.source.call_arguments import METHODS, named_arguments, receiver_of, write_call
from pipetune.source.call_moves import move, refuse_inside_library, refuse_other_value, restrict_cache
from pipetune.source.chain import break_before, chain_root, insert_link, link_of, refuse_bindings, upstream_calls
from pipetune.source.dataset_flow import moved_call, only_appends, refuse_conditional
from pipetune.source.draft import CallSite, Draft, Splice, called_name, replacing
from pipetune.source.map_functions import parameters_of
from pipetune.source.shared_calls import SharingRules, is_repeated
from pipetune.source.skipped_code import refuse_skipped_elsewhere, skipped_conditions
from pipetune.source.source_files import line_end, newline_of, read_source
from pipetune.source.statements import (
    Statement,
    block_index,
    bound_names,
    last_binding,
    only_binds_or_reports,
    statement_of,
    unused_name,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree
from pipetune.source.user_functions import uses_of

_RECEIVER = "#receiver"

# The four ways to express an edit of `current`, the pipeline before it, at another place than the shared call.


def express_before_consumer(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: SharingRules) -> Draft:
    """Returns the draft with `edit` written before the one operator that consumes `edit.after`.

    Raises:
        CannotExpress: not exactly one operator consumes it, the consumer is shared too, or what the consumer is
            called on is not the value of another call in the same block.
    """
    moved = edit.node if isinstance(edit, Move) else None
    readers = [node for node in current.consumers(edit.after) if node.id != moved]
    if len(readers) != 1:
        raise CannotExpress(f"{len(readers)} operators read what stands there.")
    (reader,) = readers
    if len(reader.inputs) != 1:  # what would be written behind the first one
        raise CannotExpress("The call that reads it reads others, too.")
    if reader.id not in sharing.pipeline or not sharing.is_unshared(sharing.pipeline[reader.id]):
        raise CannotExpress("The call that reads it is shared too.")
    refuse_inside_library(current, reader.id)
    tree, call = draft.find(reader.id)
    file = draft.sites[reader.id].file
    if isinstance(edit, Insert):  # `x.map(f)` becomes `x.cache().map(f)`: other readers of `x` are not affected
        draft = restrict_cache(draft, edit, current, stack=(draft.sites[reader.id], *draft.calls_around(reader.id)))
        link, text = link_of(tree, call), write_call(*draft.original_calls[reader.id], edit.arguments, op=edit.op)
        style = break_before(tree, call.func)  # without the comments before the call
        new = style.before + b"." + style.after + text.encode()
        draft = draft.with_position_of(reader.id, edit.id).splice(file, [Splice(link.start, link.start, new)])
        return draft.with_site(edit.id, CallSite(file, link.start + len(new)))
    refuse_inside_library(current, edit.node)
    anchor = CallSite(file, tree.end(_receiver_call(tree, call)))
    if anchor in draft.sites.values():
        raise CannotExpress("What it is called on is the shared call itself.")
    return move(draft.with_site(_RECEIVER, anchor), edit.node, _RECEIVER, current).without_site(_RECEIVER)


def express_after_helper(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: SharingRules) -> Draft:
    """Returns the draft with `edit` written after the helper's call that makes only this dataset: `load(x).cache()`.

    Raises:
        CannotExpress: it is no insertion, there is no such call, or its value is not the dataset of `edit.after`.
    """
    if not isinstance(edit, Insert) or edit.after not in sharing.pipeline:
        raise CannotExpress("What moves stands in the function itself.")
    level = sharing.exclusive_depth(sharing.pipeline[edit.after])
    if not level or edit.after not in draft.call_stacks or edit.after in draft.moved_beside:
        raise CannotExpress("The call that makes it is passed by other datasets alone.")
    refuse_other_value(draft, edit.after, level, current)
    draft = restrict_cache(draft, edit, current, stack=draft.call_stacks[edit.after][level - 1 :])
    site = draft.call_stacks[edit.after][level - 1]
    tree = draft.tree(site.file)
    call = tree.calls.get(site.end)
    if call is None:
        raise CannotExpress("The function is not called where something could stand behind it.")
    text = write_call(tree, call, edit.arguments, op=edit.op)
    draft = insert_link(draft, anchor=site, node=edit.id, text=text.encode())
    draft = draft.with_position_of(edit.after, edit.id, level=level)
    return draft.written_apart(edit.id, draft.sites[edit.id], (tree, call))


def express_before_helper(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: SharingRules) -> Draft:
    """Returns the draft with `edit` written behind what a call passes to a helper: `prepare(data.cache())`.

    Raises:
        CannotExpress: the edit is not an insertion, or what reads `edit.after` is not made by a helper that does no
            more than append to the one dataset that it gets in a variable, in a call that makes only this dataset.
    """
    readers = current.consumers(edit.after)
    if not isinstance(edit, Insert) or len(readers) != 1 or readers[0].id not in sharing.pipeline:
        raise CannotExpress("Not exactly one captured operator reads what stands there.")
    (reader,) = readers
    if len(reader.inputs) != 1:
        raise CannotExpress("What reads it reads others, too.")
    level = sharing.exclusive_depth(sharing.pipeline[reader.id])
    if not level or reader.id not in draft.call_stacks or reader.id in draft.moved_beside:
        raise CannotExpress("The call that reads it is no part of a helper, or was moved.")
    site = draft.call_stacks[reader.id][level - 1]
    if site in draft.calls_around(edit.after):
        raise CannotExpress("It is made by the helper itself.")
    tree = draft.tree(site.file)
    call = tree.calls.get(site.end)
    names = [one.value for one in call.args if isinstance(one.value, cst.Name)] if call is not None else []
    given = [one for one in names if call is not None and only_appends(draft, tree, call, one)]
    if call is None or len(given) != 1:
        raise CannotExpress("pipetune cannot determine which dataset the helper gets.")
    draft = restrict_cache(draft, edit, current, stack=draft.call_stacks[reader.id][level - 1 :])
    new, end = b"." + write_call(tree, call, edit.arguments, op=edit.op).encode(), tree.end(given[0])
    draft = draft.with_position_of(reader.id, edit.id, level=level).splice(site.file, [Splice(end, end, new)])
    return draft.written_apart(edit.id, CallSite(site.file, end + len(new)), (tree, call))


def _receiver_call(tree: SyntaxTree, call: cst.Call) -> cst.Call:
    """Returns the call whose value the method is called on, directly or through a name bound in the same block."""
    receiver = link_of(tree, call).receiver
    if isinstance(receiver, cst.Call):
        return receiver
    statement = statement_of(tree, call)
    if isinstance(receiver, cst.Name) and statement is not None:
        assigned = last_binding(tree, statement.block[: block_index(statement)], receiver.value)
        if assigned is not None and isinstance(assigned.value, cst.Call):
            return assigned.value
    raise CannotExpress("What the call is called on is not made by one call in the same block.")


def express_in_argument(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: SharingRules) -> Draft:
    """Returns the draft with `edit` written behind the value of `validation_data`.

    Only what comes last in the pipeline may stand there. The value is that of the dataset, whatever builds it.

    Raises:
        CannotExpress: it is no insertion behind the last operator, or not one call there, outside of loops, validates.
    """
    file = sharing.validated_in
    if not isinstance(edit, Insert) or edit.after != current.output.id or not file:
        raise CannotExpress("It does not stand behind the last operator.")
    tree = draft.tree(file)
    given = _validating_calls(tree)
    if len(given) != 1:
        raise CannotExpress(f"{len(given)} calls of fit in {file} validate.")
    ((call, value),) = given
    if not isinstance(value, cst.Name | cst.Attribute | cst.Subscript | cst.Call) or is_repeated(tree, call):
        raise CannotExpress("What fit validates on is chosen there, or built for each of several calls.")
    if isinstance(value, cst.Name) and _may_be_none(tree, value):
        raise CannotExpress(f"{value.value} is None in other runs.")
    if edit.op == "cache":
        above = [*(one.id for one in current.upstream(edit.after)), edit.after]
        refuse_skipped_elsewhere(draft, [CallSite(file, tree.end(call))], above)
        if skipped_conditions(draft, file, value) or _gets_several(draft, file, call):
            raise CannotExpress("A run may validate on other data there, whose draws the cache would keep.")
    new, end = b"." + write_call(tree, call, edit.arguments, op=edit.op).encode(), tree.end(value)
    draft = draft.splice(file, [Splice(end, end, new)])
    return draft.written_apart(edit.id, CallSite(file, end + len(new)), (tree, call))


def _may_be_none(tree: SyntaxTree, name: cst.Name) -> bool:
    """Whether the file assigns None to a variable, always or under a condition."""
    values = filter(None, map(tree.assigned_value, tree.assignments(name)))
    nones = [one for value in values for one in variable_nodes(value) if one.value == "None"]
    return any(isinstance(tree.parent(one), cst.Assign | cst.IfExp) for one in nones)


def _gets_several(draft: Draft, file: str, call: cst.Call) -> bool:
    """Whether the function around a call has parameters, and more than one call may give it something."""
    tree, several = draft.tree(file), False
    function = tree.around(call, cst.FunctionDef)
    while function is not None and not several and set(parameters_of(function)) - {"self"}:
        uses = uses_of(draft, file, function)
        several = len(uses) != 1 or uses[0].file != file or is_repeated(tree, uses[0].node)
        function = tree.around(uses[0].node, cst.FunctionDef) if not several else None
    return several


def validates_at(file: str, line: int, read: Callable[[str], str] = read_source) -> bool:
    """Whether a file has one call of `fit` that validates, at this line; `read` returns a file by its path."""
    try:
        tree = Draft({}, {}, read=read).tree(file)
    except CannotExpress:
        return False
    calls = [call for call, _ in _validating_calls(tree)]
    return len(calls) == 1 and line in tree.lines(calls[0])


def _validating_calls(tree: SyntaxTree) -> list[tuple[cst.Call, cst.BaseExpression]]:
    """Returns the calls of `fit` that validate, each with the value of that argument."""
    calls = ((call, named_arguments(call)) for call in tree.nodes(cst.Call) if called_name(call) == "fit")
    return [(call, given["validation_data"].value) for call, given in calls if "validation_data" in given]


class NotInBranch(CannotExpress):
    """The move is none for which a dataset could get calls of its own."""


_COPIED = frozenset({"map", "prefetch"})  # operators whose calls may be written twice


def move_into_own_branch(draft: Draft, edit: Move, current: Pipeline) -> Draft:
    """Returns the draft with a call moved to its new place, upstream of calls that are written for it once more.

    `every = x.map(f)` and `part = every.skip(9)` become `every_before_map = x`, `every = every_before_map.map(f)` and
    `part = every_before_map.skip(9).map(f)`. Other readers of `every` get what they got before. What is upstream of
    the copied calls stays one dataset: arrays are held once, and a shuffle without a seed keeps its own.

    Raises:
        NotInBranch: the move passes no such calls.
        CannotExpress: the calls in between are no maps of their element and of draws alone, the variables that hold
            their results are assigned in another block, or something that they read may change in between.
    """
    return _into_branch(draft, edit, _passed_operators(edit, current))


def move_copied_shuffle(draft: Draft, edit: Move, current: Pipeline) -> Draft:
    """Returns the draft with a shuffle that other datasets read moved downstream of the next call of this dataset.

    `every = x.shuffle(9)` and `part = every.map(f)` become `every_before_shuffle = x`,
    `every = every_before_shuffle.shuffle(9)` and `part = every_before_shuffle.map(f).shuffle(9)`. The shuffle that is
    written once more has the same distribution, as each iteration of the one has.

    Raises:
        NotInBranch: it is no such shuffle.
        CannotExpress: as for `move_into_own_branch`.
    """
    shuffle, below = current[edit.node], current[edit.after]
    if shuffle.op != "shuffle" or below.inputs != (shuffle.id,):
        raise NotInBranch("It is no shuffle directly upstream of its new place.")
    if shuffle.argument("reshuffle_each_iteration") is False:
        raise CannotExpress("Other datasets have the order of this shuffle, and another one would differ from it.")
    return _into_branch(draft, Move(below.id, shuffle.inputs[0]), [shuffle])


def _into_branch(draft: Draft, edit: Move, passed: Sequence[Node]) -> Draft:
    """Returns the draft with a call moved upstream of the calls of `passed`, nearest first, which are written again."""
    tree, call = draft.find(edit.node)
    file = draft.sites[edit.node].file
    if any(draft.sites.get(name, CallSite("", -1)).file != file for name in (edit.after, *(one.id for one in passed))):
        raise CannotExpress("The calls that other datasets share are in another file, or have no place in the source.")
    refuse_bindings(call)
    here, receiver = statement_of(tree, call), receiver_of(tree, call)
    if here is None or not isinstance(receiver, cst.Name):
        raise CannotExpress("The call does not begin with the variable that holds the shared dataset.")
    refuse_conditional(tree, call, here)
    _, anchor = draft.find(edit.after)
    ends = [draft.sites[one.id].end for one in passed]
    branch = _branch(tree, here, receiver.value, ends, anchor)
    branch.refuse_changes()
    name, splices = branch.holder(anchor, op=passed[-1].op)
    copies, written = list[int](), b""
    for link in reversed(branch.links):
        written += b"." + link_of(tree, link).text
        copies.append(len(written))
    at = tree.end(call)
    splices += [replacing(tree, receiver, name), Splice(at, at, written)]
    result = draft.splice(file, splices)
    end = result.sites[edit.node].end
    for node, length in zip(reversed(passed), copies, strict=True):
        result = result.with_site(node.id, CallSite(file, end + length))
    return replace(result, exclusive=result.exclusive | {one.id for one in passed})


def _passed_operators(edit: Move, current: Pipeline) -> list[Node]:
    """Returns the operators that the moved one passes, nearest first.

    Among them may be a map that draws random numbers: a move past one changes the draws in any case.
    """
    passed: list[Node] = []
    node = current[edit.node]
    while len(node.inputs) == 1 and node.inputs[0] != edit.after:
        node = current[node.inputs[0]]
        passed.append(node)
    if not passed or node.inputs != (edit.after,):
        raise NotInBranch("It passes no call that another dataset shares.")
    for one in passed:
        function = one.function
        if one.op not in _COPIED or (one.op == "map" and function is None):
            raise CannotExpress(f"{one.title} cannot be written once more for this dataset.")
        if function is not None and (function.random_python or function.python):
            raise CannotExpress(f"The function of {one.title} may return something else if it is traced again.")
    return passed


@dataclass(frozen=True)
class _Branch:
    """The way back from a statement to the call that makes the dataset that a branch begins with."""

    tree: SyntaxTree
    here: Statement  # the statement of the branch
    links: tuple[cst.Call, ...]  # calls to write again, nearest first
    made: Statement  # the statement in which the dataset upstream of them is made

    def _lines_between(self) -> Iterator[cst.CSTNode]:
        yield from self.here.block[block_index(self.made) + 1 : block_index(self.here)]

    def refuse_changes(self) -> None:
        """Refuses if what the copied calls read may be different where they are written again."""
        copied = [moved_call(self.tree, link) for link in self.links]
        names = frozenset().union(*(one.names for one in copied))
        # Only an assignment changes what calls get whose arguments are numbers and variables.
        arguments = [one for link in self.links for one in link.args]
        constant = all(isinstance(one.value, cst.Name | cst.Integer) and not one.star for one in arguments)
        plain = constant and not names & self._declared_global() and not any(one.order_matters for one in copied)
        for line in self._lines_between():
            if bound_names(line) & names:
                raise CannotExpress("A name in the arguments of the shared calls is reassigned in between.")
            if not (plain or only_binds_or_reports(self.tree, line) or _only_makes_dataset(self.tree, line)):
                raise CannotExpress("The functions of the shared calls may depend on statements in between.")
        for link in self.links:
            refuse_bindings(link)

    def _declared_global(self) -> set[str]:
        """Returns the variables of the file that a function may assign."""
        return {item.name.value for item in self.tree.nodes(cst.NameItem)}

    def holder(self, anchor: cst.Call, *, op: str) -> tuple[str, list[Splice]]:
        """Returns the variable that holds the dataset of the call `anchor` for the branch, and the changes it needs.

        A new variable is named by `op`, the first operator downstream of it.
        """
        made, tree = self.made, self.tree
        assert made.name is not None
        holds = made.value is anchor
        if holds and all(made.name not in bound_names(line) for line in self._lines_between()):
            return made.name, []
        if holds and (kept := self._second_variable()):
            return kept, []
        name = unused_name(tree, f"{made.name}_before_{op}")
        code, start, end = tree.code, tree.start(made.small), tree.end(made.small)
        indentation, newline = tree.indentation(made.small), newline_of(code, end)
        if holds:
            at = line_end(code, end)
            return name, [Splice(at, at, newline + indentation + f"{name} = {made.name}".encode())]
        begins, ends = tree.start(anchor), tree.end(anchor)
        opening, closing = (b"(", b")") if newline in code[begins:ends] else (b"", b"")
        rest = closing + newline + indentation + code[start:begins] + name.encode()
        return name, [Splice(start, begins, f"{name} = ".encode() + opening), Splice(ends, ends, rest)]

    def _second_variable(self) -> str:
        """Returns another variable that holds the dataset until the branch, such as one an earlier edit made; or ""."""
        lines = list(self._lines_between())
        bound = collections.Counter(name for line in lines for name in bound_names(line))
        for line in lines:
            match line:
                case cst.SimpleStatementLine(
                    body=[
                        cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Name(value=held))
                    ]
                ) if held == self.made.name and bound[name] == 1 and name not in self._declared_global():
                    return name
            if self.made.name in bound_names(line):
                return ""
        return ""


def _branch(tree: SyntaxTree, here: Statement, name: str, ends: Sequence[int], anchor: cst.Call) -> _Branch:
    """Returns the branch in the statement `here`, which begins with the variable `name`.

    The calls that are written again end at `ends`, nearest first; `anchor` makes the dataset upstream of them. The
    variables between them must be assigned one after another in the block of the branch.
    """
    links: list[cst.Call] = []
    statement = here
    while True:
        above = last_binding(tree, statement.block[: block_index(statement)], name)
        if above is None:
            raise CannotExpress(f"{name} is not assigned once in the block in which this dataset is made.")
        statement, value = above, above.value
        while isinstance(value, cst.Call) and value is not anchor and len(links) < len(ends):
            if tree.end(value) != ends[len(links)]:
                raise CannotExpress(f"{name} is not made by the calls that other datasets share alone.")
            links.append(value)
            value = receiver_of(tree, value)
        if value is anchor and len(links) == len(ends) and not anchor.lpar:
            return _Branch(tree, here, tuple(links), statement)
        if not isinstance(value, cst.Name):
            raise CannotExpress("The shared calls are not made in the block in which this dataset is made.")
        name = value.value


def _only_makes_dataset(tree: SyntaxTree, line: cst.CSTNode) -> bool:
    """Whether a statement only calls methods of datasets on a variable, and assigns the result to another one."""
    match line:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value)]):
            links = upstream_calls(tree, value) if isinstance(value, cst.Call) else []
            rooted = bool(links) and isinstance(chain_root(tree, links[0]), cst.Name)
            return rooted and all(called_name(link) in METHODS for link in links)
    return False
