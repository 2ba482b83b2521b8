"""Splits the function of a map in two between two of its statements; `tf/pipelines/cutting.py` splits its graph.

The first function returns the local variables that the second reads. A new map directly upstream calls the first, and
the original map calls the second. The original function is removed unless something else names it.
"""

from __future__ import annotations

import glob
import os
import re

import libcst as cst

from pipetune.core.edits import SplitFunction
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import Cut
from pipetune.source.callables import function_given
from pipetune.source.chain import break_of, link_of
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.functions import definition_of
from pipetune.source.local_names import handed_names
from pipetune.source.statements import assigns_itself, name_nodes, statement_of
from pipetune.source.text import line_end, line_start, newline_of
from pipetune.source.tree import SyntaxTree


def split_function(draft: Draft, edit: SplitFunction, *, kept: bool = False) -> Draft:
    """Returns the draft in which a new map directly upstream of `edit.node` calls the first part of its function.

    Args:
        kept: whether the whole function stays, for another dataset that calls it.

    Raises:
        CannotExpress: the function cannot be split between two statements, or its parts would exchange other values
            than the tensors in the plan.
    """
    tree, call = draft.find(edit.node)
    file = draft.sites[edit.node].file
    if draft.together(edit.node) != (edit.node,):
        raise CannotExpress("One call makes several of the maps.")
    argument, function = _function_called(tree, call)
    block = _block(function, edit.cut)
    handed = handed_names(function, block, edit.cut)
    name = function.name.value
    head, tail = _free_names(tree, name)
    kept = kept or _named_elsewhere(draft, tree, file, function)
    assert edit.cut.statement is not None
    splices = [
        _definitions(tree, function, block, edit.cut.statement, names=(head, tail), handed=handed, kept=kept),
        Splice(tree.start(argument.value), tree.end(argument.value), tail.encode()),
    ]
    above, ends = _call_above(tree, call, argument, head)
    splices.append(above)
    shift = sum(len(one.new) - (one.end - one.start) for one in splices if one.start < above.start)
    site = Site(file, above.start + shift + ends)
    return draft.at_place_of(edit.node, edit.head).splice(file, splices).place(edit.head, site)


def _call_above(tree: SyntaxTree, call: cst.Call, argument: cst.Arg, head: str) -> tuple[Splice, int]:
    """Returns the splice with the same call for the first part, as a statement or link, and the call's end in it."""
    code, given, end = tree.code, tree.start(argument.value), tree.end(argument.value)
    statement = statement_of(tree, call)
    if statement is not None and statement.alone and assigns_itself(tree, statement, call):
        start = line_start(code, tree.start(statement.small))
        text = code[start:given] + head.encode() + code[end : tree.end(call)]
        rest = code[tree.end(call) : tree.end(statement.small)] + newline_of(code, start)
        return Splice(start, start, text + rest), len(text)
    link, style = link_of(tree, call), break_of(tree, call.func)
    back = link.end - given  # distance from the function's name to the end of the link
    text = b"." + style.after + link.text[:-back] + head.encode() + code[end : link.end]
    return Splice(link.dot, link.dot, text + style.before), len(text)


def _function_called(tree: SyntaxTree, call: cst.Call) -> tuple[cst.Arg, cst.FunctionDef]:
    """Returns the argument that names the function, and the function's definition in the same file."""
    argument = function_given(tree, call)
    if argument is None or not isinstance(argument.value, cst.Name):
        raise CannotExpress("The function of the map has no name, by which its parts could be called.")
    function = definition_of(tree, argument.value)
    if function is None:
        raise CannotExpress(f"{argument.value.value} is not defined once, in the file of the map.")
    if function.decorators or function.asynchronous is not None:
        raise CannotExpress(f"{function.name.value} has a decorator, or is asynchronous.")
    return argument, function


def _block(function: cst.FunctionDef, cut: Cut) -> list[cst.BaseStatement]:
    """Returns the statements of the function's body; the cut lies between two of them.

    Raises:
        CannotExpress: the cut lies inside a statement, statements share a line, or the first part may return early,
            yields, or binds names outside of the function.
    """
    name = function.name.value
    if cut.statement is None:
        raise CannotExpress(f"The place where {name} is cut lies inside a statement.")
    if not isinstance(function.body, cst.IndentedBlock):
        raise CannotExpress(f"The body of {name} stands on the line of its def.")
    body = list(function.body.body)
    if any(isinstance(line, cst.SimpleStatementLine) and len(line.body) > 1 for line in body):
        raise CannotExpress(f"Statements of {name} share a line.")
    if not 0 < cut.statement < len(body):
        raise CannotExpress(f"{name} has no statements in front of the place where it is cut.")
    finder = _Leaving()
    for line in body[: cut.statement]:
        line.visit(finder)
    if finder.found:
        raise CannotExpress(f"The first part of {name} may return before its end, or binds names outside of it.")
    return body


class _Leaving(cst.CSTVisitor):
    """Finds statements that return, yield or bind outer names; nested functions are not searched."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_Return(self, node: cst.Return) -> None:
        self.found = True

    def visit_Yield(self, node: cst.Yield) -> None:
        self.found = True

    def visit_Global(self, node: cst.Global) -> None:
        self.found = True

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:
        self.found = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False


def _free_names(tree: SyntaxTree, name: str) -> tuple[str, str]:
    taken = {one.value for one in tree.nodes(cst.Name)}
    for head, tail in ((f"{name}_head", f"{name}_tail"), (f"{name}_first_part", f"{name}_second_part")):
        if not taken.intersection((head, tail)):
            return head, tail
    raise CannotExpress(f"There are no plain names left for the parts of {name}.")


def _definitions(
    tree: SyntaxTree,
    function: cst.FunctionDef,
    block: list[cst.BaseStatement],
    place: int,
    *,
    names: tuple[str, str],
    handed: tuple[str, ...],
    kept: bool,
) -> Splice:
    """Returns the splice that puts both functions in place of the original, or after it if the original is kept."""
    code = tree.code
    start, first = tree.start(function), line_start(code, tree.start(block[0]))
    indentation, inner = code[line_start(code, start) : start], code[first : tree.start(block[0])]
    if indentation.strip() or inner.strip():
        raise CannotExpress(f"The def of {function.name.value} shares its line with another statement.")
    newline = newline_of(code, start)
    cut_at, end = (_end_of_line(tree, block[at]) for at in (place - 1, -1))
    values = ", ".join(handed).encode()
    head = b"def " + names[0].encode() + _heading(tree, function) + code[first:cut_at]
    tail = b"def " + names[1].encode() + b"(" + values + b"):" + newline + _BLANK_LINES.sub(b"", code[cut_at:end])
    gap = newline * (2 if indentation else 3) + indentation
    both = head + newline + inner + b"return " + values + gap + tail
    return Splice(end, end, gap + both) if kept else Splice(start, end, both)


_BLANK_LINES = re.compile(rb"\A(?:[ \t]*(?:\r\n|\r|\n))+")


def _heading(tree: SyntaxTree, function: cst.FunctionDef) -> bytes:
    """Returns the source from the parameters to the first statement, without the return annotation."""
    code, end = tree.code, tree.end(function.name)
    first = line_start(code, tree.start(function.body.body[0]))
    if function.returns is None:
        return code[end:first]
    said = function.returns.annotation
    return code[end : tree.start(said)].rstrip().removesuffix(b"->").rstrip() + code[tree.end(said) : first]


def _end_of_line(tree: SyntaxTree, statement: cst.BaseStatement) -> int:
    """Returns the offset at which the last line of a statement ends, including a comment on it."""
    return line_end(tree.code, len(tree.code[: tree.end(statement)].rstrip()))


def _named_elsewhere(draft: Draft, tree: SyntaxTree, file: str, function: cst.FunctionDef) -> bool:
    """Whether anything but the map may call the function, in its file or in another file of the folder."""
    name = function.name.value
    uses = [one for one in name_nodes(tree.module) if one is not function.name and definition_of(tree, one) is function]
    if len(uses) > 1 or re.search(rf"""["']{name}["']""", tree.code.decode()):
        return True
    folder = os.path.dirname(os.path.abspath(file))
    beside = (path for path in glob.glob(os.path.join(glob.escape(folder), "*.py")) if path != os.path.abspath(file))
    return any(re.search(rf"\b{name}\b", _text_of(draft, path)) for path in beside)


def _text_of(draft: Draft, path: str) -> str:
    try:
        return draft.read(path)
    except (OSError, SyntaxError, UnicodeError):
        return ""
