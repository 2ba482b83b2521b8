"""Rewrites decoding and cropping a JPEG as decoding the window only, with the helpers that this needs."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node
from pipetune.source.call_arguments import argument_text, arguments_by_name, tensorflow_name
from pipetune.source.draft import Draft, Splice, replacing
from pipetune.source.map_functions import add_functions, functions_behind_map, outermost, refuse_used_elsewhere
from pipetune.source.statements import (
    Statement,
    bound_names,
    free_name,
    last_binding,
    removal_splice,
    statement_of,
    unconditional_function,
    variable_names,
    variable_nodes,
)
from pipetune.source.syntax_tree import SyntaxTree
from pipetune.source.user_functions import definition_of

WINDOW, RANDOM_WINDOW, SHAPE = "crop_jpeg", "random_crop_jpeg", "jpeg_shape"

_TEXTS = {
    WINDOW: '''\
def crop_jpeg(contents, begin, size, channels):
    """Same as tf.slice of the decoded JPEG, but decodes only the window."""
    # Two more pixels are decoded on each side and cut off again: most JPEGs store color at half the resolution, and the
    # color of a pixel is interpolated from its neighbors, which are missing at the edge of the decoded area.
    begin, size, shape = tf.cast(begin, tf.int32), tf.cast(size, tf.int32), jpeg_shape(contents, channels)[:2]
    top_left = tf.maximum(begin[:2] - 2, 0)
    bottom_right = tf.where(size[:2] < 0, shape, tf.minimum(begin[:2] + size[:2] + 2, shape))  # -1: to the end
    window = tf.concat([top_left, bottom_right - top_left], axis=0)
    image = tf.cond(
        tf.io.is_jpeg(contents),  # decode_jpeg also reads other formats, which are decoded completely
        lambda: tf.io.decode_and_crop_jpeg(contents, window, channels=channels),
        lambda: tf.image.crop_to_bounding_box(tf.io.decode_jpeg(contents, channels=channels), *tf.unstack(window)),
    )
    image.set_shape([None, None, channels])
    return tf.slice(image, begin - tf.concat([top_left, [0]], axis=0), size)
''',
    RANDOM_WINDOW: '''\
def random_crop_jpeg(contents, size, channels, seed=None):
    """Same as tf.image.random_crop of the decoded JPEG, with the same random draws, but decodes only the window."""
    drawn = tf.random.uniform([3], maxval=tf.int32.max, dtype=tf.int32, seed=seed)
    return crop_jpeg(contents, drawn % (jpeg_shape(contents, channels) - size + 1), size, channels)
''',
    SHAPE: '''\
def jpeg_shape(contents, channels):
    """Same as tf.shape of the decoded JPEG, without decoding it."""
    return tf.cond(
        tf.io.is_jpeg(contents),
        lambda: tf.concat([tf.io.extract_jpeg_shape(contents)[:2], [channels]], axis=0),
        lambda: tf.shape(tf.io.decode_jpeg(contents, channels=channels)),
    )
''',
}

_CROPS = {
    "tensorflow.image.random_crop": ("value", "size", "seed"),
    "tensorflow.slice": ("input_", "begin", "size"),
    "tensorflow.image.crop_to_bounding_box": (
        "image", "offset_height", "offset_width", "target_height", "target_width"),
}  # fmt: skip
DECODERS = frozenset({"tensorflow.io.decode_jpeg", "tensorflow.image.decode_jpeg"})


@dataclass(frozen=True)
class Decode:
    """A call that decodes: `tf.io.decode_jpeg(data, channels=3)`, or a call of a helper that does nothing else."""

    contents: cst.Arg
    channels: str


@dataclass(frozen=True)
class _DecodedCrop:
    """A crop of a decoded image in the body of a function."""

    function: cst.FunctionDef
    crop: cst.Call
    kind: str  # qualified name of the called function: "tensorflow.slice"
    arguments: dict[str, cst.Arg]  # by parameter name
    decode: Decode
    decoding: Statement | None  # the statement that decodes; None if the crop's argument is the decode


def _decoded_crops(tree: SyntaxTree, function: cst.FunctionDef) -> list[_DecodedCrop]:
    """Returns the crops in the body of a function whose image is decoded there."""
    found = []
    for call in tree.nodes(cst.Call):
        kind = next((name for name in tree.imported_names(call.func) if name in _CROPS), None)
        if kind is None or unconditional_function(tree, call) is not function:
            continue
        given = arguments_by_name(call.args, _CROPS[kind])
        parameters = [name for name in _CROPS[kind] if name != "seed"]
        if given is None or any(name not in given for name in parameters):
            continue
        value = given[parameters[0]].value
        statement, decoding = statement_of(tree, call), None
        if isinstance(value, cst.Name) and statement is not None and statement.block is function.body.body:
            above = [line for line in statement.block if tree.end(line) <= tree.start(statement.line)]
            decoding = last_binding(tree, above, value.value)
        image = decoding.value if decoding is not None else value
        decode = _decode_of(tree, image) if isinstance(image, cst.Call) else None
        if decode is not None:
            found.append(_DecodedCrop(function, call, kind, given, decode, decoding))
    return found


def _decode_of(tree: SyntaxTree, call: cst.Call) -> Decode | None:
    """Returns what a call decodes, and into how many channels; None if it is no plain decode."""
    if tree.imported_names(call.func) & DECODERS:
        given = arguments_by_name(call.args, ("contents", "channels"))
        if given is None or set(given) != {"contents", "channels"}:
            return None
        channels = given["channels"].value
        known = isinstance(channels, cst.Integer) and channels.value in ("1", "3")  # 0: as many as the file has
        return Decode(given["contents"], tree.text(channels)) if known else None
    helper = definition_of(tree, call.func) if isinstance(call.func, cst.Name) else None
    given = arguments_by_name(call.args, ("contents",))
    if helper is None or given is None or "contents" not in given or given["contents"].keyword is not None:
        return None
    inside = _helper_decode(tree, helper)
    return Decode(given["contents"], inside.channels) if inside is not None else None


def _helper_decode(tree: SyntaxTree, helper: cst.FunctionDef) -> Decode | None:
    """Returns the decode that a function of one positional parameter returns, if it does nothing else."""
    given = helper.params
    if helper.decorators or given.posonly_params or len(given.params) != 1:
        return None
    lines = helper.body.body[1:] if helper.get_docstring() is not None else helper.body.body
    match list(lines):
        case [cst.SimpleStatementLine(body=[cst.Return(value=cst.Call() as value)])]:
            inside = _decode_of(tree, value) if tree.imported_names(value.func) & DECODERS else None
            same = inside is not None and tree.text(inside.contents.value) == given.params[0].name.value
            return inside if same else None
    return None


def write(draft: Draft, node: Node) -> Draft:
    """Returns the draft in which the function of the map `node` decodes only the window it crops.

    Raises:
        CannotExpress: the decode and the crop are not written in a way that is safe to change, the code that would
            change is used elsewhere, too, or the file has no name for TensorFlow.
    """
    file, root, functions = functions_behind_map(draft, node.id)
    tree = draft.tree(file)
    places = [place for function in functions for place in _decoded_crops(tree, function)]
    if len(places) != 1:
        raise CannotExpress(
            f"The functions that the map refers to contain {len(places)} crops of a decoded JPEG that pipetune can "
            "rewrite; exactly one is needed."
        )
    (place,) = places
    refuse_used_elsewhere(draft, file, place.function, root)
    contents = _contents_expression(tree, place)
    asking = _shape_calls(tree, place)
    splices = [_remove_decoding(tree, place, contents, asking)] if place.decoding is not None else []
    shape = f"{SHAPE}({contents}, channels={place.decode.channels})"
    splices += [replacing(tree, call, shape) for call in asking]
    splices.append(_replace_crop(tree, place, contents))
    names = [WINDOW, SHAPE, *([RANDOM_WINDOW] if place.kind.endswith("random_crop") else [])]
    tensorflow = tensorflow_name(tree, outermost(tree, place.function), "decoding the window")
    texts = {name: _TEXTS[name].replace("tf.", f"{tensorflow}.") for name in names}
    return add_functions(draft, file, texts, splices, before=place.function)


def _contents_expression(tree: SyntaxTree, place: _DecodedCrop) -> str:
    """Returns the expression for the encoded bytes of the image at the place of the crop."""
    given = place.decode.contents
    if place.decoding is None or _is_stable(given.value):
        return argument_text(tree, given)
    refusal = "All names that pipetune would use for the bytes of the image are taken."
    return free_name(variable_names(tree.module), "contents", "jpeg", "encoded_image", refusal=refusal)


def _shape_calls(tree: SyntaxTree, place: _DecodedCrop) -> list[cst.Call]:
    """Returns the calls between decode and crop that read only the shape of the image: `tf.shape(image)`."""
    if place.decoding is None:
        return []
    begin, end, found = tree.end(place.decoding.small), tree.start(place.crop), list[cst.Call]()
    for call in tree.nodes(cst.Call):
        match call.args:
            case [cst.Arg(keyword=None, star="", value=cst.Name(value=given))] if given == place.decoding.name:
                between = begin < tree.start(call) < end and unconditional_function(tree, call) is place.function
                found += [call] if between and "tensorflow.shape" in tree.imported_names(call.func) else []
    return found


def _remove_decoding(tree: SyntaxTree, place: _DecodedCrop, contents: str, shape_calls: list[cst.Call]) -> Splice:
    """Returns the change that removes the decode statement, or reduces it to an assignment of the encoded bytes.

    Args:
        contents: the variable for the bytes, if they are assigned.
        shape_calls: the calls that read only the shape of the image.
    """
    decoding, statement = place.decoding, statement_of(tree, place.crop)
    assert decoding is not None and statement is not None
    cropped = place.arguments[_CROPS[place.kind][0]].value
    known = [cropped, statement.target, *(call.args[0].value for call in shape_calls)]
    begin, end = tree.end(decoding.small), tree.end(statement.small)
    for read in variable_nodes(place.function.body):
        if read.value != decoding.name or tree.start(read) < begin or any(read is one for one in known):
            continue
        if tree.start(read) < end or statement.name != decoding.name:
            raise CannotExpress(f"{decoding.name} is read elsewhere too, not only by the crop.")
    if not _is_stable(place.decode.contents.value):
        text = argument_text(tree, place.decode.contents)
        text = f"({text})" if "\n" in text or "\r" in text else text
        return replacing(tree, decoding.small, f"{contents} = {text}")
    named = set(variable_names(place.decode.contents.value))
    between = [line for line in statement.block if begin < tree.start(line) < tree.start(statement.line)]
    if any(bound_names(line) & named for line in between):
        raise CannotExpress("The bytes to decode are reassigned before the crop.")
    return removal_splice(tree, decoding)


def _is_stable(contents: cst.BaseExpression) -> bool:
    """Whether an expression has the same value at the place of the crop: a name, or an item under a constant key."""
    match contents:
        case cst.Name():
            return True
        case cst.Subscript(value=cst.Name(), slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
            return isinstance(key, cst.SimpleString | cst.Integer)
    return False


def _replace_crop(tree: SyntaxTree, place: _DecodedCrop, contents: str) -> Splice:
    given = {name: argument_text(tree, argument) for name, argument in place.arguments.items()}
    channels = place.decode.channels
    if place.kind.endswith("random_crop"):
        seed = f", seed={given['seed']}" if "seed" in given else ""
        text = f"{RANDOM_WINDOW}({contents}, {given['size']}, channels={channels}{seed})"
    else:
        begin, size = given.get("begin"), given.get("size")
        begin = begin or f"[{given['offset_height']}, {given['offset_width']}, 0]"
        size = size or f"[{given['target_height']}, {given['target_width']}, {channels}]"
        text = f"{WINDOW}({contents}, {begin}, {size}, channels={channels})"
    return replacing(tree, place.crop, text)
