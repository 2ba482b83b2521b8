"""Rewrites `tf.where` between two arrays as `tf.cond`, and computes in each branch what only this branch needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node
from pipetune.source.call_arguments import arguments_by_name, needed_tensorflow_text
from pipetune.source.chain import MIN_LINE_WIDTH
from pipetune.source.draft import Draft, Splice, replacing, spliced
from pipetune.source.map_functions import functions_behind_map, refuse_used_elsewhere
from pipetune.source.source_files import BYTE_ORDER_MARK, line_end, line_start, newline_of
from pipetune.source.statements import (
    Statement,
    block_index,
    bound_names,
    is_builtin_without_effects,
    removal_splice,
    runs_once,
    statement_of,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import EFFECTS, SyntaxTree, nodes_within, parse
from pipetune.source.user_functions import definition_of

_PARAMETERS = {"condition": "pred", "x": "true_fn", "y": "false_fn"}
"""Parameters of `tf.where`, and of `tf.cond` in its place."""
_LONGEST_LINE = 120  # a line may be as long as the longest of its file, up to this


def write(draft: Draft, node: Node) -> Draft:
    """Returns the draft in which the function of the map `node` computes only the arrays that it selects.

    Raises:
        CannotExpress: a selection is not written in a way that is safe to change, or its code is used elsewhere, too.
    """
    file, root, functions = functions_behind_map(draft, node.id)
    tree, original = draft.tree(file), parse(draft.read(file).removeprefix(BYTE_ORDER_MARK).encode())
    splices: list[Splice] = []
    for selection in node.function.selections if node.function is not None else ():  # by their lines as captured
        if selection.why_not:
            continue
        if not os.path.exists(selection.file) or not os.path.samefile(selection.file, file):
            raise CannotExpress(f"tf.where is called in another file than the function: {selection.file}.")
        function, moved = _function_at(tree, original, functions, selection.line)
        statement, calls = _calls_at(tree, function, selection.line + moved)
        refuse_used_elsewhere(draft, file, function, root)
        kept = {line + moved for line in selection.kept_lines}
        branches = _Branches(tree, function, statement, calls, kept)
        if left := {line + moved for line in selection.moved_lines} - branches.moved_lines:
            raise CannotExpress(
                f"Line {min(left)} computes what only one side of tf.where needs, but is not written in a way that is "
                "safe to move."
            )
        splices += branches.splices()
    return draft.splice(file, splices)


def _function_at(
    tree: SyntaxTree, original: SyntaxTree, functions: Iterable[cst.FunctionDef], line: int
) -> tuple[cst.FunctionDef, int]:
    """Returns the function with a line of the original text, and by how many lines earlier edits have moved it."""
    for function in functions:
        for one in original.nodes(cst.FunctionDef):
            same = one.name.value == function.name.value and original.text(one) == tree.text(function)
            if same and line in original.lines(one):
                moved = tree.lines(function).start - original.lines(one).start
                nested = nodes_within(function.body, cst.FunctionDef)
                if not any(line + moved in tree.lines(inner) for inner in nested):
                    return function, moved
    raise CannotExpress(f"tf.where in line {line} is in no function that the map refers to by its name.")


def _calls_at(tree: SyntaxTree, function: cst.FunctionDef, line: int) -> tuple[Statement, list[cst.Call]]:
    """Returns the statement of a function on a line, and its calls of `tf.where`, inner ones first."""
    statements: dict[cst.BaseSmallStatement, Statement] = {}
    for call in nodes_within(function.body, cst.Call):
        statement = statement_of(tree, call) if _is_where(tree, call) else None
        if statement is not None and line in tree.lines(statement.small):
            statements[statement.small] = statement
    if len(statements) != 1:
        raise CannotExpress(f"{len(statements)} statements in line {line} call tf.where; exactly one is needed.")
    (statement,) = statements.values()
    calls = sorted((one for one in nodes_within(statement.small, cst.Call) if _is_where(tree, one)), key=tree.end)
    if any(nodes_within(statement.small, *EFFECTS)) or not all(runs_once(tree, one, statement) for one in calls):
        raise CannotExpress(f"The statement in line {line} may call tf.where more than once, or not at all.")
    return statement, calls


def _is_where(tree: SyntaxTree, call: cst.Call) -> bool:
    return tree.means_import(call.func, "tensorflow.where", at=call)


class _Branches:
    """The calls of `tf.where` in a statement, written as `tf.cond`; code in lines `kept` must not go into a branch."""

    def __init__(
        self, tree: SyntaxTree, function: cst.FunctionDef, statement: Statement, calls: list[cst.Call], kept: set[int]
    ) -> None:
        self._tree, self._function, self._statement, self._kept = tree, function, statement, kept
        self._calls = {call: self._arguments(call) for call in calls}
        self._values: dict[cst.Name, cst.BaseExpression] = {}  # of variables that are computed where they are read
        self._removed: list[Statement] = []
        for given in self._calls.values():
            for side in (given["x"].value, given["y"].value):
                self._move(side, statement)

    @property
    def moved_lines(self) -> set[int]:
        """The lines of the statements that move into a branch."""
        return {line for statement in self._removed for line in self._tree.lines(statement.small)}

    def splices(self) -> Iterator[Splice]:
        """Yields the changes."""
        for call in self._outermost(self._statement.small):
            yield replacing(self._tree, call, self._text(call))
        for statement in self._removed:
            yield removal_splice(self._tree, statement)

    def _arguments(self, call: cst.Call) -> dict[str, cst.Arg]:
        tree, given = self._tree, arguments_by_name(call.args, tuple(_PARAMETERS))
        if given is None or set(given) != set(_PARAMETERS) or given["condition"] is not call.args[0]:
            raise CannotExpress("tf.where is not called with a condition and then two arrays.")
        lines = {tree.line(tree.start(call))}
        for side in (given["x"], given["y"]):
            lines.update(tree.lines(side))
            if "super" in variable_names(side.value):
                raise CannotExpress("super() means something else in a lambda.")
        if lines & self._kept:
            raise CannotExpress("An argument of tf.where draws random numbers or may reject elements.")
        return given

    # -- what moves

    def _move(self, code: cst.BaseExpression, reading: Statement) -> None:
        """Moves the values of variables that only `code`, in the statement `reading`, reads to where they are read."""
        for name in variable_nodes(code):
            binding = self._only_binding(name, reading)
            if binding is not None and binding.value is not None and self._may_move(binding, binding.value):
                self._values[name] = binding.value
                self._removed.append(binding)
                self._move(binding.value, binding)

    def _only_binding(self, name: cst.Name, reading: Statement) -> Statement | None:
        """Returns the statement above, in the same block, whose variable is read only here; None if there is none."""
        uses = [one for one in variable_nodes(self._function) if one.value == name.value]
        if len(uses) != 2 or not isinstance(reading.line, cst.SimpleStatementLine):
            return None
        statement = statement_of(self._tree, uses[0])
        if statement is None or statement.target is not uses[0] or not statement.alone_on_line:
            return None
        return statement if any(statement.line is one for one in self._statement.block) else None

    def _may_move(self, binding: Statement, value: cst.BaseExpression) -> bool:
        """Whether a value is the same when it is computed in the statement that selects, and nothing else changes."""
        if self._kept.intersection(self._tree.lines(binding.line)) or not _is_pure(self._tree, value):
            return False
        at = next(place for place, line in enumerate(self._statement.block) if line is self._statement.line)
        between, read = self._statement.block[block_index(binding) + 1 : at], set(variable_names(value))
        return all(_is_pure(self._tree, line) and not bound_names(line) & read for line in between)

    # -- the text

    def _outermost(self, code: cst.CSTNode) -> list[cst.CSTNode]:
        """Returns the calls and variables in a piece of code that are replaced, without those inside of others."""
        inside = [one for one in nodes_within(code, cst.Call, cst.Name) if one in self._calls or one in self._values]
        kept = [one for one in inside if not any(up in inside for up in self._tree.ancestors(one))]
        return sorted(kept, key=self._tree.start)

    def _text(self, code: cst.CSTNode) -> str:
        """Returns an expression as it will be, with the parentheses around it."""
        if isinstance(code, cst.Call) and code in self._calls:
            return self._conditional(code)
        if isinstance(code, cst.Name) and code in self._values:
            value = self._values[code]
            argument = isinstance(self._tree.parent(code), cst.Arg) and not isinstance(value, cst.Tuple)
            alone = argument or isinstance(value, _ATOMS) or bool(value.lpar)
            return self._text(value) if alone else f"({self._text(value)})"
        assert isinstance(code, cst.BaseExpression)
        return self._replace(self._tree.whole_span(code), {one: self._text(one) for one in self._outermost(code)})

    def _replace(self, span: tuple[int, int], texts: dict[cst.CSTNode, str]) -> str:
        """Returns the text of a span, where `texts` stand in place of some nodes."""
        changes = [replacing(self._tree, node, text) for node, text in texts.items()]
        return spliced(self._tree.code, changes, start=span[0], end=span[1]).decode()

    def _conditional(self, call: cst.Call) -> str:
        tree, given = self._tree, self._calls[call]
        function = needed_tensorflow_text(tree, call, "cond", "tf.cond")
        texts: dict[cst.CSTNode, str] = {}
        for name, argument in sorted(given.items(), key=lambda item: tree.start(item[1])):
            keyword = f"{_PARAMETERS[name]}=" if argument.keyword is not None else ""
            start = "" if name == "condition" else "lambda: "
            texts[argument] = f"{keyword}{start}{self._text(argument.value)}"
        text = self._replace((tree.start(call), tree.end(call)), {call.func: function, **texts})
        line = tree.code[line_start(tree.code, tree.start(call)) : line_end(tree.code, tree.end(call))].decode()
        lengths = [len(one) for one in tree.code.decode().splitlines() if len(one) <= _LONGEST_LINE]
        fits = len(line) - len(tree.text(call)) + len(text) <= max(MIN_LINE_WIDTH, *lengths)
        if fits or "\n" in text or "\n" in line:
            return text
        indentation = line[: len(line) - len(line.lstrip())]
        newline = newline_of(tree.code, tree.start(call)).decode()
        inner = newline + indentation + tree.indentation_unit.decode()
        return f"{function}(" + "".join(f"{inner}{one}," for one in texts.values()) + f"{newline}{indentation})"


_ATOMS = (cst.Attribute, cst.BaseNumber, cst.Call, cst.Name, cst.Subscript)
_IMPURE = (*EFFECTS, cst.Assert, cst.AugAssign, cst.Del, cst.Global, cst.Import, cst.ImportFrom, cst.Nonlocal,
           cst.Raise)  # fmt: skip


def _is_pure(tree: SyntaxTree, code: cst.CSTNode, around: tuple[cst.FunctionDef, ...] = ()) -> bool:
    """Whether a piece of code only computes values and binds variables, apart from ops that it adds to the graph.

    Args:
        around: functions that the code is part of.
    """
    return not any(nodes_within(code, *_IMPURE)) and all(
        any(name.startswith("tensorflow.") for name in tree.imported_names(call.func))
        or is_builtin_without_effects(tree, call)
        or _is_pure_function(tree, call.func, around)
        for call in nodes_within(code, cst.Call)
    )


def _is_pure_function(tree: SyntaxTree, called: cst.BaseExpression, around: tuple[cst.FunctionDef, ...]) -> bool:
    function = definition_of(tree, called) if isinstance(called, cst.Name) else None
    if function is None or function in around or function.decorators:
        return False
    targets = [one.target for one in nodes_within(function.body, cst.AssignTarget)]
    only_names = all(isinstance(one, cst.Name | cst.Tuple) for one in targets)
    return only_names and _is_pure(tree, function.body, (*around, function))
