"""Finds where a function decodes a JPEG and crops it: plain spellings of both, in one body."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
from libcst.metadata import QualifiedNameSource

from pipetune.source.functions import definition_of
from pipetune.source.statements import Statement, names_bound, statement_of
from pipetune.source.tree import SyntaxTree

_CROPS = {
    "tensorflow.image.random_crop": ("value", "size", "seed"),
    "tensorflow.slice": ("input_", "begin", "size"),
    "tensorflow.image.crop_to_bounding_box": (
        "image", "offset_height", "offset_width", "target_height", "target_width"),
}  # fmt: skip
DECODERS = frozenset({"tensorflow.io.decode_jpeg", "tensorflow.image.decode_jpeg"})
_CONDITIONAL = (cst.Lambda, cst.IfExp, cst.BooleanOperation, cst.BaseComp)


@dataclass(frozen=True)
class Decode:
    """A call that decodes: `tf.io.decode_jpeg(data, channels=3)`, or a call of a helper that does nothing else."""

    contents: cst.Arg
    channels: str


@dataclass(frozen=True)
class Place:
    """A crop of a decoded image in the body of a function."""

    function: cst.FunctionDef
    crop: cst.Call
    kind: str  # qualified name of the called function: "tensorflow.slice"
    given: dict[str, cst.Arg]  # by parameter name
    decode: Decode
    decoding: Statement | None  # the statement that decodes; None if the crop's argument is the decode

    @property
    def image(self) -> cst.BaseExpression:
        """The cropped expression."""
        return self.given[_CROPS[self.kind][0]].value


def places_in(tree: SyntaxTree, function: cst.FunctionDef) -> list[Place]:
    """Returns the crops in the body of a function whose image is decoded there."""
    found = []
    for call in tree.nodes(cst.Call):
        kind = next((name for name in full_names(tree, call) if name in _CROPS), None)
        if kind is None or function_running(tree, call) is not function:
            continue
        given = given_by_name(call, _CROPS[kind])
        wanted = [name for name in _CROPS[kind] if name != "seed"]
        if given is None or any(name not in given for name in wanted):
            continue
        value = given[wanted[0]].value
        decode, decoding = (_decode(tree, value), None) if isinstance(value, cst.Call) else (None, None)
        if isinstance(value, cst.Name):
            decode, decoding = _decoded_above(tree, function, call, value)
        if decode is not None:
            found.append(Place(function, call, kind, given, decode, decoding))
    return found


def _decoded_above(
    tree: SyntaxTree, function: cst.FunctionDef, crop: cst.Call, image: cst.Name
) -> tuple[Decode | None, Statement | None]:
    """Returns the decode and the statement that last assigns `image`, if it is one, in the function's own block."""
    statement = statement_of(tree, crop)
    block = function.body.body
    if statement is None or statement.block is not block:
        return None, None
    above = [line for line in block if tree.end(line) <= tree.start(statement.line)]
    binding = [line for line in above if image.value in names_bound(line)]
    if not binding or not isinstance(binding[-1], cst.SimpleStatementLine):
        return None, None
    decoding = statement_of(tree, binding[-1].body[0])
    if decoding is None or not decoding.alone or decoding.name != image.value or decoding.value is None:
        return None, None
    return (_decode(tree, decoding.value), decoding) if isinstance(decoding.value, cst.Call) else (None, None)


def _decode(tree: SyntaxTree, call: cst.Call) -> Decode | None:
    """Returns what a call decodes, and into how many channels; None if it is no plain decode."""
    if full_names(tree, call) & DECODERS:
        given = given_by_name(call, ("contents", "channels"))
        if given is None or set(given) != {"contents", "channels"}:
            return None
        channels = given["channels"].value
        return Decode(given["contents"], channels.value) if isinstance(channels, cst.Integer) else None
    helper = definition_of(tree, call.func) if isinstance(call.func, cst.Name) else None
    given = given_by_name(call, ("contents",))
    if helper is None or given is None or "contents" not in given or given["contents"].keyword is not None:
        return None
    inside = _only_decodes(tree, helper)
    return Decode(given["contents"], inside.channels) if inside is not None else None


def _only_decodes(tree: SyntaxTree, helper: cst.FunctionDef) -> Decode | None:
    """Returns the decode that a function of one parameter returns, if it does nothing else."""
    parameters = helper.params
    lines = [line for line in helper.body.body if not _is_text(line)]
    match lines:
        case [cst.SimpleStatementLine(body=[cst.Return(value=cst.Call() as value)])]:
            pass
        case _:
            return None
    if helper.decorators or len(parameters.params) != 1 or parameters.params[0].default is not None:
        return None
    if parameters.kwonly_params or parameters.posonly_params or parameters.star_kwarg is not None:
        return None
    inside = _decode(tree, value) if full_names(tree, value) & DECODERS else None
    same = inside is not None and tree.text(inside.contents.value) == parameters.params[0].name.value
    return inside if same else None


def _is_text(line: cst.CSTNode) -> bool:
    match line:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]):
            return True
    return False


def function_running(tree: SyntaxTree, node: cst.CSTNode) -> cst.CSTNode | None:
    """Returns the function whose body runs a piece of code; None if it may not run, or more than once."""
    around = list(tree.ancestors(node))
    if any(isinstance(parent, _CONDITIONAL) for parent in around):
        return None
    return next((parent for parent in around if isinstance(parent, cst.FunctionDef)), None)


def full_names(tree: SyntaxTree, call: cst.Call) -> set[str]:
    """Returns the qualified names that the called function was imported under."""
    scope = tree.scope(call)
    if scope is None:
        return set()
    names = scope.get_qualified_names_for(call.func)
    return {name.name for name in names if name.source is QualifiedNameSource.IMPORT}


def given_by_name(
    call: cst.Call, names: tuple[str, ...], *, more: frozenset[str] = frozenset()
) -> dict[str, cst.Arg] | None:
    """Returns the arguments of a call by parameter name; None if it has starred or other arguments.

    Args:
        names: parameters in their order, which may be passed by position or by name.
        more: parameters that may be passed by name only.
    """
    given: dict[str, cst.Arg] = {}
    for position, argument in enumerate(call.args):
        if argument.star or (argument.keyword is None and position >= len(names)):
            return None
        name = argument.keyword.value if argument.keyword is not None else names[position]
        if name not in names and name not in more:
            return None
        given[name] = argument
    return given
