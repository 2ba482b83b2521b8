"""Rewrites decoding and cropping a JPEG as decoding the window only; `tf/pipelines/cropped.py` does so at run time.

The crop becomes a call of a helper that is added to the file once, and the statement that decodes is removed. Only
plain spellings are changed: both in the body of one function, the image in one variable that nothing else reads.
"""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.callables import function_given
from pipetune.source.crop_helpers import RANDOM_WINDOW, SHAPE, WINDOW, insert_helpers
from pipetune.source.crops import Place, full_names, function_running, places_in
from pipetune.source.draft import Draft, Splice
from pipetune.source.functions import definition_of
from pipetune.source.imported import imported_function
from pipetune.source.statements import deletion, name_nodes, names_bound, names_read, statement_of
from pipetune.source.tree import SyntaxTree
from pipetune.source.uses import uses_of


def decode_windows(draft: Draft, node: str) -> Draft:
    """Returns the draft in which the function of the map `node` decodes only the window it crops.

    Raises:
        CannotExpress: the decode and the crop are not written in a way that is safe to change, or the code that would
            change is used elsewhere, too.
    """
    draft, file, root, functions = decoding_functions(draft, node)
    tree = draft.tree(file)
    places = [place for function in functions for place in places_in(tree, function)]
    if len(places) != 1:
        raise CannotExpress(f"{len(places)} plain crops of a decoded JPEG stand in the functions that the map names.")
    (place,) = places
    refuse_used_elsewhere(draft, file, place.function, root)
    contents = _contents(tree, place)
    asking = _shapes(tree, place)
    splices = [_without_decoding(tree, place, contents, asking)] if place.decoding is not None else []
    shape = f"{SHAPE}({contents}, channels={place.decode.channels})"
    splices += [Splice(tree.start(call), tree.end(call), shape.encode()) for call in asking]
    splices.append(_crop_of_window(tree, place, contents))
    names = [WINDOW, SHAPE, *([RANDOM_WINDOW] if place.kind.endswith("random_crop") else [])]
    return insert_helpers(draft, file, names, splices, before=place.function)


Root = cst.FunctionDef | cst.BaseExpression
"""The function of a map: its definition if it is imported, otherwise the expression in the call."""


def decoding_functions(draft: Draft, node: str) -> tuple[Draft, str, Root, list[cst.FunctionDef]]:
    """Resolves the function of the map `node`.

    Returns:
        The draft with its file opened, that file, the function, and every function of the file that it refers to,
        directly or not, including itself.

    Raises:
        CannotExpress: the call does not show its function.
    """
    tree, call = draft.find(node)
    file = draft.sites[node].file
    root: Root = _given_function(tree, call)
    if isinstance(root, cst.Name) and (imported := imported_function(draft, file, root)) is not None:
        draft, file, root = imported
        tree = draft.tree(file)
    return draft, file, root, _reached(tree, root)


def _given_function(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression:
    argument = function_given(tree, call)
    if argument is None:
        raise CannotExpress("The call of map does not show its function.")
    return argument.value


def _reached(tree: SyntaxTree, root: Root) -> list[cst.FunctionDef]:
    """Returns the functions of this file that the root is or refers to, and those that they refer to."""
    found = [root] if isinstance(root, cst.FunctionDef) else []
    waiting: list[cst.CSTNode] = [root.body if isinstance(root, cst.FunctionDef) else root]
    while waiting:
        for name in name_nodes(waiting.pop()):
            function = definition_of(tree, name)
            if function is not None and all(function is not one for one in found):
                found.append(function)
                waiting.append(function.body)
    return found


def refuse_used_elsewhere(draft: Draft, file: str, function: cst.FunctionDef, root: Root) -> None:
    """Refuses to change a function that other code uses, too; its images may not be JPEGs.

    Args:
        root: the function of the map, which leads to `function`.

    Raises:
        CannotExpress: the function, or one that calls it, is referred to anywhere but on the way from the map.
    """
    draft, uses = uses_of(draft, file, function)
    if len(uses) != 1:
        raise CannotExpress(f"{function.name.value} is used in {len(uses)} places, and would change for all of them.")
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


def _contents(tree: SyntaxTree, place: Place) -> str:
    """Returns the expression for the encoded bytes of the image at the place of the crop."""
    given = place.decode.contents
    if place.decoding is None or _stays(given.value):
        return _text(tree, given)
    taken = {name.value for name in name_nodes(tree.module)}
    name = next((one for one in ("contents", "jpeg", "encoded_image") if one not in taken), None)
    if name is None:
        raise CannotExpress("There is no plain name left for the bytes of the image.")
    return name


def _shapes(tree: SyntaxTree, place: Place) -> list[cst.Call]:
    """Returns the calls between decode and crop that read only the shape of the image: `tf.shape(image)`."""
    if place.decoding is None:
        return []
    begin, end = tree.end(place.decoding.small), tree.start(place.crop)
    return [
        call
        for call in tree.nodes(cst.Call)
        if begin < tree.start(call) < end and _asks_shape(tree, call, place.decoding.name)
        if function_running(tree, call) is place.function
    ]


def _asks_shape(tree: SyntaxTree, call: cst.Call, name: str | None) -> bool:
    match call.args:
        case [cst.Arg(keyword=None, star="", value=cst.Name(value=given))]:
            return given == name and "tensorflow.shape" in full_names(tree, call)
    return False


def _without_decoding(tree: SyntaxTree, place: Place, contents: str, asking: list[cst.Call]) -> Splice:
    """Returns the change that removes the decode statement, or reduces it to an assignment of the encoded bytes.

    Args:
        contents: the variable for the bytes, if they are assigned.
        asking: the calls that read only the shape of the image.

    Raises:
        CannotExpress: the decoded image is read elsewhere, or a variable with its bytes is reassigned before the crop.
    """
    decoding, statement = place.decoding, statement_of(tree, place.crop)
    assert decoding is not None and statement is not None
    known = [place.image, statement.target, *(call.args[0].value for call in asking)]
    begin, end = tree.end(decoding.small), tree.end(statement.small)
    for read in name_nodes(place.function.body):
        if read.value != decoding.name or tree.start(read) < begin or any(read is one for one in known):
            continue
        if tree.start(read) < end or statement.name != decoding.name:
            raise CannotExpress(f"{decoding.name} is read elsewhere too, not only by the crop.")
    if not _stays(place.decode.contents.value):
        new = f"{contents} = {_in_parentheses(_text(tree, place.decode.contents))}"
        return Splice(tree.start(decoding.small), begin, new.encode())
    named = set(names_read(place.decode.contents.value))
    between = [line for line in statement.block if begin < tree.start(line) < tree.start(statement.line)]
    if any(names_bound(line) & named for line in between):
        raise CannotExpress("What is decoded is assigned anew before the crop.")
    return deletion(tree, decoding)


def _stays(contents: cst.BaseExpression) -> bool:
    """Whether an expression has the same value at the place of the crop: a name, or an item under a constant key."""
    match contents:
        case cst.Name():
            return True
        case cst.Subscript(value=cst.Name(), slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
            return isinstance(key, cst.SimpleString | cst.Integer)
    return False


def _crop_of_window(tree: SyntaxTree, place: Place, contents: str) -> Splice:
    """Returns the change that replaces the crop by a call of the helper."""
    given = {name: _text(tree, argument) for name, argument in place.given.items()}
    channels = place.decode.channels
    if place.kind.endswith("random_crop"):
        seed = f", seed={given['seed']}" if "seed" in given else ""
        text = f"{RANDOM_WINDOW}({contents}, {given['size']}, channels={channels}{seed})"
    else:
        begin, size = given.get("begin"), given.get("size")
        begin = begin or f"[{given['offset_height']}, {given['offset_width']}, 0]"
        size = size or f"[{given['target_height']}, {given['target_width']}, {channels}]"
        text = f"{WINDOW}({contents}, {begin}, {size}, channels={channels})"
    return Splice(tree.start(place.crop), tree.end(place.crop), text.encode())


def _in_parentheses(text: str) -> str:
    return f"({text})" if "\n" in text or "\r" in text else text


def _text(tree: SyntaxTree, argument: cst.Arg) -> str:
    """Returns the value of an argument as written, including parentheses around it."""
    text = tree.text(argument)
    return text.partition("=")[2].strip() if argument.keyword is not None else text
