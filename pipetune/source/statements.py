"""Statements: the one around a call, what it reads, binds and changes, and conditions joined or negated."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile

import libcst as cst
from libcst.metadata import QualifiedNameSource

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Splice
from pipetune.source.source_files import NEWLINE, line_end, line_start
from pipetune.source.syntax_tree import EFFECTS, SyntaxTree, nodes_within

NOT_RUN_ONCE: tuple[type[cst.CSTNode], ...] = (cst.Lambda, cst.IfExp, cst.BooleanOperation, cst.BaseComp)
"""Expressions whose parts may be evaluated not at all, or more than once."""


@dataclass(frozen=True)
class Statement:
    """A small statement (`ds = ds.batch(32)`) and its block."""

    small: cst.BaseSmallStatement
    line: cst.SimpleStatementLine | cst.SimpleStatementSuite
    block: Sequence[cst.BaseSmallStatement | cst.BaseStatement]  # all statements of its suite
    target: cst.BaseAssignTargetExpression | None  # of an assignment with a single target
    value: cst.BaseExpression | None

    @property
    def alone_on_line(self) -> bool:
        """Whether it has its line to itself."""
        return isinstance(self.line, cst.SimpleStatementLine) and len(self.line.body) == 1

    @property
    def name(self) -> str | None:
        """The name it assigns; None unless it assigns exactly one."""
        return self.target.value if isinstance(self.target, cst.Name) else None


def statement_of(tree: SyntaxTree, node: cst.CSTNode) -> Statement | None:
    """Returns the small statement around `node`; None in the head of a compound statement."""
    small = node
    while not isinstance(small, cst.BaseSmallStatement):
        parent = tree.parent(small)
        if parent is None or isinstance(parent, cst.BaseCompoundStatement):
            return None
        small = parent
    line = tree.parent(small)
    assert isinstance(line, cst.SimpleStatementSuite | cst.SimpleStatementLine)
    block = line if isinstance(line, cst.SimpleStatementSuite) else tree.parent(line)
    assert isinstance(block, cst.SimpleStatementSuite | cst.Module | cst.IndentedBlock)
    match small:
        case cst.Assign(targets=[cst.AssignTarget(target=target)], value=value):
            return Statement(small, line, block.body, target, value)
        case cst.AnnAssign(target=target, value=value):
            return Statement(small, line, block.body, target, value)
        case cst.Return(value=value) | cst.Expr(value=value) | cst.Assign(value=value):
            return Statement(small, line, block.body, None, value)
    return Statement(small, line, block.body, None, None)


def is_dotted(expression: cst.BaseExpression) -> bool:
    """Whether an expression is a name or a dotted name, such as `a.b.c`."""
    while isinstance(expression, cst.Attribute):
        expression = expression.value
    return isinstance(expression, cst.Name)


def first_line_start(tree: SyntaxTree, statement: cst.CSTNode) -> int:
    """Returns the offset at which the first line of a statement begins, or that of its first decorator."""
    decorators = statement.decorators if isinstance(statement, cst.FunctionDef | cst.ClassDef) else ()
    return line_start(tree.code, tree.start(decorators[0] if decorators else statement))


def start_with_comments(tree: SyntaxTree, statement: cst.CSTNode) -> int:
    """Returns the same offset, or that of the first of the comment lines directly above."""
    start = first_line_start(tree, statement)
    lines: Sequence[cst.EmptyLine] = getattr(statement, "leading_lines", ())
    for _ in takewhile(lambda line: line.comment is not None, reversed(lines)):
        start = tree.offset(tree.line(start) - 1, 0)
    return start


def last_line_end(tree: SyntaxTree, statement: cst.CSTNode) -> int:
    """Returns the offset at which the last line of a statement ends, including a comment on it."""
    return line_end(tree.code, len(tree.code[: tree.end(statement)].rstrip()))


def removal_splice(tree: SyntaxTree, statement: Statement) -> Splice:
    """Returns the splice that removes a statement, with its line if it is alone there; `pass` keeps a block valid."""
    code = tree.code
    start, end = tree.start(statement.small), tree.end(statement.small)
    if len(statement.line.body) > 1:
        position = next(i for i, small in enumerate(statement.line.body) if small is statement.small)
        if position + 1 < len(statement.line.body):
            return Splice(start, tree.start(statement.line.body[position + 1]), b"")
        return Splice(tree.end(statement.line.body[position - 1]), end, b"")
    if len(statement.block) == 1 or not statement.alone_on_line:
        return Splice(start, end, b"pass")
    first, last = line_start(code, start), line_end(code, end)
    if (newline := NEWLINE.match(code, last)) is not None:
        return Splice(first, newline.end(), b"")
    above = first - 2 if code[first - 2 : first] == b"\r\n" else max(first - 1, 0)
    return Splice(above, last, b"")  # the last line of a file without a final newline, which stays so


def variable_names(node: cst.CSTNode) -> list[str]:
    """Returns the variables a piece of code names, with repetitions; attributes and keywords do not count."""
    return [name.value for name in variable_nodes(node)]


def variable_nodes(node: cst.CSTNode) -> list[cst.Name]:
    """Returns every node that names a variable in a piece of code; attributes and keywords do not count."""
    return [one for one in _found_names(node, dotted=False) if isinstance(one, cst.Name)]


def names_read(code: cst.CSTNode) -> list[cst.Name | cst.Attribute]:
    """Returns the names and attributes that a piece of code reads; for `a.b.c` only the whole."""
    return _found_names(code, dotted=True)


def _found_names(code: cst.CSTNode, *, dotted: bool) -> list[cst.Name | cst.Attribute]:
    finder = _NameFinder(dotted=dotted)
    code.visit(finder)
    return finder.found


def unused_name(tree: SyntaxTree, *candidates: str) -> str:
    """Returns the first candidate that occurs nowhere in a file; `x_2`, `x_3` and so on follow the last one, `x`."""
    taken = {name.value for name in tree.nodes(cst.Name)}
    numbered = (f"{candidates[-1]}_{number}" for number in count(2))
    return next(name for name in chain(candidates, numbered) if name not in taken)


def free_name(taken: Container[str], *candidates: str, refusal: str) -> str:
    """Returns the first candidate that is not taken.

    Raises:
        CannotExpress: all are; `refusal` is its message.
    """
    if (name := next((one for one in candidates if one not in taken), None)) is None:
        raise CannotExpress(refusal)
    return name


def bound_names(node: cst.CSTNode) -> set[str]:
    """Returns every name that a statement may bind, including nested statements."""
    imported = nodes_within(node, cst.ImportAlias)
    return {
        *(name for target in bound_targets(node) for name in variable_names(target)),
        *(alias.evaluated_alias or alias.evaluated_name.partition(".")[0] for alias in imported),
    }


def bound_targets(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Returns what a piece of code assigns to: names, and attributes and items of objects."""
    targets = (getattr(one, _BOUND[type(one)]) for one in nodes_within(node, *_BOUND))
    return [one for one in targets if one is not None]


_BOUND: Mapping[type[cst.CSTNode], str] = {
    cst.AnnAssign: "target",
    cst.AsName: "name",
    cst.AssignTarget: "target",
    cst.AugAssign: "target",
    cst.ClassDef: "name",
    cst.Del: "target",
    cst.For: "target",
    cst.FunctionDef: "name",
    cst.MatchAs: "name",
    cst.MatchMapping: "rest",
    cst.MatchStar: "name",
    cst.NamedExpr: "target",
}
"""Nodes that bind names, and the field that holds them."""


class _NameFinder(cst.CSTVisitor):
    """Collects names; with `dotted` the attributes too, and of parameters only the defaults."""

    def __init__(self, *, dotted: bool) -> None:
        super().__init__()
        self.found: list[cst.Name | cst.Attribute] = []
        self._dotted = dotted

    def visit_Name(self, node: cst.Name) -> None:
        self.found.append(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        inner = node.value
        if self._dotted:
            self.found.append(node)
            while isinstance(inner, cst.Attribute):
                inner = inner.value
        if not (self._dotted and isinstance(inner, cst.Name)):
            inner.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Param(self, node: cst.Param) -> bool:
        if self._dotted and node.default is not None:
            node.default.visit(self)
        return not self._dotted


def runs_once(tree: SyntaxTree, node: cst.CSTNode, statement: Statement) -> bool:
    """Whether an expression in a statement is evaluated exactly once when the statement runs."""
    around = takewhile(lambda one: one is not statement.small, tree.ancestors(node))
    return not any(isinstance(one, NOT_RUN_ONCE) for one in around)


def unconditional_function(tree: SyntaxTree, node: cst.CSTNode) -> cst.FunctionDef | None:
    """Returns the function whose body runs a piece of code; None if it may not run, or more than once."""
    return tree.around(node, cst.FunctionDef) if tree.around(node, *NOT_RUN_ONCE) is None else None


def ends_function(statement: cst.CSTNode) -> bool:
    """Whether a statement, or the last one on its line, returns or raises."""
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[-1], cst.Return | cst.Raise)


def block_index(statement: Statement) -> int:
    """Returns the index of the statement's line in its block.

    Raises:
        CannotExpress: the statement shares its line with others.
    """
    if not statement.alone_on_line:
        raise CannotExpress("The statement shares its line with other statements.")
    return next(i for i, other in enumerate(statement.block) if other is statement.line)


def last_binding(tree: SyntaxTree, lines: Sequence[cst.CSTNode], name: str) -> Statement | None:
    """Returns the last of some statements that binds a name; None unless it assigns it alone."""
    for line in reversed(lines):
        if name in bound_names(line):
            found = statement_of(tree, line.body[0]) if isinstance(line, cst.SimpleStatementLine) else None
            return found if found is not None and found.alone_on_line and found.name == name else None
    return None


_PURE = frozenset(
    {"abs", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min", "range", "round",
     "set", "sorted", "str", "sum", "tuple", "zip"}
)  # fmt: skip
"""Builtins that only compute a value."""
_REPORTING = frozenset({"print", "format", "repr"})
_MODULES = frozenset({"absl.logging", "logging", "math", "os.path", "time", "datetime", "pprint"})
"""Modules whose functions change nothing that a function of a dataset could depend on."""
_LOGGERS = frozenset({"log", "logger", "logging"})
_LATER = (cst.Lambda,)  # its body runs later


def contains_call(node: cst.CSTNode) -> bool:
    """Whether a piece of code calls anything; the bodies of lambdas run later and do not count."""
    return any(nodes_within(node, cst.Call, without=_LATER))


def only_binds_or_reports(tree: SyntaxTree, line: cst.CSTNode) -> bool:
    """Whether a statement only binds plain names to values, or only prints, logs or asserts.

    Moving a call across it changes nothing, except through the names it binds.
    """
    match line:
        case cst.SimpleStatementLine(body=parts):
            return all(_part_only_binds_or_reports(tree, part) for part in parts)
        case cst.If(test=test, body=cst.IndentedBlock(body=lines), orelse=orelse):
            inner = [*lines, *([orelse] if orelse is not None else [])]
            return _is_side_effect_free(tree, test) and all(only_binds_or_reports(tree, one) for one in inner)
        case cst.Else(body=cst.IndentedBlock(body=lines)):
            return all(only_binds_or_reports(tree, one) for one in lines)
        case cst.FunctionDef(decorators=[], params=params):
            return not contains_call(params)  # only its defaults run when it is defined
    return False


def _part_only_binds_or_reports(tree: SyntaxTree, part: cst.BaseSmallStatement) -> bool:
    match part:
        case cst.Pass() | cst.AnnAssign(target=cst.Name(), value=None):
            return True
        case cst.Assign(targets=targets, value=value):
            return all(_only_names(one.target) for one in targets) and _is_side_effect_free(tree, value)
        case (
            cst.Expr(value=value)
            | cst.AnnAssign(target=cst.Name(), value=cst.BaseExpression() as value)
            | cst.AugAssign(target=cst.Name(), value=value)
            | cst.Assert(test=value)
        ):
            return _is_side_effect_free(tree, value)
    return False


def _only_names(target: cst.BaseAssignTargetExpression) -> bool:
    if isinstance(target, cst.Tuple):
        return all(isinstance(one.value, cst.Name) for one in target.elements)
    return isinstance(target, cst.Name)


def _is_side_effect_free(tree: SyntaxTree, value: cst.BaseExpression) -> bool:
    calls = nodes_within(value, cst.Call, without=_LATER)
    return not any(nodes_within(value, *EFFECTS, without=_LATER)) and all(_is_harmless_call(tree, one) for one in calls)


def _is_harmless_call(tree: SyntaxTree, call: cst.Call) -> bool:
    for one in tree.qualified_names(call.func, at=call):
        if one.source is QualifiedNameSource.BUILTIN:
            return one.name.removeprefix("builtins.") in _PURE | _REPORTING
        if one.source is QualifiedNameSource.IMPORT:
            return one.name.rpartition(".")[0] in _MODULES
    match call.func:
        case cst.Attribute(value=cst.Name(value=owner)):
            return owner.lower() in _LOGGERS
    return False


def is_builtin_without_effects(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call is of a builtin that only computes a value."""
    names = tree.qualified_names(call.func, at=call)
    kinds = {(one.source, one.name.removeprefix("builtins.") in _PURE) for one in names}
    return kinds == {(QualifiedNameSource.BUILTIN, True)}


def only_reads(tree: SyntaxTree, value: cst.BaseExpression) -> bool:
    """Whether an expression only reads: its calls are of such builtins, or `get("key")`, as of a dictionary."""
    for call in nodes_within(value, cst.Call, without=_LATER):
        match call:
            case cst.Call(func=cst.Attribute(attr=cst.Name(value="get")), args=[cst.Arg(value=cst.SimpleString()), *_]):
                continue
        if not is_builtin_without_effects(tree, call):
            return False
    return not any(nodes_within(value, *EFFECTS, without=_LATER))


def is_evaluated_first(tree: SyntaxTree, call: cst.Call, statement: Statement) -> bool:
    """Whether a statement evaluates a call first, and exactly once; only names are read before it."""
    inner: cst.CSTNode = call
    for parent in tree.ancestors(call):
        if inner is statement.value:
            return True
        match parent:
            case cst.Attribute() | cst.Arg():
                pass
            case cst.Call(func=func, args=args):
                before = list(takewhile(lambda one: one is not inner, args)) if func is not inner else []  # noqa: B023
                if (func is not inner and not is_dotted(func)) or any(contains_call(one) for one in before):
                    return False
            case _:
                return False
        inner = parent
    return False


_LOW_PRECEDENCE = cst.IfExp | cst.Lambda | cst.NamedExpr | cst.Tuple
"""Expressions that bind less tightly than `and`, in addition to `or`."""


def negate(condition: str) -> str:
    """Returns the negation of a condition."""
    test = _try_parse(condition)
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return cst.Module([]).code_for_node(test.expression)
    return f"not {condition}" if isinstance(test, cst.Name | cst.Attribute | cst.Call) else f"not ({condition})"


def conjunction(conditions: Sequence[str]) -> str:
    """Returns the conjunction of the conditions."""
    if len(conditions) == 1:
        return conditions[0] if _try_parse(conditions[0]) else f"({conditions[0]})"
    return " and ".join(map(_and_operand, conditions))


def parse_condition(condition: str) -> cst.BaseExpression:
    """Returns the expression, even if it spans several lines and relies on the parentheses around it in the source."""
    return _try_parse(condition) or cst.parse_expression(f"({condition})")


def _and_operand(condition: str) -> str:
    test = _try_parse(condition)
    either = isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or)
    enclosed = test is not None and bool(test.lpar)
    loose = test is None or either or isinstance(test, _LOW_PRECEDENCE)
    return f"({condition})" if loose and not enclosed else condition


def _try_parse(condition: str) -> cst.BaseExpression | None:
    """Returns the expression; None if it spans several lines and is valid only in the parentheses around it."""
    try:
        return cst.parse_expression(condition)
    except cst.ParserSyntaxError:
        return None
