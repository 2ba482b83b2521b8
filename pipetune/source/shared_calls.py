"""Decides what may be changed at call sites that make more than one dataset or operator, and what changes together."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeVar

import libcst as cst
from libcst.metadata import Assignment, FunctionScope, Scope

from pipetune.core.edits import (
    Edit,
    Insert,
    ReplaceFunction,
    ReplaceSource,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
    SplitFunction,
    named_operators,
    renamed,
)
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.pipeline import Node, Pipeline, SourceLocation
from pipetune.core.storage import read_config_field
from pipetune.source.call_arguments import arguments_by_name
from pipetune.source.draft import CallSite, Draft, called_name, locations
from pipetune.source.map_functions import parameters_of
from pipetune.source.skipped_code import truth
from pipetune.source.statements import bound_targets, variable_nodes
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import (
    FunctionUse,
    class_of_method,
    functions_of,
    is_partial,
    referenced_functions,
    use_at,
    uses_of,
)

_T = TypeVar("_T")
_REPEATING = (cst.For, cst.While, cst.BaseComp, cst.Lambda)
_NAMED_BY_CALLERS = frozenset({"__call__", "__init__", "__post_init__"})
"""The only methods with such a name that are not called without writing it, or that of their class."""
_CONSTRUCTORS = frozenset({"__init__", "__post_init__"})
_COPYING = frozenset({"copy", "deepcopy", "replace"})  # functions of one object, of `copy` and `dataclasses`
_CHANGING = frozenset({"append", "clear", "extend", "pop", "update"})  # methods of lists and dictionaries


class Callers:
    """Answers questions about callers in the source files before any edit.

    Args:
        original: the draft of these files.
        pipelines: all captured pipelines, the studied one first.
    """

    def __init__(self, original: Draft, pipelines: Sequence[Pipeline]) -> None:
        self._draft = original
        self._recorded = {(one.file, one.end_line, one.end_column) for made in pipelines for one in locations(made)}
        self._unrecorded: dict[tuple[str, int], tuple[FunctionUse, ...]] = {}

    def stack_functions(self, node: Node) -> list[tuple[str, cst.FunctionDef]]:
        """Returns the functions on the call stack that built the operator, with their files, innermost first."""
        found = []
        for place in (node.location, *node.calls):
            function = self._function_at(place) if place is not None else None
            if function is None or place is None:
                break
            found.append((place.file, function))
        return found

    def exclusive_depth(self, node: Node) -> int:
        """Returns the depth of the innermost call that leads to this dataset only; 0 is the operator's own call.

        Raises:
            CannotExpress: every call on the stack leads to other datasets, too.
        """
        found = 0
        for depth, (file, function) in enumerate(self.stack_functions(node)):
            if self._builds_one_dataset(file, function):
                break
            own = node.calls[: depth + 1]
            others = [stack for stack in node.other_calls if stack[:depth] == own[:depth] and stack[: depth + 1] != own]
            if others or self._unrecorded_reference(file, function, (node.location, *node.calls)[depth]) is not None:
                found = depth + 1
        if found > len(node.calls) or () in node.other_calls:
            raise CannotExpress(f"The call at {node.location} also builds other datasets, through the same calls.")
        return found

    def builds_several(self, node: Node) -> bool:
        """Whether one of the calls that lead to an operator may build several datasets, as in a loop over splits.

        Callers of a function that always builds the same dataset are not checked.
        """
        for place in (node.location, *node.calls):
            inside = self._call_at(place) if place is not None else None
            if place is None or inside is None:
                return True
            tree = self._draft.tree(place.file)
            if is_repeated(tree, inside):
                return True
            function = tree.around(inside, cst.FunctionDef)
            if function is not None and self._builds_one_dataset(place.file, function):
                return False
        return True

    def _unrecorded_reference(
        self, file: str, function: cst.FunctionDef, place: SourceLocation | None
    ) -> FunctionUse | None:
        """Returns a reference to a function at which no call was recorded, and that may run the call at `place`."""
        key = (file, self._draft.tree(file).start(function))
        if key not in self._unrecorded:
            self._unrecorded[key] = tuple(self._unrecorded_references(file, function))
        return next((use for use in self._unrecorded[key] if not self._skips(use, place)), None)

    def _skips(self, use: FunctionUse, place: SourceLocation | None) -> bool:
        """Whether a function is called with literals for which the call at `place` in it does not run."""
        call = self._draft.tree(use.file).parent(use.node)
        inner = self._call_at(place) if place is not None else None
        if place is None or inner is None or not isinstance(call, cst.Call) or call.func is not use.node:
            return False
        site = CallSite(use.file, self._draft.tree(use.file).end(call))
        for outer in self._draft.tree(place.file).ancestors(inner):
            if isinstance(outer, cst.If) and inner is not outer.test:
                met = truth(self._draft, place.file, outer.test, [site])
                if met is (inner is outer.orelse):
                    return True
            inner = outer
        return False

    def unrecorded_builder_reference(self, node: Node) -> FunctionUse | None:
        """Returns a reference to a function that builds the operator, where no call was recorded; None if all ran."""
        if (use := next(self._unrecorded_lambda_uses(node), None)) is not None:
            return use
        for (file, function), place in zip(self.stack_functions(node), (node.location, *node.calls), strict=False):
            if self._builds_one_dataset(file, function):
                return None
            if (use := self._unrecorded_reference(file, function, place)) is not None:
                return use
        return None

    def _unrecorded_lambda_uses(self, node: Node) -> Iterator[FunctionUse]:
        """Yields where a lambda with a name and parameters, which builds the operator, is named but was not called."""
        for place in filter(None, (node.location, *node.calls)):
            if (inside := self._call_at(place)) is None:
                continue
            tree = self._draft.tree(place.file)
            around = tree.around(inside, cst.FunctionDef, cst.Lambda)
            if not isinstance(around, cst.Lambda) or not parameters_of(around):
                continue
            named: Sequence[cst.CSTNode] = [around]  # in a collection or a return, it is not known where it is called
            match tree.parent(around):
                case cst.Call():
                    continue  # in place
                case (
                    cst.Assign(targets=[cst.AssignTarget(target=target)])
                    | cst.AnnAssign(target=target)
                    | cst.NamedExpr(target=target)
                ):
                    if isinstance(target, cst.Name):
                        named = [one for one in variable_nodes(tree.module) if one.value == target.value]
                    elif isinstance(target, cst.Attribute):
                        named = [one for one in tree.nodes(cst.Attribute) if one.attr.value == target.attr.value]
                    named = [one for one in named if one is not target]
            for one in named:
                if not self._runs_at(tree, place.file, one):
                    yield use_at(tree, place.file, one)

    def _builds_one_dataset(self, file: str, function: cst.FunctionDef) -> bool:
        """Whether a function builds the same dataset each time: it has no parameters.

        Nor has a function around it, unless that runs once. A method may have `self`, if only one object of its class
        is made, and stays as it was made. No variable that the function reads is set again below.
        """
        tree, names = self._draft.tree(file), parameters_of(function)
        if _reads_set_again(tree, function):
            return False
        owner, around = class_of_method(tree, function), tree.around(function, cst.FunctionDef)
        if names == ["self"] and owner is not None and around is None:
            return self._runs_once(file, owner) and not _may_object_change(tree, owner, function)
        if names or around is None:
            return not names
        return self._builds_one_dataset(file, around) or self._runs_once(file, around)

    def _runs_once(self, file: str, definition: cst.FunctionDef | cst.ClassDef) -> bool:
        """Whether only one call runs a function, or makes an object of a class, always with the same arguments."""
        seen: list[cst.FunctionDef | cst.ClassDef] = []
        while all(definition is not one for one in seen):
            seen.append(definition)
            uses = uses_of(self._draft, file, definition)
            if len(uses) != 1 or (isinstance(definition, cst.ClassDef) and uses[0].file != file):
                return False
            file = uses[0].file
            tree, node = self._draft.tree(file), uses[0].node
            call = tree.parent(node)
            if not isinstance(call, cst.Call) or call.func is not node or is_repeated(tree, call):
                return False
            maker = tree.around(call, cst.FunctionDef)
            if maker is None or not parameters_of(maker):
                return True
            definition = maker
        return False

    def _unrecorded_references(self, file: str, function: cst.FunctionDef) -> Iterator[FunctionUse]:
        name = function.name.value
        if name.startswith("__") and name.endswith("__") and name not in _NAMED_BY_CALLERS:
            yield FunctionUse(file, function, f"{os.path.basename(file)}: {name}")  # its callers cannot be found
        for use in uses_of(self._draft, file, function):
            if not self._runs_at(self._draft.tree(use.file), use.file, use.node):
                yield use

    def _runs_at(self, tree: SyntaxTree, file: str, node: cst.CSTNode) -> bool:
        """Whether a function that is named at a node was called there, and nothing is left that may call it again."""
        inner = node
        for up in (node, *tree.ancestors(node)):
            if self._is_recorded(tree, file, up):
                return not isinstance(inner, cst.Arg) or self._only_calls(file, up, inner)
            if isinstance(up, cst.Call) and isinstance(inner, cst.Arg) and not is_partial(tree, up):
                return False
            inner = up
        return False

    def _only_calls(self, file: str, call: cst.CSTNode, argument: cst.Arg) -> bool:
        """Whether the user's function that gets another one as an argument only calls it, at places that ran."""
        assert isinstance(call, cst.Call)
        for function in functions_of(self._draft, file, call.func):
            names = parameters_of(function.node)
            own = isinstance(function.node, cst.FunctionDef) and function.node.name.value in _CONSTRUCTORS
            method = own or (isinstance(call.func, cst.Attribute) and names[:1] in (["self"], ["cls"]))
            given = arguments_by_name(call.args, tuple(names[1:] if method else names)) or {}
            name = next((name for name, one in given.items() if one is argument), None)
            tree = self._draft.tree(function.file)
            reads = [tree.parent(one) for one in variable_nodes(function.body) if one.value == name]
            if name is None or not all(
                isinstance(up, cst.Call) and self._is_recorded(tree, function.file, up) for up in reads
            ):
                return False
        return True

    def _is_recorded(self, tree: SyntaxTree, file: str, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call | cst.Attribute | cst.Name):
            return False
        end = tree.end(node)
        line = tree.line(end - 1)
        return (file, line, end - tree.offset(line, 0)) in self._recorded

    def _function_at(self, place: SourceLocation) -> cst.FunctionDef | None:
        inside = self._call_at(place)
        return self._draft.tree(place.file).around(inside, cst.FunctionDef) if inside is not None else None

    def _call_at(self, place: SourceLocation) -> cst.CSTNode | None:
        """Returns the call at the location of a stack frame, or the attribute if a property was read there."""
        try:
            tree = self._draft.tree(place.file)
        except CannotExpress:
            return None
        offset = tree.offset(place.end_line, place.end_column)
        properties = (one for one in tree.nodes(cst.Attribute) if tree.end(one) == offset)
        return tree.calls.get(offset) or next(properties, None)


def _reads_set_again(tree: SyntaxTree, function: cst.FunctionDef) -> bool:
    """Whether a function reads a variable that may be set, or whose object may be changed, between two calls.

    That is in a loop, in another function than the one of the variable, or below the function if it was set before.
    """
    codes = [function, *referenced_functions(tree, [function.body])]
    read = {one for code in codes for one in _read_from_outside(tree, code)}
    places: dict[str, list[tuple[cst.CSTNode, cst.CSTNode | None]]] = {}
    for place in _changed_places(tree):
        for name in variable_nodes(place):
            for one in read.intersection(tree.assignments(name)):
                home = one.scope.node if isinstance(one.scope, FunctionScope) else None
                places.setdefault(name.value, []).append((place, home))
                break
    return any(
        is_repeated(tree, place)
        or _function_around(tree, place) is not home
        or (tree.start(place) > tree.end(function) and (len(found) > 1 or not isinstance(place, cst.Name)))
        for found in places.values()
        for place, home in found
    )


def _function_around(tree: SyntaxTree, place: cst.CSTNode) -> cst.CSTNode | None:
    """Returns the function in which something is set; the name of a function is set where its definition is."""
    definition = tree.parent(place)
    if isinstance(definition, cst.FunctionDef) and definition.name is place:
        return tree.around(definition, cst.FunctionDef)
    return tree.around(place, cst.FunctionDef)


def _read_from_outside(tree: SyntaxTree, function: cst.FunctionDef) -> Iterator[Assignment]:
    """Yields what binds the variables that a function reads from outside of it, in this file."""
    outside: list[Scope] = []
    scope = tree.scope(function.body)
    while scope.parent is not scope:
        scope = scope.parent
        outside.append(scope)
    for name in variable_nodes(function.body):
        yield from (one for one in tree.assignments(name) if one.scope in outside)


def _changed_places(tree: SyntaxTree) -> list[cst.CSTNode]:
    """Returns what the code of a file assigns to, and what it calls methods on that change a list or a dictionary."""
    changing = [
        call.func.value
        for call in tree.nodes(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _CHANGING
    ]
    return [*bound_targets(tree.module), *changing]


def _may_object_change(tree: SyntaxTree, owner: cst.ClassDef, function: cst.FunctionDef) -> bool:
    """Whether a method reads attributes that are set outside of the constructor, or the file copies an object."""
    methods = {one.name.value: one for one in owner.body.body if isinstance(one, cst.FunctionDef)}
    read, waiting = set[str](), [function]
    while waiting:
        for attribute in nodes_within(waiting.pop().body, cst.Attribute):
            name = attribute.attr.value
            if name not in read and isinstance(attribute.value, cst.Name) and attribute.value.value == "self":
                read.add(name)
                waiting += [methods[name]] if name in methods else []
    inside = [methods[name] for name in _CONSTRUCTORS & methods.keys()]
    for place in _changed_places(tree):
        changed = {one.attr.value for one in nodes_within(place, cst.Attribute)} & read
        if changed and tree.around(place, cst.FunctionDef) not in inside:
            return True
    copying = (call for call in tree.nodes(cst.Call) if called_name(call) in _COPYING)
    return any(sum(one.keyword is None and not one.star for one in call.args) == 1 for call in copying)


def is_repeated(tree: SyntaxTree, node: cst.CSTNode) -> bool:
    """Whether a loop, a comprehension or a lambda around a node, in the same function, may run it more than once."""
    function = tree.around(node, cst.FunctionDef)
    around = takewhile(lambda one: one is not function, tree.ancestors(node))
    return any(isinstance(one, _REPEATING) for one in around)


_ONLY_SPEED = frozenset({"num_parallel_calls", "num_parallel_reads", "cycle_length", "block_length", "deterministic"})
"""Arguments that only affect speed; a rewrite sets cycle and block lengths only to the values already in effect."""


class SharedCall(CannotExpress):
    """The call to be changed also makes other datasets, or may."""


@dataclass(frozen=True)
class SharedCalls:
    """The calls of a pipeline, as it was captured, that serve other datasets too, as far as the pipelines show it."""

    pipeline: Pipeline
    other_pipelines: Sequence[Pipeline] = ()  # of the run; they reveal branches: a dataset that two pipelines read

    def count_datasets(self, node: Node) -> tuple[int, tuple[str, ...]]:
        """Returns how many datasets the call site of `node` serves, and the names of the other pipelines it serves."""
        names = tuple(self.other_pipelines[index].name for index in self.sharing_pipelines(node))
        return max(self._made_by_call(node), 1 + len(names)), names

    def _made_by_call(self, node: Node) -> int:
        """Returns how many datasets the call site of `node` has made, each of which several pipelines may read."""
        # A library may make several operators of a kind in one call, so the smallest count bounds the number of calls.
        return min((mine.shared for mine in self.pipeline if _share_call(node, mine)), default=node.shared)

    def sharing_pipelines(self, node: Node) -> tuple[int, ...]:
        """Returns the indices of the other pipelines with an operator made by the call of `node`."""
        others = enumerate(self.other_pipelines)
        return tuple(index for index, other in others if any(_share_call(node, theirs) for theirs in other))

    def affected_operators(self, edit: Edit, anchor: Node | None) -> list[Node]:
        """Returns the captured operators whose calls an edit changes or builds upon, without duplicates."""
        found = [anchor] if anchor is not None else []
        if isinstance(edit, SetOption):
            found.append(self.pipeline.output)
        elif not isinstance(edit, Insert) and edit.node in self.pipeline:
            found.append(self.pipeline[edit.node])
        return list({node.id: node for node in found}.values())

    def changes_others(self, rewrite: Rewrite) -> bool:
        """Whether the calls of a rewrite make other datasets too, and are changed for all: their elements stay."""
        for edit in rewrite.edits:
            after = getattr(edit, "after", None)
            anchor = self.pipeline[after] if after is not None and after in self.pipeline else None
            shared = any(self.sharing_pipelines(node) for node in self.affected_operators(edit, anchor))
            if not shared or not self._keeps_elements(edit, rewrite):
                return False
        return True

    def _keeps_elements(self, edit: Edit, rewrite: Rewrite) -> bool:
        """Whether every dataset of the site keeps its elements and their order."""
        if rewrite.safety > Safety.STATISTICAL:
            return False
        match edit:
            case Insert(op="prefetch"):
                return True
            case SetArgument(name="deterministic", value=False):
                return False
            case SetArgument(node=node, name="buffer_size"):
                return node in self.pipeline and self.pipeline[node].op == "prefetch"
            case SetArgument(node=node, name=name):
                return name in _ONLY_SPEED and self._may_all_run_in_parallel(node, rewrite)
            case ReplaceFunction(node=node, form=FunctionVariant.BRANCHING):
                return self._select_alike(node)
        return False

    def _may_all_run_in_parallel(self, node: str, rewrite: Rewrite) -> bool:
        """Whether other functions that the same call gets are of a kind that the rewrite allows, as far as it ran."""
        if node not in self.pipeline:
            return True
        mine = self.pipeline[node]
        functions = (one.function for other in self.other_pipelines for one in other if _share_call(mine, one))
        digest = mine.function.digest if mine.function is not None else ""
        draws = rewrite.safety is Safety.STATISTICAL
        return all(
            one is None or one.digest == digest or one.stateless or (draws and one.only_draws) for one in functions
        )

    def _select_alike(self, node: str) -> bool:
        """Whether all functions that the call of a map has traced may compute only the arrays that they select.

        Code that has not run may call it for another dataset, as it may call the function itself on other data.
        """
        mine, pipelines = self.pipeline[node], (self.pipeline, *self.other_pipelines)
        places = _branching_places(mine)
        sharing = (one for pipeline in pipelines for one in pipeline if _share_call(mine, one))
        return bool(places) and all(places <= _branching_places(one) for one in sharing)


@dataclass(frozen=True, kw_only=True)
class SharingRules(SharedCalls):
    """What may be written at such calls."""

    callers: Callers  # of the functions that make the datasets
    may_share: Callable[[Rewrite], bool] | None = None  # whether a rewrite may change all datasets of a shared call
    allow_all: bool = False  # whether a rewrite may change every dataset of a shared call, whatever it does
    others_unaffected: bool = False  # whether shared calls may change: the change is limited to this dataset afterwards
    keep_functions: bool = False  # whether the functions of maps must not change: unchanged code calls them too
    switches: Mapping[str, str] = field(default_factory=dict)
    """By the key of a rewrite, the parameter by which another dataset has the same at the same calls."""
    validated_in: str = ""  # the file in which `fit` gets the dataset as `validation_data`; empty if none does

    def exclusive_depth(self, node: Node) -> int:
        """Returns how many frames out from the operator's own call the first call is that makes only this dataset.

        Raises:
            CannotExpress: other datasets are made through all of these calls, or by running them again.
        """
        level = self.callers.exclusive_depth(node)
        if self._made_by_call(node) > 1 + len(node.other_calls) and self.callers.builds_several(node):
            raise CannotExpress(
                f"The calls on the stack of {node.location} run more than once and make several datasets."
            )
        alike = [
            other.name
            for other in self.other_pipelines
            if any(_share_call(node, one) and one.calls[:level] == node.calls[:level] for one in other)
        ]
        if alike:
            raise CannotExpress(f"The calls on the stack of {node.location} also make {', '.join(alike)}.")
        return level

    def sharing_note(
        self, rewrite: Rewrite, edit: Edit, *, anchor: Node | None, exclusive: Collection[str] = ()
    ) -> str:
        """Returns a note for the reader if the edit changes several datasets; empty if it changes one.

        Args:
            anchor: the captured operator whose call is changed or built upon.
            exclusive: operators whose calls earlier edits have put where only this dataset is made.

        Raises:
            SharedCall: the edit must not change the other datasets.
            CannotExpress: another dataset calls the function of the edit at another call site.
        """
        if isinstance(edit, ReplaceFunction) and edit.form in GRAPH_EDITS:
            self._refuse_shared_function(edit.node)
        if self.others_unaffected:
            return ""
        for node in self.affected_operators(edit, anchor):
            if node.id in exclusive:
                continue
            count, names = self.count_datasets(node)
            with_names = f" ({', '.join(dict.fromkeys(names))} too)" if names else ""
            if not self._keeps_elements(edit, rewrite) and not self.allow_all:
                self._refuse_shared(node, count, with_names)
            elif count > 1:
                return f"The call at {node.location} makes {count} datasets{with_names}; the patch changes all of them."
        return ""

    def is_unshared(self, node: Node) -> bool:
        """Whether the call of an operator makes only this dataset, and no other code can run it."""
        try:
            self._refuse_shared(node, self.count_datasets(node)[0], "")
        except SharedCall:
            return False
        return True

    def _refuse_shared(self, node: Node, count: int, with_names: str) -> None:
        """Refuses to change a call that makes another dataset, or may make one later in the script."""
        mine = sum(one.op == node.op and _share_call(node, one) for one in self.pipeline)
        if mine == count > 1:  # such as in a loop
            raise SharedCall(
                f"The call at {node.location} makes {count} operators of this pipeline, which would all change."
            )
        if (use := self.callers.unrecorded_builder_reference(node)) is not None:
            raise SharedCall(f"The function around the call at {node.location} is also referenced at {use.location}.")
        try:
            alone = self.exclusive_depth(node) == 0
        except CannotExpress:
            alone = False
        if not alone:
            raise SharedCall(f"The call at {node.location} is shared by {count} datasets{with_names}.")

    def _refuse_shared_function(self, node: str) -> None:
        """Refuses to change a function that other datasets, whose elements were not examined, call at other sites."""
        mine = self.pipeline[node]
        name = mine.function.name if mine.function is not None else ""
        for other in self.other_pipelines:
            for other_node in other:
                same = other_node.function is not None and other_node.function.name == name != "<lambda>"
                if same and not _share_call(mine, other_node):
                    raise CannotExpress(f"The function {name} is also called for the dataset {other.name}.")


def _branching_places(node: Node) -> set[tuple[str, int]]:
    selections = node.function.selections if node.function is not None else ()
    return {(one.file, one.line) for one in selections if not one.why_not}


def _share_call(one: Node, other: Node) -> bool:
    """Whether two operators were made at one call site."""
    a, b = one.location, other.location
    if a is None or b is None:
        return False
    return (a.file, a.end_line, a.end_column, a.method) == (b.file, b.end_line, b.end_column, b.method)


def reads_same_datasets(pipeline: Pipeline, other: Pipeline) -> bool:
    """Whether `other` reads the very datasets that calls of a helper have made for `pipeline`, not others like them.

    So it is where each call stack has made one dataset, and both have the same stack; and so is all that such a dataset
    is made of, as by a library call that makes training and validation at once. Without a helper, `other` must read all
    that `pipeline` does: a preview of another part of the data tells which calls make that part, too.
    """
    shared = [(mine, theirs) for mine in pipeline for theirs in other if _share_call(mine, theirs)]
    one, two = set[str](), set[str]()  # what surely is the same in both
    for mine, theirs in shared:
        alone = mine.calls not in mine.other_calls and mine.shared == 1 + len(mine.other_calls)
        if alone and mine.calls == theirs.calls:
            one |= {mine.id, *(above.id for above in pipeline.upstream(mine.id))}
            two |= {theirs.id, *(above.id for above in other.upstream(theirs.id))}
    reads_all = any(mine.other_calls for mine, _ in shared) or len(shared) == len(pipeline.nodes)
    return reads_all and all(mine.id in one and theirs.id in two for mine, theirs in shared)


def _operators_of_call(draft: Draft, node: str, current: Pipeline) -> tuple[str, ...]:
    """Returns the operators of `node`'s kind that its call makes, itself included; a library call also makes others."""
    op = current[node].op
    return tuple(name for name in draft.built_by_same_call(node) if name in current and current[name].op == op)


def refuse_partial_change(draft: Draft, node: str, current: Pipeline) -> None:
    """Refuses to remove or move one of several operators that a call makes.

    Raises:
        CannotExpress: the call makes more than this one.
    """
    count = len(_operators_of_call(draft, node, current))
    if count > 1:
        raise CannotExpress(
            f"{_call_description(node, current)} makes {count} operators of this pipeline, which would all change."
        )


def excess_change(draft: Draft, rewrite: Rewrite, current: Pipeline) -> str:
    """Returns why a rewrite that was written into `draft` changes more than the plan does; '' if it does not.

    Args:
        current: the pipeline after all rewrites that were written.
    """
    for edit in rewrite.edits:
        if isinstance(edit, SetArgument) and edit.node in current:
            node, changed = edit.node, _operators_of_call(draft, edit.node, current)
            if (field := read_config_field(current, edit)) is not None:
                changed = tuple(one for one in changed if read_config_field(current, replace(edit, node=one)) == field)
            value = current[node].argument(edit.name)
            planned = [name for name in changed if current[name].argument(edit.name) == value]
            what = f"sets this {edit.name} for"
        elif isinstance(edit, Insert) and edit.after in current and edit.id in draft.inserted:
            node, changed = edit.after, _operators_of_call(draft, edit.after, current)
            planned = [name for name, text in draft.inserted.items() if text == draft.inserted[edit.id]]
            what = f"inserts {edit.op} after"
        else:
            continue
        if len(planned) < len(changed):
            made = f"{_call_description(node, current)} makes {len(changed)} operators of this pipeline"
            return f"{made}, but the plan {what} only {len(planned)} of them."
    return ""


def _call_description(node: str, current: Pipeline) -> str:
    location = current[node].location
    return f"The call at {location}" if location is not None else f"The call of {current[node].title}"


@dataclass(frozen=True)
class JointRewrites:
    """A rewrite that is to be written, and those that the same change of the source makes of other operators."""

    others: tuple[Rewrite, ...]
    counterparts: tuple[Mapping[str, str], ...]  # per rewrite: its operators, by those of the first one

    @property
    def edits(self) -> list[Edit]:
        return [edit for rewrite in self.others for edit in rewrite.edits]

    def hide_others(self, draft: Draft) -> Draft:
        """Returns the draft in which the calls make the operators of the first rewrite only."""
        hidden = {mine for ids in self.counterparts for first, mine in ids.items() if mine != first}
        return replace(draft, sites={node: site for node, site in draft.sites.items() if node not in hidden})

    def count_as_one(self, pipeline: Pipeline) -> Pipeline:
        """Returns the captured pipeline in which these operators are made by calls that make nothing else of it."""
        nodes = []
        for node in pipeline:
            ids = [ids[node.id] for ids in self.counterparts if ids.get(node.id, node.id) != node.id]
            stacks = {pipeline[one].calls for one in ids if one in pipeline}
            others = tuple(stack for stack in node.other_calls if stack not in stacks)
            nodes.append(replace(node, shared=max(1, node.shared - len(ids)), other_calls=others))
        return replace(pipeline, nodes=tuple(nodes))

    def show_others(self, draft: Draft) -> Draft:
        """Returns the draft, after the first rewrite was written, in which the others are written, too."""
        for ids in self.counterparts:
            beside = {
                ids[node]: (ids.get(anchor, anchor), level)
                for node, (anchor, level) in draft.moved_beside.items()
                if node in ids
            }
            draft = replace(
                draft,
                sites=_copied(draft.sites, ids),
                original_calls=_copied(draft.original_calls, ids),
                inserted=_copied(draft.inserted, ids),
                moved_beside={**draft.moved_beside, **beside},
                exclusive=draft.exclusive | {ids[node] for node in draft.exclusive if node in ids},
            )
        return draft


def _copied(values: Mapping[str, _T], ids: Mapping[str, str]) -> dict[str, _T]:
    """Returns the values by operator, in which those of `ids` have the values of their counterparts."""
    return {**values, **{mine: values[first] for first, mine in ids.items() if first in values}}


def find_joint_rewrites(
    draft: Draft, rewrite: Rewrite, rest: Sequence[Rewrite], current: Pipeline
) -> JointRewrites | None:
    """Returns the rewrites in `rest` that do the same as `rewrite` to the other operators of the calls it changes.

    Returns:
        None if there are none, or if the calls make further operators that would not change.
    """
    alike = [(other, ids) for other in rest if (ids := _counterparts(draft, rewrite, other)) is not None]
    joint = JointRewrites(tuple(other for other, _ in alike), tuple(ids for _, ids in alike))
    for node in joint.counterparts[0] if alike else ():
        together = {node, *(ids[node] for ids in joint.counterparts)}
        if node in current and not together.issuperset(_operators_of_call(draft, node, current)):
            return None
    return joint if alike else None


def _counterparts(draft: Draft, first: Rewrite, other: Rewrite) -> dict[str, str] | None:
    """Returns the operators of `other` by those of `first`; None if it does not do the same at the same calls."""
    if (first.rule, first.safety, len(first.edits)) != (other.rule, other.safety, len(other.edits)):
        return None
    both = list(zip(first.edits, other.edits, strict=True))
    if any(type(one) is not type(two) or len(_operators(one)) != len(_operators(two)) for one, two in both):
        return None
    pairs = [pair for one, two in both for pair in zip(_operators(one), _operators(two), strict=True)]
    ids = dict(pairs)
    if any(ids[one] != two or draft.sites.get(one) != draft.sites.get(two) for one, two in pairs):
        return None
    if any(_without_digests(renamed(one, ids)) != _without_digests(two) for one, two in both):
        return None
    return ids if any(one != two and one in draft.sites for one, two in pairs) else None


def _operators(edit: Edit) -> tuple[str, ...]:
    """Returns the operators that an edit names, and those that it makes."""
    match edit:
        case Insert(id=name) | SplitFunction(head=name) | ReplaceSource(gather=name):
            return (*named_operators(edit), name)
    return named_operators(edit)


def _without_digests(edit: Edit) -> Edit:
    """Returns an edit without the digests of functions: those are traced once per operator, from the same source."""
    match edit:
        case ReplaceFunction() | ReplaceSource():
            return replace(edit, digest="")
        case SplitFunction(cut=cut):
            return replace(edit, cut=replace(cut, head="", tail=""))
    return edit
