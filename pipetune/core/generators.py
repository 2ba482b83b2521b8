"""A generator function that goes through lists, read from its text: what it does with one entry, as a function.

The text of that function is what the patch writes and what runs in trials: both are made here.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass


class NotListed(Exception):
    """A generator that does something else; the message is the end of a sentence about it."""


@dataclass(frozen=True)
class ListedGenerator:
    """`for path, label in zip(paths, labels): ...; yield image, label`, in parts."""

    name: str
    lists: tuple[str, ...]  # the names of what the loop goes through, one per parameter of the function
    function: str  # text of the function of one entry, not indented, without the last line break


def read_generator(text: str) -> ListedGenerator:
    """The parts of a generator function.

    Args:
        text: its definition and nothing else, indented or not.

    Raises:
        NotListed: it is more than one loop through lists that yields once for each entry.
    """
    text = textwrap.dedent(text)
    try:
        (definition,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise NotListed("its text cannot be read alone") from None
    if not isinstance(definition, ast.FunctionDef):
        raise NotListed("it is not written as a function of its own")
    loop = _only_loop(definition)
    lists = _lists(loop)
    parameters = _parameters(loop, lists)
    _check_body(loop, parameters, lists)
    function = _as_function(text, definition, loop, parameters)
    _check_same(function, definition, loop)
    return ListedGenerator(definition.name, lists, function)


def _only_loop(definition: ast.FunctionDef) -> ast.For:
    given = definition.args
    if definition.decorator_list or any((given.posonlyargs, given.args, given.vararg, given.kwonlyargs, given.kwarg)):
        raise NotListed("it is decorated or has parameters")
    body = definition.body[1:] if ast.get_docstring(definition) is not None else definition.body
    if len(body) != 1 or not isinstance(body[0], ast.For) or body[0].orelse:
        raise NotListed("it does more than go through lists")
    for part in ast.walk(definition):
        if isinstance(part, ast.Constant | ast.JoinedStr) and part.lineno != part.end_lineno:
            raise NotListed("a text in it goes over several lines")
    return body[0]


def _lists(loop: ast.For) -> tuple[str, ...]:
    match loop.iter:
        case ast.Name(id=name):
            return (name,)
        case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as given, keywords=[]):
            names = tuple(one.id for one in given if isinstance(one, ast.Name))
            if len(names) == len(given):
                return names
    raise NotListed("its loop goes through something other than lists that have names")


def _parameters(loop: ast.For, lists: tuple[str, ...]) -> tuple[str, ...]:
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    names = tuple(one.id for one in targets if isinstance(one, ast.Name))
    single = isinstance(loop.iter, ast.Name)
    if len(names) != len(targets) or len(names) != len(lists) or isinstance(loop.target, ast.Tuple) is single:
        raise NotListed("an entry of its lists is taken apart")
    if len(set(names)) != len(names):
        raise NotListed("its loop gives two entries one name")
    return names


def _check_body(loop: ast.For, parameters: tuple[str, ...], lists: tuple[str, ...]) -> None:
    """Refuses what is not done for each entry alone: other statements, yields elsewhere, names kept between turns."""
    *before, last = loop.body
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Yield) and last.value.value is not None):
        raise NotListed("its loop does not end by yielding an element")
    assigned = {name for statement in before for name in _assigned(statement)}
    if assigned.intersection(lists):
        raise NotListed("its loop changes what it goes through")
    known = set(parameters)
    values = [(_value(statement), _assigned(statement)) for statement in before]
    for value, bound in [*values, (last.value.value, set[str]())]:
        for part in ast.walk(value):
            if isinstance(part, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr):
                raise NotListed("its loop yields more than once, or assigns within an expression")
            if isinstance(part, ast.Name) and part.id in assigned and part.id not in known:
                raise NotListed(f"its loop keeps {part.id} from one entry to the next")
            if _writes_text(part):
                raise NotListed("it makes text of an entry by Python, which tensors are no part of")
        known |= bound


def _assigned(statement: ast.stmt) -> set[str]:
    """The names a plain assignment binds."""
    targets: Sequence[ast.expr]
    match statement:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr()):
            targets = [target]
        case _:
            raise NotListed("its loop holds more than assignments and a yield")
    flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    if not all(isinstance(one, ast.Name) for one in flat):
        raise NotListed("its loop writes into something that stays")
    return {one.id for one in flat if isinstance(one, ast.Name)}


def _value(statement: ast.stmt) -> ast.expr:
    assert isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
    return statement.value


def _writes_text(part: ast.AST) -> bool:
    """Whether it formats: with a tensor for a value that says `Tensor("args_0:0", ...)`, and nothing fails."""
    match part:
        case ast.FormattedValue() | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return True
        case ast.Attribute(value=ast.Constant(value=str()), attr="format"):
            return True
    return False


def _as_function(text: str, definition: ast.FunctionDef, loop: ast.For, parameters: tuple[str, ...]) -> str:
    lines = [line.encode() for line in text.splitlines()]
    last = loop.body[-1]
    assert last.end_lineno is not None and last.end_col_offset is not None and loop.iter.end_lineno is not None
    row = last.lineno - 1
    lines[last.end_lineno - 1] = lines[last.end_lineno - 1][: last.end_col_offset]
    start = lines[row][last.col_offset :]
    lines[row] = lines[row][: last.col_offset] + b"return" + start.removeprefix(b"yield")
    depth = loop.col_offset
    if loop.body[0].lineno == loop.iter.end_lineno:  # for path in paths: yield load(path)
        body = [lines[row][: depth] + lines[row][loop.body[0].col_offset :], *lines[row + 1 : last.end_lineno]]
    else:
        less = loop.body[0].col_offset - depth
        body = [_less_indented(line, less) for line in lines[loop.iter.end_lineno : last.end_lineno]]
    head = f"def {definition.name}({', '.join(parameters)}):".encode()
    above = lines[definition.body[0].lineno - 1 : definition.body[0].end_lineno] if len(definition.body) == 2 else []
    return b"\n".join((head, *above, *body)).decode()


def _less_indented(line: bytes, columns: int) -> bytes:
    return line[columns:] if not line[:columns].strip() else line


def _check_same(function: str, definition: ast.FunctionDef, loop: ast.For) -> None:
    """Refuses a function whose statements are not those of the loop, however its text came out."""
    *before, last = loop.body
    assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Yield)
    docstring = definition.body[:-1]
    wanted = [*docstring, *before, ast.Return(last.value.value)]
    try:
        (made,) = ast.parse(function).body
    except (SyntaxError, ValueError):
        made = definition
    if not isinstance(made, ast.FunctionDef) or [*map(ast.dump, made.body)] != [*map(ast.dump, wanted)]:
        raise NotListed("its text is set in a way that is not understood")
