"""The function passed to `map`, how a function that replaces it is written, and functions that a patch adds."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import ClassScope

from pipetune.core.errors import CannotExpress
from pipetune.source.call_arguments import method_arguments, named_arguments
from pipetune.source.draft import Draft, Splice
from pipetune.source.source_files import line_start, newline_of
from pipetune.source.statements import (
    bound_names,
    conjunction,
    contains_call,
    free_name,
    is_dotted,
    negate,
    runs_once,
    start_with_comments,
    statement_of,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree, consists_of, nodes_within
from pipetune.source.user_functions import functions_of, imported_function, is_partial, referenced_functions, uses_of
from pipetune.source.version_merging import merge_versions, path_of


def restrict_to_choice(before: Draft, after: Draft, node: str, *, function_name: str) -> Draft:
    """Returns `after`, changed only if the map `node` gets the function `function_name`, and otherwise as before.

    Args:
        function_name: the name of the Python function, as captured.

    Raises:
        CannotExpress: it is unknown which function ran, or the condition may change within the function around the map.
    """
    tree, call = before.find(node)
    choice = _named_function(tree, given_function(tree, call))
    if not isinstance(choice, cst.IfExp):
        return after
    file = before.sites[node].file
    found = [functions_of(before, file, one, function_name=function_name) for one in (choice.body, choice.orelse)]
    named = [[one.node.name.value for one in some if isinstance(one.node, cst.FunctionDef)] for some in found]
    if [function_name] not in named or named[0] == named[1]:
        raise CannotExpress("It is unknown which of the two functions the map gets.")
    function = tree.around(call, cst.FunctionDef)
    if function is None or function is not tree.around(choice, cst.FunctionDef):
        raise CannotExpress("The map gets one of two functions, and only one of them was tested on batches.")
    if contains_call(choice.test) or bound_names(function.body).intersection(variable_names(choice.test)):
        raise CannotExpress(
            "The condition that selects the function of the map may have another value elsewhere in the function."
        )
    first = named[0] == [function_name]
    chosen = choice.body if first else choice.orelse
    if isinstance(_named_function(tree, chosen), cst.IfExp):
        raise CannotExpress(_SEVERAL)
    test = tree.text(choice.test)
    test = conjunction([test]) if first else negate(test)
    after = replace_function(after, node, tree.text(chosen))
    return merge_versions(before, after, (file, path_of(tree, function)), condition=test)


_SEVERAL = "The map gets one of several functions, and only one of them was tested on batches."


def _named_function(
    tree: SyntaxTree, value: cst.BaseExpression | None, *, partials: int = 3
) -> cst.BaseExpression | None:
    """Returns the expression that a name is assigned, if the function of a map is a name, else that function.

    Args:
        partials: how many are looked into, one in another.

    Raises:
        CannotExpress: one of several functions is assigned to the name, or taken from a collection.
    """
    if isinstance(value, cst.Name):
        assignment = tree.only_assignment(value)
        assigned = tree.assignments(value) if assignment is None else []
        if any(tree.around(one.node, cst.If, cst.Match) for one in assigned):
            raise CannotExpress(_SEVERAL)
        value = tree.assigned_value(assignment) or value
    match value:
        case cst.Subscript(slice=[key, *_]) | cst.Call(func=cst.Attribute(attr=cst.Name("get")), args=[key, *_]):
            several = bool(variable_names(key))
        case cst.Call(args=[first, *_]) if partials and is_partial(tree, value):
            several = isinstance(_named_function(tree, first.value, partials=partials - 1), cst.IfExp)
        case _:
            several = False
    if several:
        raise CannotExpress(_SEVERAL)
    return value


@dataclass(frozen=True)
class Callee:
    """How to refer to a function from within the function that replaces it in the same call."""

    value: str  # the function itself, to be passed to something that calls it
    call: Callable[[str], str]  # source of the arguments -> source of the call
    names: frozenset[str]  # that it reads from outside: no parameter of the function around it may have one of them


def free_parameter(callees: Sequence[Callee], *candidates: str) -> str:
    """Returns the first candidate that, as the name of a parameter around functions, shadows nothing they read.

    Raises:
        CannotExpress: every candidate shadows something.
    """
    refusal = "All names that pipetune would use for the parameter of a lambda around the function are taken."
    return free_name(frozenset().union(*(one.names for one in callees)), *candidates, refusal=refusal)


def named_callee(name: str) -> Callee:
    """Returns the callee for a function that has this name wherever it is called."""
    return Callee(name, lambda given: f"{name}({given})", frozenset())


def given_function(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression | None:
    """Returns the expression that passes a map its function, or None if it is not visible in the call."""
    if (named := named_arguments(call).get("map_func")) is not None:
        return named.value
    first = next(iter(method_arguments(tree, call)), None)
    return first.value if first is not None and first.keyword is None and not first.star else None


def callee_of(draft: Draft, node: str, *, function_name: str = "", unpacked: bool = False) -> tuple[Draft, Callee]:
    """Returns the function of the map `node`, and the draft in which it can be referred to where the map is called.

    An expression that must be evaluated only once, such as a call that returns the function, gets a name in front.

    Args:
        function_name: the name of the Python function, as captured.
        unpacked: whether it is called with components: a lambda over several lines, hard to read there, gets a name.

    Raises:
        CannotExpress: the call does not show its function, or the function means something else within another one.
    """
    tree, call = draft.find(node)
    value = given_function(tree, call)
    if value is None:
        raise CannotExpress("The function is not visible in the call of map.")
    _refuse_names_of_class(tree, value)
    over_lines = isinstance(value, cst.Lambda) and "\n" in tree.text(value)
    if not _is_repeatable(tree, value) or (unpacked and over_lines and _can_bind_name(tree, call)):
        draft = _bind_to_name(draft, node, value, function_name)
        tree, call = draft.find(node)
        value = given_function(tree, call)
        assert value is not None
    return draft, _callee(tree, value)


def replace_function(draft: Draft, node: str, text: str) -> Draft:
    """Returns the draft in which the call of the map `node` gets the function expression `text`."""
    tree, call = draft.find(node)
    value = given_function(tree, call)
    assert value is not None
    return draft.splice(draft.sites[node].file, [Splice(*tree.whole_span(value), text.encode())])


def _callee(tree: SyntaxTree, value: cst.BaseExpression) -> Callee:
    text, names = tree.text(value), frozenset(_free_names(value))
    if isinstance(value, cst.Call) and is_partial(tree, value):
        function, *fixed = (tree.text(one) for one in value.args)
        plain = isinstance(value.args[0].value, cst.Name | cst.Attribute) and value.args[0].keyword is None
        if plain and not any(one.star for one in value.args):
            by_place = [tree.text(one) for one in value.args[1:] if one.keyword is None]
            by_name = fixed[len(by_place) :]
            return Callee(text, lambda given: f"{function}({', '.join([*by_place, given, *by_name])})", names)
    single = isinstance(value, cst.Name | cst.Attribute | cst.Subscript | cst.Call)
    called = text if single else f"({text})"
    return Callee(text, lambda given: f"{called}({given})", names)


def _free_names(value: cst.BaseExpression) -> Iterable[str]:
    """Returns the names that an expression reads from outside; for a lambda, all but its own parameters."""
    if not isinstance(value, cst.Lambda):
        return variable_names(value)
    defaults = [name for one in value.params.params if one.default is not None for name in variable_names(one.default)]
    own = set(parameters_of(value))
    return [*defaults, *(name for name in variable_names(value.body) if name not in own)]


def parameters_of(function: cst.Lambda | cst.FunctionDef) -> list[str]:
    """Returns the names of all parameters of a function."""
    given = function.params
    starred = [one for one in (given.star_arg, given.star_kwarg) if isinstance(one, cst.Param)]
    return [one.name.value for one in (*given.posonly_params, *given.params, *given.kwonly_params, *starred)]


def plain_parameters(function: cst.Lambda | cst.FunctionDef) -> list[str] | None:
    """Returns the parameters if all can be passed by position or by name and have no default; else None."""
    names = [one.name.value for one in function.params.params if one.default is None]
    return names if parameters_of(function) == names else None


def _is_repeatable(tree: SyntaxTree, value: cst.BaseExpression) -> bool:
    """Whether the expression gives the same function each time it is evaluated, without side effects."""
    match value:
        case cst.Name() | cst.Lambda():
            return True
        case cst.Attribute(value=owner):
            return _is_repeatable(tree, owner) and not isinstance(owner, cst.Lambda)
        case cst.Subscript(value=owner, slice=parts):
            plain = all(isinstance(one.slice, cst.Index) and consists_of(one.slice.value, _PLAIN) for one in parts)
            return plain and is_dotted(owner)
        case cst.IfExp(test=test, body=body, orelse=orelse):
            return consists_of(test, _PLAIN) and all(_is_repeatable(tree, one) for one in (body, orelse))
        case cst.Call(args=[function, *fixed]) if is_partial(tree, value):
            same = _is_repeatable(tree, function.value) and not isinstance(function.value, cst.Lambda)
            return same and all(consists_of(one.value, _PLAIN) for one in fixed)
    return False


_PLAIN = (
    cst.Attribute | cst.BaseNumber | cst.BinaryOperation | cst.BooleanOperation | cst.Comparison | cst.List | cst.Name
    | cst.SimpleString | cst.Tuple | cst.UnaryOperation
)  # fmt: skip
"""Expressions made of names, attributes and literals, without a call."""


def _refuse_names_of_class(tree: SyntaxTree, value: cst.BaseExpression) -> None:
    """Refuses names bound in the body of a class, which functions within that body cannot see."""
    scope = tree.scope(value)
    if not isinstance(scope, ClassScope):
        return
    for name in variable_nodes(value):
        if any(one.scope is scope for one in scope[name.value]):
            raise CannotExpress(
                f"{name.value} is a variable of the class, which functions in the class body cannot see."
            )


def _can_bind_name(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a statement directly in front of a call could bind a name that the call then reads."""
    statement = statement_of(tree, call)
    if statement is None or not statement.alone_on_line or isinstance(tree.scope(call), ClassScope):
        return False
    return runs_once(tree, call, statement)


def _bind_to_name(draft: Draft, node: str, value: cst.BaseExpression, function_name: str) -> Draft:
    """Returns the draft in which the function of a map is assigned to a name in a statement of its own."""
    tree, call = draft.find(node)
    statement = statement_of(tree, call)
    if statement is None or not statement.alone_on_line:
        raise CannotExpress(
            "The function of the map has no name, and no statement that names it can be inserted before the call."
        )
    if not runs_once(tree, call, statement):
        raise CannotExpress("The expression of the map's function may not be evaluated, or more than once.")
    if isinstance(tree.scope(value), ClassScope):
        raise CannotExpress(
            "The function of the map is created in the body of a class, whose variables functions cannot see."
        )
    candidates = [*_names_in_words(value), *_candidate_names(function_name)]
    name = next(one for one in candidates if _is_free(tree, value, one))
    start, indentation = line_start(tree.code, tree.start(statement.small)), tree.indentation(statement.small)
    newline = newline_of(tree.code, start)
    bound = indentation + f"{name} = {tree.text(value)}".encode() + newline
    if isinstance(value, cst.Lambda):
        bound = _definition(tree, value, name, indentation, newline)
    named = Splice(*tree.whole_span(value), name.encode())
    return draft.splice(draft.sites[node].file, [Splice(start, start, bound), named])


def replace_by_definition(
    draft: Draft, node: str, parameters: str, body: Sequence[str], *, names: Sequence[str]
) -> Draft | None:
    """Returns the draft in which a map calls a function that is defined in front of it.

    Args:
        parameters: of the new function, as source text.
        names: for it, best first.

    Returns:
        None if there is no place for a definition, or no name is free.
    """
    tree, call = draft.find(node)
    value, statement = given_function(tree, call), statement_of(tree, call)
    if value is None or statement is None or not _can_bind_name(tree, call):
        return None
    name = next((one for one in names if _is_free(tree, value, one)), None)
    if name is None:
        return None
    start, indentation = line_start(tree.code, tree.start(statement.small)), tree.indentation(statement.small)
    newline = newline_of(tree.code, start)
    lines = [f"def {name}({parameters}):".encode(), *(tree.indentation_unit + line.encode() for line in body)]
    text = b"".join(indentation + line + newline for line in lines) + newline
    previous = tree.code[:start].rstrip(b" \t").removesuffix(newline).rpartition(newline)[2].strip()
    if previous and not previous.endswith(b":"):
        text = newline + text
    named = Splice(*tree.whole_span(value), name.encode())
    return draft.splice(draft.sites[node].file, [Splice(start, start, text), named])


def _definition(tree: SyntaxTree, value: cst.Lambda, name: str, indentation: bytes, newline: bytes) -> bytes:
    """Returns a lambda as a `def`, followed by a blank line."""
    first, last = tree.whole_span(value.body)
    parameters = tree.code[tree.start(value) + len(b"lambda") : first].rstrip().removesuffix(b":").strip()
    inner = tree.code[line_start(tree.code, tree.start(value)) : first]
    deeper = max(0, len(inner) - len(inner.lstrip()) - len(indentation) - len(tree.indentation_unit))
    lines = tree.code[first:last].split(newline)
    strings = nodes_within(value.body, cst.SimpleString, cst.FormattedString)
    if any("\n" in tree.text(one) or "\r" in tree.text(one) for one in strings):
        deeper = 0  # the lines of a string keep their indentation
    if len(lines) > 1 and not value.body.lpar:  # the parentheses of the call held them together
        lines[0], lines[-1] = b"(" + lines[0], lines[-1] + b")"
    body = newline.join([lines[0], *(one[deeper:] if not one[:deeper].strip() else one for one in lines[1:])])
    heading = indentation + b"def " + name.encode() + b"(" + parameters + b"):" + newline
    return heading + indentation + tree.indentation_unit + b"return " + body + newline + newline


def _is_free(tree: SyntaxTree, place: cst.CSTNode, name: str) -> bool:
    """Whether a name can be bound in the scope of `place`: nothing in it, or in functions within it, reads the name."""
    named = (one for one in tree.nodes(cst.Name) if one.value == name)
    # Otherwise it is also an attribute, a keyword or a name that is bound nowhere: do not touch it.
    return not tree.scope(place)[name] and all(tree.scope(one)[name] for one in named)


def _names_in_words(value: cst.BaseExpression) -> Iterator[str]:
    """Yields the name that the words of a plain call make: `both(tf.image.flip)` is called both_flip."""
    if not isinstance(value, cst.Call) or any(one.keyword is not None or one.star for one in value.args):
        return
    parts = [value.func, *(one.value for one in value.args)]
    words = [one.attr.value if isinstance(one, cst.Attribute) else getattr(one, "value", None) for one in parts]
    if len(words) > 1 and all(isinstance(word, str) and word.isidentifier() for word in words):
        yield "_".join(word.strip("_") for word in words if isinstance(word, str))


def _candidate_names(function_name: str) -> Sequence[str]:
    """Returns names for a function without one, best first: its Python name, if that is an identifier."""
    reserved = keyword.iskeyword(function_name) or function_name == "function"  # which stands for callable objects
    usable = function_name.isidentifier() and not reserved and not function_name.startswith("_")
    known = [function_name] if usable else []
    return [*known, "preprocess", "map_function", *(f"map_function_{number}" for number in range(2, 1000))]


MapFunction = cst.FunctionDef | cst.BaseExpression
"""The function of a map: its definition if it is imported, otherwise the expression in the call."""


def functions_behind_map(draft: Draft, node: str) -> tuple[str, MapFunction, list[cst.FunctionDef]]:
    """Resolves the function of the map `node`.

    Returns:
        Its file, the function, and every function of the file that it refers to, directly or not, including itself.

    Raises:
        CannotExpress: the call does not show its function.
    """
    tree, call = draft.find(node)
    file = draft.sites[node].file
    root = given_function(tree, call)
    if root is None:
        raise CannotExpress("The function is not visible in the call of map.")
    if isinstance(root, cst.Name) and (imported := imported_function(draft, file, root)) is not None:
        file, function = imported
        more = referenced_functions(draft.tree(file), [function.body])
        return file, function, [function, *(one for one in more if one is not function)]
    return file, root, referenced_functions(tree, [root])


def refuse_used_elsewhere(draft: Draft, file: str, function: cst.FunctionDef, root: MapFunction) -> None:
    """Refuses to change a function that other code uses, too: nothing is known of what it passes to it.

    Args:
        root: the function of the map, which leads to `function`.

    Raises:
        CannotExpress: the function, or one that calls it, is referred to anywhere but on the way from the map.
    """
    uses = uses_of(draft, file, function)
    if len(uses) != 1:
        raise CannotExpress(
            f"{function.name.value} is used in {len(uses)} places; the change would affect all of them."
        )
    if function is root:
        return  # its only use is the map, in another file
    tree = draft.tree(file)
    around = [uses[0].node, *tree.ancestors(uses[0].node)] if uses[0].file == file else []
    if any(parent is root for parent in around):
        return
    user = next((parent for parent in around if isinstance(parent, cst.FunctionDef)), None)
    if user is None or user is function:
        raise CannotExpress(f"{function.name.value} is used elsewhere too.")
    refuse_used_elsewhere(draft, file, user, root)


def add_functions(
    draft: Draft, file: str, texts: Mapping[str, str], splices: Sequence[Splice], *, before: cst.CSTNode
) -> Draft:
    """Returns the draft with `splices` applied to `file` and the functions inserted before the code that calls them.

    A function that an earlier change has already inserted is reused.

    Args:
        texts: source of the functions, by name, with line feeds as newlines.
        before: the code that calls them; they go in front of the module-level statement that contains it.

    Raises:
        CannotExpress: the file already uses one of the names for something else.
    """
    tree = draft.tree(file)
    at = start_with_comments(tree, outermost(tree, before))
    newline = newline_of(tree.code, at).decode()
    written = {name: text.replace("\n", newline) for name, text in texts.items()}
    taken = {one.value for one in tree.nodes(cst.Name)}
    missing = [name for name in sorted(written) if written[name].encode() not in tree.code]
    if taken.intersection(missing):
        raise CannotExpress(f"The file already uses the name {min(taken.intersection(missing))} for something else.")
    added = "".join(written[name] + 2 * newline for name in missing)
    if missing and (above := tree.code[:at].splitlines()[-2:]):
        blank = 0 if above[-1].strip() else sum(not line.strip() for line in above)
        added = newline * (2 - blank) + added  # two blank lines above a function
    return draft.splice(file, [*splices, Splice(at, at, added.encode())])


def outermost(tree: SyntaxTree, node: cst.CSTNode) -> cst.CSTNode:
    """Returns the module-level statement that contains `node`."""
    return next((one for one in (node, *tree.ancestors(node)) if tree.parent(one) is tree.module), node)
