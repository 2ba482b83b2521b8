"""Finds code above a cache that the run has skipped: where it draws random numbers, the cache would keep its draws.
Which code runs is decided by expressions whose values are the same in every run: literals, by way of names and
arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import libcst as cst
from libcst.metadata import Assignment, GlobalScope, ImportAssignment

from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import CONSTRUCTORS, METHODS, TAKES_FUNCTION, arguments_by_name, receiver_of
from pipetune.source.chain import chain_root
from pipetune.source.dataset_flow import recorded_call_ends
from pipetune.source.draft import CallSite, Draft, called_name
from pipetune.source.map_functions import given_function, parameters_of
from pipetune.source.statements import (
    bound_names,
    bound_targets,
    ends_function,
    is_builtin_without_effects,
    is_dotted,
    names_read,
    negate,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree, consists_of, nodes_within
from pipetune.source.user_functions import (
    UserFunction,
    class_of_method,
    exposing_decorators,
    functions_of,
    imported_module,
    imported_variable,
    is_library_attribute,
    is_partial,
    is_set_elsewhere,
)

MOST_CALLS = 12
"""Calls, one within another, that are followed."""

Place = tuple[str, cst.CSTNode, Sequence[CallSite]]
"""The file of a piece of code, the code, and the calls around the function that it is in, innermost first."""


def is_decided(draft: Draft, file: str, value: cst.BaseExpression, stack: Sequence[CallSite]) -> bool:
    """Whether an expression has one value in every run: all names in it stand for literals, or one side settles it.

    Args:
        stack: the calls around the function that it is in, innermost first.
    """
    if isinstance(value, cst.BooleanOperation):
        sides = (_known_value(draft, (file, side, stack)) for side in (value.left, value.right))
        if any(side is not None and bool(side.value) is isinstance(value.operator, cst.Or) for side in sides):
            return True
    return all(_known_value(draft, (file, name, stack)) is not None for name in variable_nodes(value))


@dataclass(frozen=True)
class _Known:
    """The value of an expression."""

    value: object


_PLAIN = (
    cst.SimpleString | cst.Integer | cst.Float | cst.Name | cst.UnaryOperation | cst.BooleanOperation | cst.Comparison
    | cst.Tuple | cst.List
)  # fmt: skip


def _known_value(draft: Draft, place: Place, steps: int = MOST_CALLS) -> _Known | None:
    """Returns the value of an expression that compares literals, by way of names and arguments; None for others."""
    file, value, stack = place
    if not steps or not consists_of(value, _PLAIN):
        return None
    known: dict[str, object] = {}
    for name in variable_nodes(value):
        if name.value not in ("True", "False", "None"):
            behind = value_behind(draft, file, name, stack)
            found = _known_value(draft, behind, steps - 1) if behind is not None else None
            if found is None or _may_be_set_elsewhere(draft, file, name):
                return None
            known[name.value] = found.value
    try:
        return _Known(eval(f"({draft.tree(file).text(value)})", {"__builtins__": {}}, known))
    except Exception:
        return None


def value_behind(draft: Draft, file: str, name: cst.Name, stack: Sequence[CallSite]) -> Place | None:
    """Returns the only value that a name has where it is read: of a variable, or what a call gives to a parameter."""
    tree = draft.tree(file)
    assignment = tree.only_assignment(name)
    if isinstance(assignment, ImportAssignment):
        imported = imported_variable(draft, file, name)
        return value_behind(draft, *imported, ()) if imported is not None else None
    if not isinstance(assignment, Assignment):
        return None
    made = assignment.node
    if isinstance(made, cst.Param):
        function = tree.around(made, cst.FunctionDef, cst.Lambda)
        if not isinstance(function, cst.FunctionDef):
            return None
        for depth, site in enumerate(stack):
            given = _arguments_of(draft, site, file, function, entered=not depth)
            if given is not None:
                if name.value in given:
                    return site.file, given[name.value].value, stack[depth + 1 :]
                return (file, made.default, ()) if made.default is not None else None
        return None
    around = tree.parent(made)
    value = around.value if isinstance(around, cst.AnnAssign) else tree.assigned_value(assignment)
    return (file, value, stack) if value is not None else None


def _may_be_set_elsewhere(draft: Draft, file: str, name: cst.Name) -> bool:
    """Whether a variable of a file, or one that it imports, may be set by code that does not just name it."""
    file, name = imported_variable(draft, file, name) or (file, name)
    assignment = draft.tree(file).only_assignment(name)
    of_file = assignment is not None and isinstance(assignment.scope, GlobalScope)
    return of_file and is_set_elsewhere(draft, file, name.value)


def _arguments_of(
    draft: Draft, site: CallSite, file: str, function: cst.FunctionDef, *, entered: bool
) -> dict[str, cst.Arg] | None:
    """Returns what a call gives to a function, by parameter; None if it is no plain call of this function.

    Of a function that is given to a dataset's method, elements are the arguments: only those of `partial` are known.

    Args:
        file: of the function.
        entered: whether the function was running during this call, and no other of the user's between them: it then is
            the method by whose name it is called, of whatever object.
    """
    tree = draft.tree(site.file)
    call = tree.calls.get(site.end) if site.end >= 0 else None
    if call is None or any(exposing_decorators(function)):
        return None
    called, arguments = call.func, call.args
    if called_name(call) in TAKES_FUNCTION and (given := given_function(tree, call)) is not None:
        called, arguments = given, ()
    if isinstance(called, cst.Call) and is_partial(tree, called):
        call = called
    if is_partial(tree, call):
        called, arguments = call.args[0].value, call.args[1:]
    found = functions_of(draft, site.file, called)
    names = parameters_of(function)
    own = class_of_method(draft.tree(file), function) is not None and names[:1] in (["self"], ["cls"])
    named = own and entered and isinstance(called, cst.Attribute) and called.attr.value == function.name.value
    plainly = len(found) == 1 and found[0].node is function and found[0].reference is called
    if not (plainly or (named and not found)):
        return None
    return arguments_by_name(arguments, tuple(names[1:] if own else names))


def truth(draft: Draft, file: str, test: cst.BaseExpression, stack: Sequence[CallSite]) -> bool | None:
    """Returns whether a condition is met; None unless literals decide it."""
    known = _known_value(draft, (file, test, stack))
    return bool(known.value) if known is not None else None


_DRAWS_NOTHING = frozenset(METHODS) - TAKES_FUNCTION - {"shuffle"} | {"Options"}
_JOINING = frozenset({"choose_from_datasets", "concatenate", "sample_from_datasets", "zip"})
_ADDING = frozenset({"append", "extend", "insert"})
_ELSEWHERE = "A branch that was skipped in another function might draw what a cache would then keep."


def skipped_conditions(
    draft: Draft,
    file: str,
    value: cst.BaseExpression,
    *,
    stack: Sequence[CallSite] = (),
    undecided: bool = False,
) -> list[str]:
    """Returns the conditions under which all code above a dataset that was skipped, and may draw, is skipped again.

    That is the code in the function around the expression which the dataset comes from.

    Args:
        file: of the expression.
        stack: the calls around that function, innermost first.
        undecided: whether conditions that literals decide are left out.

    Raises:
        CannotExpress: it is unknown which branch of such code was skipped.
    """
    names, tree = set() if isinstance(value, cst.Call) else set(variable_names(value)), draft.tree(file)
    way = _WayUp(draft, file, tree, recorded_call_ends(draft, tree), names, stack, undecided)
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
    for depth, site in enumerate(stack[1:], 2):
        call = draft.tree(site.file).calls.get(site.end) if site.end >= 0 else None
        if call is not None and skipped_conditions(draft, site.file, call, stack=stack[depth:], undecided=True):
            raise CannotExpress(_ELSEWHERE)
    mine = [_function_around(draft, site) for site in stack]
    stacks = [(draft.sites[one], *draft.calls_around(one)) for one in above if one in draft.sites]
    for site, *around in dict.fromkeys(calls[depth:] for calls in stacks for depth in range(len(calls))):
        function = _function_around(draft, site)
        if function is not None and function not in mine and _skipped_within(draft, site.file, function, around):
            raise CannotExpress(_ELSEWHERE)


def _function_around(draft: Draft, site: CallSite) -> cst.FunctionDef | None:
    call = draft.tree(site.file).calls.get(site.end) if site.end >= 0 else None
    return draft.tree(site.file).around(call, cst.FunctionDef) if call is not None else None


def _skipped_within(draft: Draft, file: str, function: cst.FunctionDef, stack: Sequence[CallSite]) -> list[str]:
    """Returns the conditions of code on the way to what a function returns that was skipped, and may make draws.

    Conditions that literals decide are left out. `stack` has the calls around the function, innermost first.
    """
    tree = draft.tree(file)
    returned = list(nodes_within(function.body, cst.Return, without=(cst.FunctionDef, cst.Lambda)))
    names = {"self", *(name for one in returned for name in variable_names(one))}
    way = _WayUp(draft, file, tree, recorded_call_ends(draft, tree), names, stack, undecided=True)
    for one in returned:
        way.reach(one)
    way.go_up(function.body.body)
    return way.conditions


@dataclass
class _WayUp:
    """The code that a dataset comes from, followed upwards."""

    draft: Draft
    file: str
    tree: SyntaxTree
    known: set[int]  # where recorded calls end
    names: set[str]  # variables that hold the dataset, or another one that it is made from
    stack: Sequence[CallSite]  # the calls around the function of this code
    undecided: bool  # whether conditions that literals decide are left out
    conditions: list[str] = field(default_factory=list)  # under which skipped code that may draw is skipped again
    datasets: set[str] = field(default_factory=set)  # variables and attributes that certainly hold a dataset

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
            if is_dotted(root) and name in METHODS and self.tree.end(call) in self.known:
                self.datasets.add(self.tree.text(root))
            if self._is_helper(call) or name in _JOINING:
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
                for value in self._dataset_values(code):
                    self._follow_idle_helpers(value)

    def _is_helper(self, call: cst.Call) -> bool:
        """Whether a call has made operators, and is no method that makes one."""
        end, name = self.tree.end(call), called_name(call)
        around = any(site.end == end for stack in self.draft.call_stacks.values() for site in stack)
        return end in self.known and (around or (name not in METHODS and name not in CONSTRUCTORS))

    def _dataset_values(self, code: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yields the expressions in a simple statement whose value is certainly a dataset on the way."""
        if isinstance(code, cst.BaseExpression):
            yield code
        kinds: tuple[type[cst.Assign | cst.AnnAssign | cst.Return], ...] = (cst.Assign, cst.AnnAssign, cst.Return)
        for one in nodes_within(code, *kinds):
            targets = {self.tree.text(target) for target in bound_targets(one)}
            if one.value is not None and (isinstance(one, cst.Return) or targets & self.datasets):
                yield one.value

    def _follow_idle_helpers(self, value: cst.BaseExpression) -> None:
        """Follows a dataset through calls that were not recorded: a helper that has added nothing to it in this run."""
        match value:
            case cst.NamedExpr(value=inner):
                self._follow_idle_helpers(inner)
            case cst.IfExp(body=body, orelse=orelse):
                ways = [body, orelse]
                taken = [one for one in ways if self._ran(one) or not isinstance(one, cst.Call)]
                for one in taken or ways:
                    self._follow_idle_helpers(one)
            case cst.Name() | cst.Attribute() if is_dotted(value):
                self.names |= set(variable_names(value))
                self.datasets.add(self.tree.text(value))
            case cst.Call():
                name, receiver = called_name(value), receiver_of(self.tree, value)
                method = isinstance(value.func, cst.Attribute) and name in METHODS and name != "apply"
                idle = self.tree.end(value) not in self.known and not method and name not in CONSTRUCTORS
                if idle:
                    self._look_into(value)
                given = [one.value for one in value.args] if idle else []
                known = [one for one in given if self._ran(one) or self.tree.text(one) in self.datasets]
                for handed in (receiver, *(known or given[:1])):
                    if isinstance(handed, cst.Call | cst.Name | cst.Attribute):
                        self._follow_idle_helpers(handed)

    def _look_into(self, helper: cst.Call) -> None:
        """Refuses if a helper that has added nothing to a dataset has skipped code that may make draws."""
        called = helper.args[0].value if called_name(helper) == "apply" and helper.args else helper.func
        called = self.tree.assigned_value(self.tree.only_assignment(called)) or called
        if isinstance(called, cst.Lambda):
            return self.reach(called.body)
        if len(self.stack) >= MOST_CALLS:
            raise CannotExpress(_ELSEWHERE)
        stack = (CallSite(self.file, self.tree.end(helper)), *self.stack)
        for function in functions_of(self.draft, self.file, called):
            node = function.node
            if isinstance(node, cst.FunctionDef) and _skipped_within(self.draft, function.file, node, stack):
                raise CannotExpress(_ELSEWHERE)

    def _in_plain_argument(self, call: cst.Call, code: cst.CSTNode) -> bool:
        """Whether a call in `code` is in an argument of a method that makes no dataset from several."""
        around = takewhile(lambda one: one is not code, self.tree.ancestors(call)) if call is not code else ()
        holders = [self.tree.parent(one) for one in around if isinstance(one, cst.Arg)]
        calls = [one for one in holders if isinstance(one, cst.Call) and not self._is_helper(one)]
        return any(called_name(one) in (METHODS.keys() | CONSTRUCTORS.keys()) - _JOINING for one in calls)

    def _add_branch(self, branch: cst.If) -> None:
        ran, test, orelse = self._ran(branch.body), self.tree.text(branch.test), branch.orelse
        if isinstance(orelse, cst.Else) and ran is self._ran(orelse.body) and self._may_draw(branch):
            raise CannotExpress("There is an `if` with several branches above, and it is unknown which of them ran.")
        if not ran and self._may_draw(branch.body):
            self._add_condition(branch.test, negate(test))
        if ran and orelse is not None and self._may_draw(orelse):
            self._add_condition(branch.test, test)
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
                self._add_condition(choice.test, condition)

    def _add_condition(self, test: cst.BaseExpression, condition: str) -> None:
        if not (self.undecided and is_decided(self.draft, self.file, test, self.stack)):
            self.conditions.append(condition)

    def _ran(self, code: cst.CSTNode) -> bool:
        return any(self.tree.start(code) < end <= self.tree.end(code) for end in self.known)

    def _may_draw(self, code: cst.CSTNode, *, among: Collection[str] | None = None) -> bool:
        """Whether a piece of code has calls that were not recorded, and may make draws; `among` limits their names."""
        calls = [one for one in nodes_within(code, cst.Call) if not is_builtin_without_effects(self.tree, one)]
        skipped = [one for one in calls if self.tree.end(one) not in self.known]
        names = [called_name(one) if isinstance(one.func, cst.Attribute) else "" for one in skipped]
        return any(name not in _DRAWS_NOTHING and (among is None or name in among) for name in names)


def may_draw_in_another_run(draft: Draft, node: str) -> bool:
    """Whether the function of an operator, which draws nothing, has code that this run skipped, with draws in it.

    That is code below a condition in the function, or in one that it refers to, unless literals decide the condition.
    """
    tree, call = draft.find(node)
    function, site = given_function(tree, call), draft.sites[node]
    if function is None:
        return False
    return _Draws(draft).are_skipped((site.file, function, (site, *draft.calls_around(node))), ())


@dataclass(frozen=True)
class _Draws:
    """Finds draws in code and in what it refers to; remembers what names refer to."""

    draft: Draft
    functions: dict[cst.CSTNode, list[UserFunction]] = field(default_factory=dict)  # by the name that refers to them
    names: dict[cst.CSTNode, list[cst.Name | cst.Attribute]] = field(default_factory=dict)  # by the code that has them
    drawing: dict[cst.CSTNode, bool] = field(default_factory=dict)  # code that was searched
    making: dict[cst.CSTNode, list[cst.CSTNode]] = field(default_factory=dict)  # what makes a variable, by its name
    searched: set[tuple[cst.CSTNode, tuple[CallSite, ...]]] = field(default_factory=set)  # without draws that it skips

    def are_skipped(self, place: Place, above: tuple[cst.CSTNode, ...]) -> bool:
        """Whether a piece of code has draws that it skipped; `above` is the code that refers to it.

        Statements that assign one variable after the other refer to each other on as many ways as there are orders of
        them: each is searched once.
        """
        _, code, stack = place
        searched = code, tuple(stack)
        if searched in self.searched:
            return False
        self.searched.add(searched)
        above = (*above, code)
        for name in self._names_in(code):
            behind = [one for one in self._code_behind(name, place) if one[1] not in above]
            if not _names_draw(name) and not any(map(self._in_code, behind)):
                continue
            runs = _runs(self.draft, name, place)
            if runs is None or len(stack) > MOST_CALLS:
                return True
            if runs and any(self.are_skipped(one, above) for one in behind):
                return True
        return False

    def _in_code(self, place: Place) -> bool:
        """Whether a piece of code, or one that it refers to, names something random."""
        seen: set[cst.CSTNode] = set()
        waiting = [place]
        while waiting and place[1] not in self.drawing:
            here = waiting.pop()
            if here[1] not in seen:
                seen.add(here[1])
                names = self._names_in(here[1])
                if self.drawing.get(here[1]) or any(map(_names_draw, names)):
                    self.drawing[place[1]] = True
                waiting += [one for name in names for one in self._code_behind(name, here)]
        return self.drawing.setdefault(place[1], False)

    def _names_in(self, code: cst.CSTNode) -> list[cst.Name | cst.Attribute]:
        if code not in self.names:
            self.names[code] = names_read(code)
        return self.names[code]

    def _code_behind(self, name: cst.Name | cst.Attribute, place: Place) -> list[Place]:
        """Returns the bodies of the user's functions that a name refers to, or else what makes the variable."""
        file, _, stack = place
        tree = self.draft.tree(file)
        if name not in self.functions:
            self.functions[name] = functions_of(self.draft, file, name) if self._may_be_function(file, name) else []
        if self.functions[name]:
            call = tree.around(name, cst.Call)
            inside = (CallSite(file, tree.end(call)), *stack) if call is not None else stack
            return [(one.file, one.body, inside) for one in self.functions[name]]
        if isinstance(name, cst.Attribute):
            return []
        found = value_behind(self.draft, file, name, stack)
        if name not in self.making:
            self.making[name] = _made_by(tree, name)
        return [*([found] if found is not None else []), *((file, one, stack) for one in self.making[name])]

    def _may_be_function(self, file: str, name: cst.Name | cst.Attribute) -> bool:
        """Whether a name or attribute may be a function of the user; a quick answer for those of libraries."""
        if isinstance(name, cst.Name):
            return True
        defined = b"def " + name.attr.value.encode() in self.draft.tree(file).code
        module = isinstance(name.value, cst.Name) and imported_module(self.draft, file, name.value) is not None
        return module or (defined and not is_library_attribute(self.draft, file, name))


def _names_draw(name: cst.Name | cst.Attribute) -> bool:
    return any("random" in one.value.lower() for one in nodes_within(name, cst.Name))


def _made_by(tree: SyntaxTree, name: cst.Name) -> list[cst.CSTNode]:
    """Returns what a loop takes a variable from, the statements that assign it if there are several, or add to a list.

    They are returned with the conditions around them, unless the name is read under these, too.
    """
    assigned = [one.node for one in tree.assignments(name)]
    found: list[cst.CSTNode] = [
        loop.iter for one in assigned if isinstance(loop := tree.parent(one), cst.For) and loop.target is one
    ]
    named = any(f"{name.value}.{method}(".encode() in tree.code for method in _ADDING)
    adding = [
        one
        for one in (variable_nodes(tree.module) if named else ())
        if one.value == name.value and isinstance(up := tree.parent(one), cst.Attribute) and up.attr.value in _ADDING
    ]
    for place in [*(assigned if len(assigned) > 1 else []), *adding]:
        around = takewhile(lambda one: name not in nodes_within(one, cst.Name), tree.ancestors(place))
        found += [one for one in around if isinstance(one, cst.If | cst.SimpleStatementLine)][-1:]
    return found


def _runs(draft: Draft, node: cst.CSTNode, place: Place) -> bool | None:
    """Whether a node in a piece of code is evaluated whenever the code runs; None if that depends on the run."""
    file, code, stack = place
    found: list[bool | None] = [True]
    inner = node
    for up in draft.tree(file).ancestors(node) if node is not code else ():
        match up:
            case cst.If(test=test) | cst.IfExp(test=test) if inner is not test:
                taken = truth(draft, file, test, stack)
                found.append(None if taken is None else taken is (inner is up.body))
            case cst.BooleanOperation(left=left, operator=operator) if inner is not left:
                taken = truth(draft, file, left, stack)
                found.append(None if taken is None else taken is isinstance(operator, cst.And))
            case cst.While() | cst.MatchCase():
                found.append(None)
            case cst.IndentedBlock(body=lines):
                before = takewhile(lambda one: one is not inner, lines)  # noqa: B023
                found += [_goes_on(draft, file, one, stack) for one in before if isinstance(one, cst.If)]
        if up is code:
            break
        inner = up
    return False if False in found else None if None in found else True


def _goes_on(draft: Draft, file: str, branch: cst.If, stack: Sequence[CallSite]) -> bool | None:
    """Whether the code behind an `if`, which may return, runs; None if that depends on the run."""
    if not any(nodes_within(branch, cst.Return, cst.Raise, without=(cst.FunctionDef, cst.Lambda))):
        return True
    taken = truth(draft, file, branch.test, stack) if branch.orelse is None else None
    return True if taken is False else None if taken is None or not ends_function(branch.body.body[-1]) else False
