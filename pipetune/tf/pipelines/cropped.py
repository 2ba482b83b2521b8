"""Rewrites a traced function to decode only the window it crops; `source/cropping.py` rewrites the source code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.pipelines.crop_window import MARGIN_PIXELS, shapes_of, window_of
from pipetune.tf.pipelines.crops import Crop, find_crop
from pipetune.tf.pipelines.rebuilding import rebuilt


def decoding_window(traced: Any, *, margin: int = MARGIN_PIXELS) -> Any:
    """Returns a dataset's traced function with the same ops and seeds that decodes only the window it crops.

    Args:
        traced: the function of a map whose graph decodes one JPEG.
        margin: pixels decoded beyond the crop on each side.

    Raises:
        NoCrop: it needs the whole image.
    """
    graph = traced.function.graph
    edited, pieces = _edited(graph, find_crop(graph), margin)
    made = private.with_function(traced, rebuilt(graph, edited, graph.outputs))
    made.called = pieces  # kept alive: TensorFlow deletes the functions of their branches along with them
    return made


def _edited(graph: Any, crop: Crop, margin: int) -> tuple[Any, tuple[_Piece, _Piece]]:
    """Returns the GraphDef with decode and crop replaced; all other ops keep their names, inputs and seeds.

    New ops take the position of the ops they replace, because random draws are numbered in op order. Ops between
    decode and crop stay before the crop, so that rounding and op fusion do not change.

    Returns:
        The GraphDef, and the inserted pieces.
    """
    given = graph.as_graph_def()
    at = {node.name: node for node in given.node}
    decode, cut = at[crop.decode.name], at[crop.cut.name]
    shapes = _Piece("shape", lambda contents: shapes_of(contents, crop), [crop.decode.inputs[0]], [decode.input[0]])
    window = _Piece(
        "window",
        lambda *tensors: window_of(crop, *tensors, margin=margin),
        [crop.decode.inputs[0], tf.TensorSpec([3], tf.int32), *crop.cut.inputs[1:3]],
        [decode.input[0], shapes.outputs[0], *cut.input[1:3]],
    )
    image, begin, size = window.outputs
    replaced = dict(zip((op.name for op, _ in crop.shapes), shapes.outputs[1:], strict=True))
    edited = tf.compat.v1.GraphDef()
    edited.library.CopyFrom(given.library)
    for piece in (shapes, window):
        edited.library.MergeFrom(piece.library)
    edited.versions.CopyFrom(given.versions)
    for node in given.node:
        if node.name == decode.name:
            edited.node.extend(shapes.nodes)
        elif node.name in replaced:
            edited.node.append(_in_place_of(node, "Identity", [replaced[node.name]], T=node.attr["out_type"].type))
        elif node.name == cut.name:
            edited.node.extend(window.nodes)
            edited.node.append(_in_place_of(decode, "Identity", [image], T=tf.uint8.as_datatype_enum))
            edited.node.extend(_cut(node, [node.input[0], begin, size], crop.cut.outputs[0].shape))
        else:
            edited.node.append(node)
    return edited, (shapes, window)


def _in_place_of(node: Any, op: str, inputs: Sequence[str], **types: int) -> Any:
    """Returns a node of type `op` with the name and the control inputs of `node`; `types` are its dtype attributes."""
    made = tf.compat.v1.NodeDef(name=node.name, op=op, device=node.device)
    made.input.extend([*inputs, *(name for name in node.input if name.startswith("^"))])
    for name, kind in types.items():
        made.attr[name].type = kind
    return made


def _cut(node: Any, inputs: Sequence[str], shape: Any) -> Iterator[Any]:
    """Yields the ops that slice the window out of the decoded image in place of `node`; the static shape is kept."""
    kind = node.attr["T"].type
    cut = _in_place_of(node, "Slice", inputs, T=kind, Index=tf.int32.as_datatype_enum)
    if not shape.is_fully_defined():
        cut.name = f"pipetune/cut/{node.name}"
        known = _in_place_of(node, "EnsureShape", [cut.name], T=kind)
        known.attr["shape"].shape.CopyFrom(shape.as_proto())
        yield known
    yield cut


class _Piece:
    """Ops traced from a Python function, to be inserted into another graph.

    Args:
        name: part of the prefix of the new ops' names.
        function: called with one argument per item of `like`.
        like: tensors or specs with the shapes and dtypes of the arguments; a tensor with a static value is passed as
            that value (an array).
        feeds: for each item of `like`, the name of its tensor in the other graph.
    """

    def __init__(self, name: str, function: Callable[..., Any], like: Sequence[Any], feeds: Sequence[str]) -> None:
        values = [tf.get_static_value(one) if not isinstance(one, tf.TensorSpec) else None for one in like]
        fed = [place for place, value in enumerate(values) if value is None]

        def body(*given: Any) -> Any:
            tensors = dict(zip(fed, given, strict=True))
            return function(*(tensors.get(place, value) for place, value in enumerate(values)))

        self.traced = private.data_function(
            body, [tf.TensorSpec(like[place].shape, like[place].dtype) for place in fed]
        )
        graph = self.traced.graph
        graph_def = graph.as_graph_def()
        self.library = graph_def.library
        names = {tensor.op.name: feeds[place] for place, tensor in zip(fed, graph.inputs, strict=True)}
        returned = {tensor.op.name: tensor.op.inputs[0].name for tensor in graph.outputs}  # each output is an Identity
        self.nodes: list[Any] = []
        for node in graph_def.node:
            if node.name not in names and node.name not in returned:
                node.name = f"pipetune/{name}/{node.name}"
                node.input[:] = [self._reference(reference, name, names) for reference in node.input]
                self.nodes.append(node)
        self.outputs = [self._reference(returned[tensor.op.name], name, names) for tensor in graph.outputs]

    @staticmethod
    def _reference(reference: str, prefix: str, names: Mapping[str, str]) -> str:
        plain = reference.lstrip("^").partition(":")[0]
        if plain in names:
            return names[plain]
        mark = "^" if reference.startswith("^") else ""
        return f"{mark}pipetune/{prefix}/{reference.removeprefix('^')}"
