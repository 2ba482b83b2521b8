"""Splits the function of a map in two, between statements or behind a call, with the values that are live there."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import libcst as cst

from pipetune.core.edits import SplitFunction
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import FunctionSplit
from pipetune.source.chain import break_before, is_self_assignment, link_of
from pipetune.source.draft import CallSite, Draft, Splice, called_name, replacing, spliced
from pipetune.source.map_functions import given_function, parameters_of, plain_parameters
from pipetune.source.source_files import line_start, newline_of
from pipetune.source.statements import (
    NOT_RUN_ONCE,
    bound_names,
    contains_call,
    last_line_end,
    statement_of,
    unused_name,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree, nodes_within
from pipetune.source.user_functions import (
    class_of_method,
    definition_of,
    has_other_definition,
    method_of_attribute,
    text_of,
    trees_mentioning,
)


@dataclass(frozen=True)
class _SplitTarget:
    """The function that is split, and what names it in the call of the map."""

    function: cst.FunctionDef | cst.Lambda
    name: cst.BaseExpression  # in the call: of the function, of the method, or of the factory; or the lambda
    factory: cst.FunctionDef | None = None  # that returns the function; the call of the map calls it
    receiver: str = ""  # the first parameter of a method

    @property
    def whole(self) -> cst.FunctionDef:
        """The definition that is written once for each part; a lambda has none."""
        whole = self.factory or self.function
        assert isinstance(whole, cst.FunctionDef)
        return whole


@dataclass(frozen=True)
class _PassedValue:
    """What the first part returns and the second receives: a variable, a field of a dict, or what a call returns."""

    name: str  # of the second part's parameter
    expression: str  # that the first part returns
    reads: tuple[cst.BaseExpression, ...] = ()  # in the second part; its parameter takes their place


def _passed_values(
    tree: SyntaxTree, target: _SplitTarget, block: Sequence[cst.CSTNode], cut: FunctionSplit
) -> tuple[_PassedValue, ...]:
    """Returns what statements behind the cut read, and statements before it or the caller bind.

    Of a dict of which they read only some fields (`example["label"]`), these are passed on, and not all that a record
    holds. Of a call that belongs to the first part, its result is. The values must correspond one to one to the tensors
    that the plan passes between the parts. `block` has the statements of the body, or the expression of a lambda.
    """
    assert cut.statement is not None
    name = target.function.name.value if isinstance(target.function, cst.FunctionDef) else "the lambda"
    parameters = plain_parameters(target.function)
    if parameters is None:
        raise CannotExpress(f"The parameters of {name} are not plain positional ones.")
    parameters = [one for one in parameters if one != target.receiver]
    above, below = block[: cut.statement], block[cut.statement :]
    of_lambda = parameters if isinstance(target.function, cst.Lambda) else []  # two alike on a line confuse autograph
    result = _result_of_call(tree, below, cut.call, avoid=of_lambda) if cut.call else None
    if result is not None:
        below = [_with_result(below[0], result.reads[0], result.name), *below[1:]]
    bound = list(dict.fromkeys(one for line in above for one in _assigned_names(line)))
    anywhere = set().union(*(bound_names(line) for line in above))
    alive = _names_read_first(below)
    unclear = next((one for one in alive if one in anywhere and one not in bound), None)
    if unclear is not None:
        raise CannotExpress(f"{unclear} in {name} is not bound by a plain assignment before the split.")
    fixed = next((one for one in bound if one in alive and _is_python_value(one, above)), None)
    if fixed is not None:
        raise CannotExpress(f"{fixed} in {name} is a Python value, which a dataset element cannot contain.")
    given = [one for one in parameters if one in alive and one not in bound]
    if given and len(parameters) != cut.components:
        raise CannotExpress(f"The parameters of {name} do not correspond one to one to the components of its element.")
    if tuple(parameters.index(one) for one in given) != cut.taken:
        raise CannotExpress(f"The second part of {name} reads other parameters than those that the plan passes on.")
    made = [one for one in bound if one in alive]
    order = list(dict.fromkeys([*(one for one in parameters if one in alive), *made]))
    fields = () if result is not None else below  # nodes of `below` are in the tree only where no call is taken out
    values = [value for one in order for value in _values_of(tree, one, fields if one in made else ())]
    if result is not None:
        values.insert(0, result)
    if len(values) != cut.handed:
        raise CannotExpress(
            f"At the split of {name}, {len(values)} variables are live, but the plan passes {cut.handed} tensors on."
        )
    if len({one.name for one in values}) < len(values):
        raise CannotExpress(f"At the split of {name}, two values would be passed on by one name.")
    return tuple(values)


def _result_of_call(tree: SyntaxTree, lines: Sequence[cst.CSTNode], name: str, *, avoid: Sequence[str]) -> _PassedValue:
    """Returns what the only call of a function in the first of these lines returns, by a name that is free in them."""
    calls = list(nodes_within(lines[0], cst.Call))
    found = [one for one in calls if called_name(one) == name]
    if len(found) != 1 or isinstance(lines[0], cst.BaseCompoundStatement):
        raise CannotExpress(f"It is unknown which call of {name} ends where the plan splits the function.")
    (call,) = found
    around = [*takewhile(lambda one: one is not lines[0], tree.ancestors(call)), lines[0]]
    earlier = [one for one in calls if tree.start(one) < tree.start(call) and one not in around]
    if earlier or any(isinstance(one, NOT_RUN_ONCE) for one in around):
        raise CannotExpress(f"The call of {name} is not certainly what its statement evaluates first.")
    if getattr(tree.parent(call), "star", ""):
        raise CannotExpress(f"What {name} returns is unpacked at once.")
    rest = (_with_result(lines[0], call), *lines[1:])
    taken = {*avoid, *(one for line in rest for one in variable_names(line))}
    parameter = _parameter_that_gets(tree, call)
    free = parameter if parameter is not None and parameter not in taken else None
    return _PassedValue(free or unused_name(tree, f"{name.strip('_')}_result"), tree.text(call), (call,))


def _with_result(line: cst.CSTNode, call: cst.BaseExpression, result: str = "_") -> cst.CSTNode:
    """Returns a copy of the line in which a name takes the place of a call."""
    copy = line.deep_replace(call, cst.Name(result))
    assert isinstance(copy, cst.CSTNode)
    return copy


def _parameter_that_gets(tree: SyntaxTree, call: cst.Call) -> str | None:
    """Returns the parameter of a function of this file that is called with the result of a call; None if none is."""
    argument = tree.parent(call)
    match tree.parent(argument):
        case cst.Call(func=cst.Name() as name, args=arguments) if argument in arguments:
            function, place = definition_of(tree, name), arguments.index(argument)
            parameters = plain_parameters(function) if function is not None else None
            plain = all(one.keyword is None and not one.star for one in arguments[: place + 1])
            return parameters[place] if plain and parameters is not None and place < len(parameters) else None
    return None


def _values_of(tree: SyntaxTree, variable: str, lines: Sequence[cst.CSTNode]) -> list[_PassedValue]:
    """Returns the fields of a dict that the statements read, or the variable if they do anything else with it."""
    whole = [_PassedValue(variable, variable)]
    reads: dict[str, list[cst.Subscript]] = {}
    if any(variable in bound_names(line) for line in lines):
        return whole
    for node in (node for line in lines for node in variable_nodes(line) if node.value == variable):
        read = tree.parent(node)
        match read:
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as text))]):
                key = text.evaluated_value
            case _:
                return whole
        if read.value is not node or not isinstance(key, str):
            return whole
        reads.setdefault(key, []).append(read)
    return [
        _PassedValue(_parameter_name(tree, variable, key), tree.text(found[0]), tuple(found))
        for key, found in reads.items()
    ] or whole


def _parameter_name(tree: SyntaxTree, variable: str, key: str) -> str:
    """Returns a name for a field that occurs nowhere in the file: its key, if that can be a name."""
    words = re.sub(r"\W+", "_", key).strip("_")
    candidates = [words] if words.isidentifier() and not keyword.iskeyword(words) else []
    return unused_name(tree, *candidates, f"{variable}_{words}" if words else f"{variable}_field")


def _assigned_names(line: cst.CSTNode) -> list[str]:
    """Returns the names that a simple statement certainly binds: `a = ...`, `a, b = ...`, `a += ...`."""
    if not isinstance(line, cst.SimpleStatementLine):
        return []
    targets: list[cst.BaseAssignTargetExpression] = []
    match line.body[0]:
        case cst.Assign(targets=several):
            targets = [one.target for one in several]
        case cst.AnnAssign(target=target, value=cst.BaseExpression()) | cst.AugAssign(target=target):
            targets = [target]
    names: list[str] = []
    for target in targets:
        match target:
            case cst.Name(value=name):
                names.append(name)
            case cst.Tuple(elements=elements) | cst.List(elements=elements):
                names += [one.value.value for one in elements if isinstance(one.value, cst.Name)]
    return names


def _is_python_value(name: str, lines: Sequence[cst.CSTNode]) -> bool:
    """Whether the last assignment of a name gives it a lambda, a list or tuple, or an expression without names."""
    binding = [line for line in lines if name in _assigned_names(line)][-1]
    assert isinstance(binding, cst.SimpleStatementLine)
    match binding.body[0]:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=cst.List() | cst.ListComp() | cst.Tuple()):
            return True
        case cst.Assign(value=value) | cst.AnnAssign(value=value) if value is not None:
            return isinstance(value, cst.Lambda) or not variable_names(value)
    return False


def _names_read_first(lines: Sequence[cst.CSTNode]) -> list[str]:
    """Returns the names that the statements may read before they bind them."""
    bound: set[str] = set()
    found: list[str] = []
    for line in lines:
        found += [name for name in _names_read(line) if name not in bound]
        bound |= set(_assigned_names(line))
    return list(dict.fromkeys(found))


def _names_read(line: cst.CSTNode) -> list[str]:
    if isinstance(line, cst.SimpleStatementLine):
        match line.body[0]:
            case cst.Assign(targets=targets, value=value):
                inside = [name for one in targets for name in variable_names(one.target)]
                return [*(name for name in inside if name not in _assigned_names(line)), *variable_names(value)]
            case cst.AnnAssign(value=value) if value is not None:
                return variable_names(value)
    return variable_names(line)


def split_function(draft: Draft, edit: SplitFunction, *, keep_original: bool) -> Draft:
    """Returns the draft in which a new map directly upstream of `edit.node` calls the first part of its function.

    Args:
        keep_original: whether the whole function stays, for another dataset that calls it.

    Raises:
        CannotExpress: it cannot be split between two statements, or its parts would exchange other values than planned.
    """
    tree, call = draft.find(edit.node)
    file = draft.sites[edit.node].file
    if draft.built_by_same_call(edit.node) != (edit.node,):
        raise CannotExpress("One call makes several maps.")
    if edit.cut.statement is None:
        raise CannotExpress("The split position is inside an expression.")
    target = _target(draft, file, call)
    if isinstance(target.function, cst.Lambda):
        head, tail = _lambda_parts(tree, target, target.function, edit.cut)
        splices = []
    else:
        head, tail = _part_names(tree, target.whole.name.value)
        kept = keep_original or _has_other_uses(draft, tree, file, target.whole)
        splices = [_part_definitions(tree, target, edit.cut, names=(head, tail), kept=kept)]
    splices.append(replacing(tree, target.name, tail))
    above, ends = _head_call(tree, call, target.name, head)
    splices.append(above)
    shift = sum(len(one.new) - (one.end - one.start) for one in splices if one.start < above.start)
    site = CallSite(file, above.start + shift + ends)
    return draft.with_position_of(edit.node, edit.head).splice(file, splices).with_site(edit.head, site)


def _lambda_parts(tree: SyntaxTree, target: _SplitTarget, function: cst.Lambda, cut: FunctionSplit) -> tuple[str, str]:
    """Returns the source of both parts of a lambda: lambdas, or the names of functions that these would only call."""
    if not cut.call:
        raise CannotExpress("The split position is inside an expression.")
    passed = _passed_values(tree, target, [function.body], cut)
    given = [one.expression for one in passed]
    gives = given[0] if len(given) == 1 else f"({', '.join(given)})"
    (call,) = passed[0].reads
    rest = _with_result(function.body, call, passed[0].name)
    assert isinstance(call, cst.Call) and isinstance(rest, cst.BaseExpression)
    own, names = parameters_of(function), [one.name for one in passed]
    head = _called_only(call, own) if len(given) == 1 else None
    start, end = tree.whole_span(function.body)
    body = spliced(tree.code, [replacing(tree, call, passed[0].name)], start=start, end=end).decode()
    tail = _called_only(rest, names) or f"lambda {', '.join(names)}: {body}"
    return head or f"lambda {', '.join(own)}: {gives}", tail


def _called_only(code: cst.BaseExpression, parameters: Sequence[str]) -> str | None:
    """Returns the name of a function that an expression only calls with the parameters; None if it does more."""
    match code:
        case cst.Call(func=cst.Name(value=name), args=arguments):
            plain = all(one.keyword is None and not one.star for one in arguments)
            given = [getattr(one.value, "value", None) for one in arguments if isinstance(one.value, cst.Name)]
            return name if plain and given == list(parameters) and len(given) == len(arguments) else None
    return None


def _head_call(tree: SyntaxTree, call: cst.Call, name: cst.BaseExpression, head: str) -> tuple[Splice, int]:
    """Returns the splice with the same call for the first part, as a statement or link, and the call's end in it."""
    code, given, end = tree.code, tree.start(name), tree.end(name)
    statement = statement_of(tree, call)
    if statement is not None and statement.alone_on_line and is_self_assignment(tree, statement, call):
        start = line_start(code, tree.start(statement.small))
        text = code[start:given] + head.encode() + code[end : tree.end(call)]
        rest = code[tree.end(call) : tree.end(statement.small)] + newline_of(code, start)
        return Splice(start, start, text + rest), len(text)
    link, style = link_of(tree, call), break_before(tree, call.func)
    back = link.end - given  # distance from the function's name to the end of the link
    text = b"." + style.after + link.text[:-back] + head.encode() + code[end : link.end]
    return Splice(link.dot, link.dot, text + style.before), len(text)


def _target(draft: Draft, file: str, call: cst.Call) -> _SplitTarget:
    """Returns the function of a map: a lambda, or one of the same file: named, of `self`, or returned by a factory."""
    tree, factory, receiver = draft.tree(file), None, ""
    match given_function(tree, call):
        case cst.Lambda() as code:
            return _SplitTarget(code, code)
        case cst.Name() as name:
            function = definition_of(tree, name)
        case cst.Attribute(value=cst.Name(value="self"), attr=name) as attribute:
            function, receiver = method_of_attribute(tree, attribute), "self"
        case cst.Call(func=cst.Name() as name, args=arguments):
            factory = definition_of(tree, name)
            function = _function_made_by(factory) if factory is not None else None
            if any(one.star or contains_call(one.value) for one in arguments):
                raise CannotExpress(f"{name.value} is called with what another call returns.")
        case _:
            raise CannotExpress("The function of the map is not passed by name, so it cannot be split.")
    if function is None:
        factory_only = ", or does more than return one function" if isinstance(tree.parent(name), cst.Call) else ""
        raise CannotExpress(f"{name.value} is not defined exactly once in the file of the map{factory_only}.")
    for one in (function, factory or function):
        if one.decorators or one.asynchronous is not None:
            raise CannotExpress(f"{one.name.value} has a decorator or is asynchronous.")
    if receiver and _may_be_overridden(draft, file, function):
        raise CannotExpress(f"A subclass may define another {name.value}.")
    if receiver and parameters_of(function)[:1] != [receiver]:
        raise CannotExpress(f"The first parameter of {name.value} is not called {receiver}.")
    return _SplitTarget(function, name, factory, receiver)


def _may_be_overridden(draft: Draft, file: str, method: cst.FunctionDef) -> bool:
    """Whether a method has the name of another one, and its class the name of a base of another class."""
    owner = class_of_method(draft.tree(file), method)
    assert owner is not None
    derived = re.compile(rf"\bclass\s+\w+\s*\([^)]*\b{owner.name.value}\b")
    texts = (text_of(draft, path) for path in (file, *draft.near(file)))
    return has_other_definition(draft, file, method) and any(map(derived.search, texts))


def _function_made_by(factory: cst.FunctionDef) -> cst.FunctionDef | None:
    """Returns the function that another one defines and returns, doing nothing else; None if it is no such factory."""
    lines = list(factory.body.body)
    lines = lines[1:] if factory.get_docstring() is not None else lines
    match lines:
        case [cst.FunctionDef() as made, cst.SimpleStatementLine(body=[cst.Return(value=cst.Name(value=name))])]:
            return made if made.name.value == name else None
    return None


def _body_statements(function: cst.FunctionDef, cut: FunctionSplit) -> list[cst.BaseStatement]:
    """Returns the statements of the function's body; the cut lies between two of them, or behind a call in one."""
    name = function.name.value
    assert cut.statement is not None
    if not isinstance(function.body, cst.IndentedBlock):
        raise CannotExpress(f"The body of {name} is on the same line as its def.")
    body = list(function.body.body)
    if any(isinstance(line, cst.SimpleStatementLine) and len(line.body) > 1 for line in body):
        raise CannotExpress(f"Some statements of {name} share a line.")
    if not (0 if cut.call else 1) <= cut.statement < len(body):
        raise CannotExpress(f"{name} has no statement on one side of the split position.")
    exits, nested = (cst.Return, cst.Yield, cst.Global, cst.Nonlocal), (cst.FunctionDef, cst.Lambda)
    if any(any(nodes_within(line, *exits, without=nested)) for line in body[: cut.statement]):
        raise CannotExpress(f"The first part of {name} may return early, or assigns names outside of the function.")
    return body


def _part_names(tree: SyntaxTree, name: str) -> tuple[str, str]:
    taken = {one.value for one in tree.nodes(cst.Name)}
    for head, tail in ((f"{name}_head", f"{name}_tail"), (f"{name}_first_part", f"{name}_second_part")):
        if not taken.intersection((head, tail)):
            return head, tail
    raise CannotExpress(f"No unused names are left for the parts of {name}.")


def _part_definitions(
    tree: SyntaxTree, target: _SplitTarget, cut: FunctionSplit, *, names: tuple[str, str], kept: bool
) -> Splice:
    """Returns the splice that puts both functions in place of the original, or after it if the original is kept."""
    function = target.function
    assert isinstance(function, cst.FunctionDef) and cut.statement is not None
    block = _body_statements(function, cut)
    passed = _passed_values(tree, target, block, cut)
    code, whole = tree.code, target.whole
    start, first = tree.start(whole), line_start(code, tree.start(block[0]))
    indentation, inner = code[line_start(code, start) : start], code[first : tree.start(block[0])]
    if indentation.strip() or inner.strip():
        raise CannotExpress(f"The def of {function.name.value}, or its first statement, shares a line with other code.")
    newline = newline_of(code, start)
    cut_at = last_line_end(tree, block[cut.statement - 1]) if cut.statement else first
    made_end, end = last_line_end(tree, block[-1]), last_line_end(tree, whole.body.body[-1])
    parameters = ", ".join([*filter(None, [target.receiver]), *(one.name for one in passed)]).encode()
    values = ", ".join(one.expression for one in passed).encode()
    reads = [replacing(tree, read, one.name) for one in passed for read in one.reads]
    rest = spliced(code, reads, start=cut_at, end=made_end)
    above = code[first:cut_at] + newline if cut.statement else b""
    head = _signature_source(tree, function) + above + inner + b"return " + values
    tail = b"(" + parameters + b"):" + newline + _BLANK_LINES.sub(b"", rest)
    gap = newline * (2 if indentation else 3) + indentation
    both = gap.join(
        code[start : tree.start(whole.name)] + name.encode() + _in_factory(tree, target, part, ends=(made_end, end))
        for name, part in zip(names, (head, tail), strict=True)
    )
    return Splice(end, end, gap + both) if kept else Splice(start, end, both)


def _in_factory(tree: SyntaxTree, target: _SplitTarget, part: bytes, *, ends: tuple[int, int]) -> bytes:
    """Returns the source of a part, from its parameters on, in what the factory does around it if there is one.

    Args:
        ends: offsets at which the function that is split, and the factory, end.
    """
    if target.factory is None or isinstance(target.function, cst.Lambda):
        return part
    made = tree.end(target.function.name)
    return tree.code[tree.end(target.factory.name) : made] + part + tree.code[ends[0] : ends[1]]


_BLANK_LINES = re.compile(rb"\A(?:[ \t]*(?:\r\n|\r|\n))+")


def _signature_source(tree: SyntaxTree, function: cst.FunctionDef) -> bytes:
    """Returns the source from the parameters to the first statement, without the return annotation."""
    code, end = tree.code, tree.end(function.name)
    first = line_start(code, tree.start(function.body.body[0]))
    if function.returns is None:
        return code[end:first]
    annotation = function.returns.annotation
    return code[end : tree.start(annotation)].rstrip().removesuffix(b"->").rstrip() + code[tree.end(annotation) : first]


def _has_other_uses(draft: Draft, tree: SyntaxTree, file: str, function: cst.FunctionDef) -> bool:
    """Whether anything but the map may call the function, in its file or in another one that may import it."""
    name = function.name.value
    uses = [
        one for one in variable_nodes(tree.module) if one is not function.name and definition_of(tree, one) is function
    ]
    if class_of_method(tree, function) is not None:
        uses += [one.attr for one in tree.nodes(cst.Attribute) if one.attr.value == name]
    if len(uses) > 1 or re.search(rf"""["']{name}["']""", tree.code.decode()):
        return True
    near = any(re.search(rf"\b{name}\b", text_of(draft, path)) for path in draft.near(file))
    return near or any(True for _ in trees_mentioning(draft, file, name))
