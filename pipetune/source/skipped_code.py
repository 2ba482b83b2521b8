"""Finds code above a cache that the run has skipped: where it draws random numbers, the cache would keep its draws."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import CONSTRUCTORS, METHODS, TAKES_FUNCTION, arguments_by_name
from pipetune.source.chain import chain_root
from pipetune.source.dataset_flow import recorded_call_ends
from pipetune.source.draft import CallSite, Draft, called_name
from pipetune.source.statements import (
    bound_names,
    is_builtin_without_effects,
    is_dotted,
    negate,
    parse_condition,
    variable_names,
)
from pipetune.source.syntax_tree import SyntaxTree, nodes_within

_DRAWS_NOTHING = frozenset(METHODS) - TAKES_FUNCTION - {"shuffle"} | {"Options"}
_JOINING = frozenset({"choose_from_datasets", "concatenate", "sample_from_datasets", "zip"})


def skipped_conditions(draft: Draft, tree: SyntaxTree, value: cst.BaseExpression) -> list[str]:
    """Returns the conditions under which all code above a dataset that was skipped, and may draw, is skipped again.

    That is the code in the function around the expression which the dataset comes from.

    Raises:
        CannotExpress: it is unknown which branch of such code was skipped.
    """
    names = set() if isinstance(value, cst.Call) else set(variable_names(value))
    way = _WayUp(tree, recorded_call_ends(draft, tree), names)
    way.reach(value)
    inner: cst.CSTNode = value
    for outer in takewhile(lambda one: not isinstance(one, cst.FunctionDef), tree.ancestors(value)):
        body = getattr(outer, "body", None)
        if isinstance(body, list | tuple):
            way.go_up(list(takewhile(lambda one: one is not inner, body)))  # noqa: B023
        inner = outer
    return list(dict.fromkeys(way.conditions))


def refuse_skipped_elsewhere(draft: Draft, stack: Sequence[CallSite], above: Iterable[str]) -> None:
    """Refuses a cache at a call if code that was skipped, and may make draws, is in another function above it.

    Args:
        stack: the call, and those around it, innermost first.
        above: the operators above the cache.

    Raises:
        CannotExpress: there is such code.
    """
    refused = CannotExpress("A branch that was skipped in another function might draw what a cache would then keep.")
    for site in stack[1:]:
        call = draft.tree(site.file).calls.get(site.end) if site.end >= 0 else None
        if call is not None and skipped_conditions(draft, draft.tree(site.file), call):
            raise refused
    mine = [_function_around(draft, site) for site in stack]
    stacks = [(draft.sites[one], *draft.calls_around(one)) for one in above if one in draft.sites]
    for site, caller in dict.fromkeys(pair for calls in stacks for pair in zip_longest(calls, calls[1:])):
        function = _function_around(draft, site)
        if function is None or any(function is one for one in mine):
            continue
        call = draft.tree(caller.file).calls.get(caller.end) if caller is not None else None
        if not all(_is_decided(call, function, text) for text in _skipped_within(draft, site.file, function)):
            raise refused


def _function_around(draft: Draft, site: CallSite) -> cst.FunctionDef | None:
    call = draft.tree(site.file).calls.get(site.end) if site.end >= 0 else None
    return draft.tree(site.file).around(call, cst.FunctionDef) if call is not None else None


def _is_decided(call: cst.Call | None, function: cst.FunctionDef, condition: str) -> bool:
    """Whether a condition in a function has one value in every run: it reads what the call gives as literals."""
    parameters = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
    defaults = {one.name.value: one.default for one in parameters}
    names = tuple(name for name in defaults if name not in ("self", "cls"))
    given = arguments_by_name(call.args, names) if call is not None else None
    read = set(variable_names(parse_condition(condition)))
    if given is None or read & bound_names(function.body):
        return False
    values = [given[name].value if name in given else defaults.get(name) for name in read]
    return all(
        isinstance(one, cst.SimpleString | cst.Integer | cst.Float)
        or (isinstance(one, cst.Name) and one.value in ("True", "False", "None"))
        for one in values
    )


def _skipped_within(draft: Draft, file: str, function: cst.FunctionDef) -> list[str]:
    """Returns the conditions of code on the way to what a function returns that was skipped, and may make draws."""
    tree = draft.tree(file)
    returned = list(nodes_within(function.body, cst.Return, without=(cst.FunctionDef, cst.Lambda)))
    names = {"self", *(name for one in returned for name in variable_names(one))}
    way = _WayUp(tree, recorded_call_ends(draft, tree), names)
    for one in returned:
        way.reach(one)
    way.go_up(function.body.body)
    return way.conditions


@dataclass
class _WayUp:
    """The code that a dataset comes from, followed upwards."""

    tree: SyntaxTree
    known: set[int]  # where recorded calls end
    names: set[str]  # variables that hold the dataset, or another one that it is made from
    conditions: list[str] = field(default_factory=list)  # under which skipped code that may draw is skipped again

    def go_up(self, lines: Sequence[cst.CSTNode]) -> None:
        for line in reversed(lines):
            if bound_names(line) & self.names:
                self.reach(line)

    def reach(self, code: cst.CSTNode) -> None:
        """Adds what a piece of code reads datasets from, and the conditions of what it skipped."""
        if isinstance(code, cst.FunctionDef | cst.ClassDef):
            return
        for call in nodes_within(code, cst.Call):
            if self._in_plain_argument(call, code):
                continue
            root, name = chain_root(self.tree, call), called_name(call)
            self.names |= set(variable_names(root)) if is_dotted(root) else set()
            helper = name not in METHODS and name not in CONSTRUCTORS and self.tree.end(call) in self.known
            if helper or name in _JOINING:
                self.names |= {one for argument in call.args for one in variable_names(argument.value)}
        for assignment in nodes_within(code, cst.Assign):
            if not isinstance(assignment.value, cst.Call):
                self.names |= set(variable_names(assignment.value))
        match code:
            case cst.If():
                self._add_branch(code)
            case cst.With(body=suite):
                self.go_up(suite.body)
            case cst.BaseCompoundStatement():
                if self._may_draw(code, among=frozenset(METHODS)):
                    raise CannotExpress("It is unknown which code of a loop above the cache was skipped.")
            case _:
                for choice in nodes_within(code, cst.IfExp, without=(cst.Lambda,)):
                    self._add_choice(choice)

    def _in_plain_argument(self, call: cst.Call, code: cst.CSTNode) -> bool:
        """Whether a call in `code` is in an argument of a method that makes no dataset from several."""
        around = takewhile(lambda one: one is not code, self.tree.ancestors(call)) if call is not code else ()
        holders = [self.tree.parent(one) for one in around if isinstance(one, cst.Arg)]
        names = {called_name(one) for one in holders if isinstance(one, cst.Call)}
        return bool(names & (METHODS.keys() | CONSTRUCTORS.keys()) - _JOINING)

    def _add_branch(self, branch: cst.If) -> None:
        ran, test, orelse = self._ran(branch.body), self.tree.text(branch.test), branch.orelse
        if isinstance(orelse, cst.Else) and ran is self._ran(orelse.body) and self._may_draw(branch):
            raise CannotExpress("There is an `if` with several branches above, and it is unknown which of them ran.")
        if not ran and self._may_draw(branch.body):
            self.conditions.append(negate(test))
        if ran and orelse is not None and self._may_draw(orelse):
            self.conditions.append(test)
        if ran:
            self.go_up(branch.body.body)
        elif isinstance(orelse, cst.If):
            self._add_branch(orelse)
        elif orelse is not None:
            self.go_up(orelse.body.body)

    def _add_choice(self, choice: cst.IfExp) -> None:
        test = self.tree.text(choice.test)
        for skipped, other, condition in (
            (choice.body, choice.orelse, negate(test)),
            (choice.orelse, choice.body, test),
        ):
            kept = isinstance(other, cst.Name) and other.value in variable_names(skipped)
            if (kept or self._ran(other)) and not self._ran(skipped) and self._may_draw(skipped):
                self.conditions.append(condition)

    def _ran(self, code: cst.CSTNode) -> bool:
        return any(self.tree.start(code) < end <= self.tree.end(code) for end in self.known)

    def _may_draw(self, code: cst.CSTNode, *, among: Collection[str] | None = None) -> bool:
        """Whether a piece of code has calls that were not recorded, and may make draws; `among` limits their names."""
        calls = [one for one in nodes_within(code, cst.Call) if not is_builtin_without_effects(self.tree, one)]
        skipped = [one for one in calls if self.tree.end(one) not in self.known]
        names = [called_name(one) if isinstance(one.func, cst.Attribute) else "" for one in skipped]
        return any(name not in _DRAWS_NOTHING and (among is None or name in among) for name in names)
