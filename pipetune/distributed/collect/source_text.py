"""The text of a Python function in its file, and the outside names that it needs. Nothing is executed."""

from __future__ import annotations
import __future__

import ast
import dis
import linecache
import textwrap
from types import CodeType

from pipetune.core.errors import CannotExpress

_LATER_ANNOTATIONS = __future__.annotations.compiler_flag
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})


def tree_of(file: str) -> ast.Module:
    """Returns the syntax tree of a source file, or of a notebook cell that `linecache` contains.

    Raises:
        CannotExpress: the source cannot be read.
    """
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CannotExpress(f"The source of {file} cannot be read: {error.msg}.") from error
    if not text:
        raise CannotExpress(f"The source of {file} is not there to copy from.")
    return tree


def top_level(file: str, name: str) -> str:
    """Returns the text of the last function or class `name` at the top level of `file`; '' if there is none.

    Raises:
        CannotExpress: the source cannot be read.
    """
    found = ""
    for node in tree_of(file).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            found = _text(file, node)
    return found


def import_of(file: str, name: str, package: str) -> tuple[str, str, str] | None:
    """Returns the import in `file` that binds `name`; None if there is none.

    Args:
        file: path of the source file.
        name: the bound name.
        package: the package of the file, to resolve relative imports.

    Returns:
        The text of the import on one line, the module, and the imported name or '' for the module itself.

    Raises:
        CannotExpress: the source cannot be read.
    """
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname == name or (alias.asname is None and alias.name.partition(".")[0] == name):
                    text = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                    return text, alias.name if alias.asname else name, ""
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            for alias in node.names:
                if (alias.asname or alias.name) == name and module:
                    return from_import(module, alias.name, name), module, alias.name
    return None


def from_import(module: str, name: str, bound: str) -> str:
    """Returns the text of the import of `name` from `module` under the name `bound`."""
    return f"from {module} import {name}" + (f" as {bound}" if bound != name else "")


def function_text(code: CodeType) -> tuple[str, bool]:
    """Returns the text of the function with the code object `code`, and whether it is a lambda expression.

    Raises:
        CannotExpress: its file has no function, or several, at that location.
    """
    file = code.co_filename
    if code.co_name == "<lambda>":
        found: list[ast.AST] = [
            node
            for node in ast.walk(tree_of(file))
            if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno and _covers(node.body, code)
        ]
        found = found[-1:]  # the innermost: ast.walk visits outer nodes first
    else:
        found = [
            node
            for node in ast.walk(tree_of(file))
            if isinstance(node, ast.FunctionDef)
            and node.name == code.co_name
            and _first_line(node) == code.co_firstlineno
        ]
    if len(found) != 1:
        where = f"{file}, line {code.co_firstlineno}"
        raise CannotExpress(f"The function {code.co_name} is not found in {where}.")
    return _text(file, found[0]), isinstance(found[0], ast.Lambda)


def names_needed(text: str) -> tuple[str, ...]:
    """Returns the outside names that statements read, except in annotations, in alphabetical order."""
    code = compile(text, "<copied>", "exec", flags=_LATER_ANNOTATIONS, dont_inherit=True)
    loaded: set[str] = set()
    _collect(code, loaded)
    return tuple(sorted(loaded - _stored(code)))


def _collect(code: CodeType, loaded: set[str]) -> None:
    own = _stored(code)
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS and instruction.argval not in own:
            loaded.add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _collect(constant, loaded)


def _stored(code: CodeType) -> set[str]:
    implicit = {"__name__", "__module__", "__qualname__", "__annotations__", "__conditional_annotations__"}
    return implicit | {
        str(instruction.argval) for instruction in dis.get_instructions(code) if instruction.opname in _STORES
    }


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if len(parts) < node.level:
        return ""
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _covers(body: ast.expr, code: CodeType) -> bool:
    start = (body.lineno, body.col_offset)
    end = (body.end_lineno or 0, body.end_col_offset or 0)
    starts, ends = [], []
    for line, end_line, column, end_column in code.co_positions():
        if line is not None and end_line is not None and column is not None and end_column:
            starts.append((line, column))
            ends.append((end_line, end_column))
    return bool(starts) and min(starts) == start and max(ends) <= end


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _text(file: str, node: ast.AST) -> str:
    lines = linecache.getlines(file)
    if isinstance(node, ast.Lambda):
        return ast.get_source_segment("".join(lines), node) or ast.unparse(node)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    text = textwrap.dedent("".join(lines[_first_line(node) - 1 : node.end_lineno])).rstrip()
    try:
        same = ast.dump(ast.parse(text).body[0]) == ast.dump(node)
    except SyntaxError:
        same = False
    # They differ for a string with less indentation than the code, or for two statements on a line.
    return text if same else ast.unparse(node)
