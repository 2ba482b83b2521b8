"""Writing "decode this JPEG, then crop it" as decoding the window only; `tf/pipelines/cropped.py` does it at run time.

The call that crops becomes one of a helper that stands in the file once, and the statement that decoded goes. Only
plain spellings are changed: both in the body of one function, the image under one name that nothing else reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Assignment, QualifiedNameSource

from pipetune.core.errors import CannotExpress
from pipetune.source.crop_helpers import RANDOM_WINDOW, WINDOW, insert_helpers
from pipetune.source.draft import Draft, Splice
from pipetune.source.forms import function_given
from pipetune.source.imported import imported_function
from pipetune.source.statements import Statement, deletion, name_nodes, names_bound, names_read, statement_of
from pipetune.source.tree import SyntaxTree

_CROPS = {
    "tensorflow.image.random_crop": ("value", "size", "seed"),
    "tensorflow.image.crop_to_bounding_box": (
        "image", "offset_height", "offset_width", "target_height", "target_width"),
}  # fmt: skip
_DECODERS = frozenset({"tensorflow.io.decode_jpeg", "tensorflow.image.decode_jpeg"})
_CONDITIONAL = (cst.Lambda, cst.IfExp, cst.BooleanOperation, cst.BaseComp)


@dataclass(frozen=True)
class _Decode:
    """A call that decodes: `tf.io.decode_jpeg(data, channels=3)`, or one of a helper that does nothing else."""

    contents: cst.Arg
    channels: str


@dataclass(frozen=True)
class _Place:
    """A crop of a decoded image in the body of a function."""

    function: cst.FunctionDef
    crop: cst.Call
    kind: str  # the crop's full name
    given: dict[str, cst.Arg]
    decode: _Decode
    decoding: Statement | None  # the statement that decodes; None where the crop's own argument does


def decode_windows(draft: Draft, node: str) -> Draft:
    """The draft in which the function of the map `node` decodes only the window it crops.

    Raises:
        CannotExpress: the decode and the crop are not written in a way that is safe to change, or what would change
            is used elsewhere too.
    """
    tree, call = draft.find(node)
    file = draft.sites[node].file
    root: cst.FunctionDef | cst.BaseExpression = _given_function(call)
    if isinstance(root, cst.Name) and (imported := imported_function(draft, file, root)) is not None:
        draft, file, root = imported
        tree = draft.tree(file)
    places = [place for function in _reached(tree, root) for place in _places(tree, function)]
    if len(places) != 1:
        raise CannotExpress(f"{len(places)} plain crops of a decoded JPEG stand in the functions that the map names.")
    (place,) = places
    _refuse_used_elsewhere(tree, place.function, root)
    splices = [*_without_decoding(tree, place), _crop_of_window(tree, place)]
    names = [RANDOM_WINDOW, WINDOW] if place.kind.endswith("random_crop") else [WINDOW]
    return insert_helpers(draft, file, names, splices, before=place.function)


def _given_function(call: cst.Call) -> cst.BaseExpression:
    argument = function_given(call)
    if argument is None:
        raise CannotExpress("The call of map does not show its function.")
    return argument.value


def _reached(tree: SyntaxTree, root: cst.FunctionDef | cst.BaseExpression) -> list[cst.FunctionDef]:
    """The functions of this file that the root is or names, and those they name."""
    found = [root] if isinstance(root, cst.FunctionDef) else []
    waiting: list[cst.CSTNode] = [root.body if isinstance(root, cst.FunctionDef) else root]
    while waiting:
        for name in name_nodes(waiting.pop()):
            function = _definition(tree, name)
            if function is not None and all(function is not one for one in found):
                found.append(function)
                waiting.append(function.body)
    return found


def _definition(tree: SyntaxTree, name: cst.Name) -> cst.FunctionDef | None:
    """The function of this file that a name stands for, and nothing else."""
    scope = tree.scope(name)
    assignments = list(scope[name.value]) if scope is not None else []
    if len(assignments) != 1 or not isinstance(assignments[0], Assignment):
        return None
    made = assignments[0].node
    return made if isinstance(made, cst.FunctionDef) else None


def _refuse_used_elsewhere(
    tree: SyntaxTree, function: cst.FunctionDef, root: cst.FunctionDef | cst.BaseExpression
) -> None:
    """Refuses to change what others use too; their images may be no JPEGs.

    Raises:
        CannotExpress: the function, or one that leads to it, is named anywhere but on the way from the map.
    """
    uses = [
        name for name in name_nodes(tree.module) if name is not function.name and _definition(tree, name) is function
    ]
    wanted = 0 if function is root else 1  # the map that names the root stands in another file
    if len(uses) != wanted:
        count = len(uses) + 1 - wanted
        raise CannotExpress(f"{function.name.value} is used in {count} places, and would change for all of them.")
    around = [uses[0], *tree.ancestors(uses[0])] if uses else []
    if function is root or any(parent is root for parent in around):
        return
    user = next((parent for parent in around if isinstance(parent, cst.FunctionDef)), None)
    if user is None or user is function:
        raise CannotExpress(f"{function.name.value} is used elsewhere too.")
    _refuse_used_elsewhere(tree, user, root)


def _places(tree: SyntaxTree, function: cst.FunctionDef) -> list[_Place]:
    """The crops in the body of a function whose image is decoded there."""
    found = []
    for call in tree.nodes(cst.Call):
        kind = next((name for name in _full_names(tree, call) if name in _CROPS), None)
        around = list(tree.ancestors(call))
        inside = next((parent for parent in around if isinstance(parent, cst.FunctionDef)), None)
        if kind is None or inside is not function or any(isinstance(parent, _CONDITIONAL) for parent in around):
            continue
        given = _given(call, _CROPS[kind])
        image = next(iter(_CROPS[kind]))
        if given is None or image not in given or len(given) < 2:
            continue
        value = given[image].value
        decode, decoding = (_decode(tree, value), None) if isinstance(value, cst.Call) else (None, None)
        if isinstance(value, cst.Name):
            decode, decoding = _decoded_above(tree, function, call, value)
        if decode is not None:
            found.append(_Place(function, call, kind, given, decode, decoding))
    return found


def _decoded_above(
    tree: SyntaxTree, function: cst.FunctionDef, crop: cst.Call, image: cst.Name
) -> tuple[_Decode | None, Statement | None]:
    """The statement that gives the name its image, where that is one that decodes, in the function's own block."""
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


def _decode(tree: SyntaxTree, call: cst.Call) -> _Decode | None:
    """What a call decodes, and into how many channels."""
    if _full_names(tree, call) & _DECODERS:
        given = _given(call, ("contents", "channels"))
        if given is None or set(given) != {"contents", "channels"}:
            return None
        channels = given["channels"].value
        return _Decode(given["contents"], channels.value) if isinstance(channels, cst.Integer) else None
    helper = _definition(tree, call.func) if isinstance(call.func, cst.Name) else None
    given = _given(call, ("contents",))
    if helper is None or given is None or "contents" not in given or given["contents"].keyword is not None:
        return None
    inside = _only_decodes(tree, helper)
    return _Decode(given["contents"], inside.channels) if inside is not None else None


def _only_decodes(tree: SyntaxTree, helper: cst.FunctionDef) -> _Decode | None:
    """The decode that a function of one parameter returns, where it does nothing else."""
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
    inside = _decode(tree, value) if _full_names(tree, value) & _DECODERS else None
    same = inside is not None and tree.text(inside.contents.value) == parameters.params[0].name.value
    return inside if same else None


def _is_text(line: cst.CSTNode) -> bool:
    match line:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]):
            return True
    return False


def _without_decoding(tree: SyntaxTree, place: _Place) -> list[Splice]:
    """Takes out the statement that decodes, or leaves of it what gives the bytes.

    Raises:
        CannotExpress: the decoded image is read elsewhere, or its bytes have another name by the time of the crop.
    """
    if place.decoding is None:
        return []
    name, statement = place.decoding.name, statement_of(tree, place.crop)
    assert name is not None and statement is not None
    image = next(iter(place.given.values())).value
    begin, end = tree.end(place.decoding.small), tree.end(statement.small)
    for read in name_nodes(place.function.body):
        if read.value != name or tree.start(read) < begin or read is image or read is statement.target:
            continue
        if tree.start(read) < end or statement.name != name:
            raise CannotExpress(f"{name} is read elsewhere too, not only by the crop.")
    if not _stays(place.decode.contents.value):
        new = f"{_name_of_contents(tree, place)} = {_in_parentheses(_text(tree, place.decode.contents))}"
        return [Splice(tree.start(place.decoding.small), begin, new.encode())]
    named = set(names_read(place.decode.contents.value))
    between = [line for line in statement.block if begin < tree.start(line) < tree.start(statement.line)]
    if any(names_bound(line) & named for line in between):
        raise CannotExpress("What is decoded is assigned anew before the crop.")
    return [deletion(tree, place.decoding)]


def _stays(contents: cst.BaseExpression) -> bool:
    """Whether an expression gives the same where the crop stands: a name, or an entry under a fixed key."""
    match contents:
        case cst.Name():
            return True
        case cst.Subscript(value=cst.Name(), slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
            return isinstance(key, cst.SimpleString | cst.Integer)
    return False


def _name_of_contents(tree: SyntaxTree, place: _Place) -> str:
    taken = {name.value for name in name_nodes(tree.module)}
    name = next((one for one in ("contents", "jpeg", "encoded_image") if one not in taken), None)
    if name is None:
        raise CannotExpress("There is no plain name left for the bytes of the image.")
    return name


def _crop_of_window(tree: SyntaxTree, place: _Place) -> Splice:
    """The call of the helper in place of the call that crops."""
    given = {name: _text(tree, argument) for name, argument in place.given.items()}
    decode, channels = place.decode, place.decode.channels
    direct = place.decoding is None or _stays(decode.contents.value)
    contents = _text(tree, decode.contents) if direct else _name_of_contents(tree, place)
    if place.kind.endswith("random_crop"):
        seed = f", seed={given['seed']}" if "seed" in given else ""
        text = f"{RANDOM_WINDOW}({contents}, {given['size']}, channels={channels}{seed})"
    else:
        begin = f"[{given['offset_height']}, {given['offset_width']}, 0]"
        size = f"[{given['target_height']}, {given['target_width']}, {channels}]"
        text = f"{WINDOW}({contents}, {begin}, {size}, channels={channels})"
    return Splice(tree.start(place.crop), tree.end(place.crop), text.encode())


def _in_parentheses(text: str) -> str:
    return f"({text})" if "\n" in text or "\r" in text else text


def _text(tree: SyntaxTree, argument: cst.Arg) -> str:
    """The value of an argument as written, parentheses around it included."""
    text = tree.text(argument)
    return text.partition("=")[2].strip() if argument.keyword is not None else text


def _full_names(tree: SyntaxTree, call: cst.Call) -> set[str]:
    scope = tree.scope(call)
    if scope is None:
        return set()
    names = scope.get_qualified_names_for(call.func)
    return {name.name for name in names if name.source is QualifiedNameSource.IMPORT}


def _given(call: cst.Call, names: tuple[str, ...]) -> dict[str, cst.Arg] | None:
    """The arguments of a call by the names of its parameters; None where it has others."""
    given: dict[str, cst.Arg] = {}
    for position, argument in enumerate(call.args):
        if argument.star or (argument.keyword is None and position >= len(names)):
            return None
        name = argument.keyword.value if argument.keyword is not None else names[position]
        if name not in names:
            return None
        given[name] = argument
    return given
