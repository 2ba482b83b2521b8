"""A traced function that decodes only the window it crops; `source/cropping.py` says the same in source.

`decode_and_crop_jpeg` is not decode-then-slice: most JPEGs keep colour at half the resolution, and the decoder blends
it with the pixels next to it, which at the edge of a window are not decoded. So the decoded window is wider on each
side, as far as the image reaches, and what is decoded is sliced: then it is the same, bit for bit. A window that is not
inside the image does what it did: `tf.slice` raises, `image[a:b]` takes what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.pipelines.crops import Crop, find_crop

MARGIN_PIXELS = 2
"""How much wider than the crop the decoded window is on each side.

One would do, but for a window one pixel wide at the left or right border: the decoder blends nothing where it has no
more than two columns. The tests show both.
"""

_MOST_CHANNELS = 3  # an image of four (CMYK) is decoded to RGB
_EVERY_CHANNEL = 1 << 16
_KEPT = ("fancy_upscaling", "try_recover_truncated", "acceptable_fraction", "dct_method")


def decoding_window(traced: Any, *, margin: int = MARGIN_PIXELS) -> Any:
    """The function a dataset holds, with its own ops and seeds, decoding only the window it crops.

    Raises:
        NoCrop: it needs the whole image.
    """
    graph = traced.function.graph
    edited = _edited(graph, find_crop(graph), margin)
    return private.with_function(traced, rebuilt(graph, edited, graph.outputs))


def rebuilt(graph: Any, graph_def: Any, outputs: Sequence[Any]) -> Any:
    """A concrete function with the arguments and captures of `graph`, made of `graph_def`.

    Args:
        outputs: tensors of `graph`; those of the same names are given, with the same static shapes.
    """
    captured = [(inner.name, outer) for outer, inner in graph.captures]
    inner_names = {name for name, _ in captured}
    arguments = [tensor for tensor in graph.inputs if tensor.name not in inner_names]

    def body(*given: Any) -> list[Any]:
        here = tf.compat.v1.get_default_graph()
        feeds = {tensor.name: value for tensor, value in zip(arguments, given, strict=True)}
        feeds |= {name: here.capture(outer) for name, outer in captured}
        present = {node.name for node in graph_def.node} | _read_by(graph_def)
        feeds = {name: value for name, value in feeds.items() if name.partition(":")[0] in present}
        names = [tensor.name for tensor in outputs]
        made = tf.graph_util.import_graph_def(graph_def, input_map=feeds, return_elements=names, name="edited")
        for tensor, original in zip(made, outputs, strict=True):
            tensor.set_shape(original.shape)
        return list(made)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in arguments]
    return private.data_function(body, specs)


def _read_by(graph_def: Any) -> set[str]:
    return {name.lstrip("^").partition(":")[0] for node in graph_def.node for name in node.input}


def _edited(graph: Any, crop: Crop, margin: int) -> Any:
    """The graph with the crop's decode replaced; every op that stays keeps its name, its inputs and its seeds.

    New ops stand where what they replace stood: the order of the ops is the order in which draws are numbered. What
    was done before the cut is done before it still: rounding and fusing stay the same.
    """
    given = graph.as_graph_def()
    at = {node.name: node for node in given.node}
    decode, cut = at[crop.decode.name], at[crop.cut.name]
    shapes = _Piece("shape", lambda contents: _shapes(contents, crop), [crop.decode.inputs[0]], [decode.input[0]])
    window = _Piece(
        "window",
        lambda *tensors: _window(crop, *tensors, margin=margin),
        [crop.decode.inputs[0], tf.TensorSpec([3], tf.int32), *crop.cut.inputs[1:3]],
        [decode.input[0], shapes.outputs[0], *cut.input[1:3]],
    )
    image, begin, size = window.outputs
    replaced = dict(zip((op.name for op, _ in crop.shapes), shapes.outputs[1:], strict=True))
    edited = tf.compat.v1.GraphDef()
    edited.library.CopyFrom(given.library)
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
    return edited


def _in_place_of(node: Any, op: str, inputs: Sequence[str], **types: int) -> Any:
    """Another op under the name of `node`, behind whatever that waited for."""
    made = tf.compat.v1.NodeDef(name=node.name, op=op, device=node.device)
    made.input.extend([*inputs, *(name for name in node.input if name.startswith("^"))])
    for name, kind in types.items():
        made.attr[name].type = kind
    return made


def _cut(node: Any, inputs: Sequence[str], shape: Any) -> Iterator[Any]:
    """The ops that cut the window out of what is decoded, in place of `node`; the static shape is as it was."""
    kind = node.attr["T"].type
    cut = _in_place_of(node, "Slice", inputs, T=kind, Index=tf.int32.as_datatype_enum)
    if not shape.is_fully_defined():
        cut.name = f"pipetune/cut/{node.name}"
        known = _in_place_of(node, "EnsureShape", [cut.name], T=kind)
        known.attr["shape"].shape.CopyFrom(shape.as_proto())
        yield known
    yield cut


class _Piece:
    """Ops made by a Python function, to be put into another graph.

    Args:
        like: tensors (or specs) that say what the function gets; those with a static value are given as that.
        feeds: what they are called in the other graph.
    """

    def __init__(self, name: str, function: Callable[..., Any], like: Sequence[Any], feeds: Sequence[str]) -> None:
        values = [tf.get_static_value(one) if not isinstance(one, tf.TensorSpec) else None for one in like]
        fed = [place for place, value in enumerate(values) if value is None]

        def body(*given: Any) -> Any:
            tensors = dict(zip(fed, given, strict=True))
            return function(*(tensors.get(place, value) for place, value in enumerate(values)))

        concrete = private.data_function(body, [tf.TensorSpec(like[place].shape, like[place].dtype) for place in fed])
        graph = concrete.graph
        names = {tensor.op.name: feeds[place] for place, tensor in zip(fed, graph.inputs, strict=True)}
        returned = {tensor.op.name: tensor.op.inputs[0].name for tensor in graph.outputs}  # each by an Identity
        self.nodes: list[Any] = []
        for node in graph.as_graph_def().node:
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


def _shapes(contents: Any, crop: Crop) -> list[Any]:
    """The shape of the whole image, and what each op that asked for it gets."""
    stored, channels = tf.io.extract_jpeg_shape(contents), crop.decode.get_attr("channels")
    given = [channels] if channels else tf.minimum(stored[2:], _MOST_CHANNELS)
    whole = tf.concat([stored[:2], given], axis=0)
    asked = [tf.concat([[1] * lead, whole], axis=0) if lead else whole for _, lead in crop.shapes]
    kinds = [op.outputs[0].dtype for op, _ in crop.shapes]
    return [whole, *(tf.cast(shape, kind) for shape, kind in zip(asked, kinds, strict=True))]


def _window(crop: Crop, contents: Any, shape: Any, first: Any, second: Any, *, margin: int) -> tuple[Any, Any, Any]:
    """The image decoded around the window; where the window begins in it, and its size.

    In few ops, each of all three axes: what they take is lost of what decoding less saves.
    """
    lead = crop.lead
    if crop.cut.type == "Slice":
        begin, size = tf.cast(first, tf.int32)[lead:], _size_of_slice(second, lead)
        size = tf.where(tf.equal(size, -1), shape - begin, size) if tf.is_tensor(size) else size
    else:
        begin, size = _of_indexing(shape, first, second, crop.cut)
    more = np.array([margin, margin, _EVERY_CHANNEL], np.int32)
    low = tf.maximum(begin - more, 0)
    high = tf.minimum(begin + (size + more), shape)
    attributes = {name: crop.decode.get_attr(name) for name in _KEPT}
    attributes["dct_method"] = attributes["dct_method"].decode()
    image = tf.raw_ops.DecodeAndCropJpeg(
        contents=contents,
        crop_window=tf.gather(tf.concat([low, high - low], axis=0), [0, 1, 3, 4]),
        channels=crop.decode.get_attr("channels"),
        **attributes,
    )
    place = begin - low
    if lead:
        place = tf.concat([tf.cast(first, tf.int32)[:lead], place], axis=0)
        size = tf.concat([tf.cast(second, tf.int32)[:lead], size], axis=0)
    return image, place, tf.convert_to_tensor(size)


def _size_of_slice(size: Any, lead: int) -> Any:
    """The size that is asked for: an array where it is fixed, else a tensor in which -1 means all there is."""
    known = size[lead:].astype(np.int32) if isinstance(size, np.ndarray) else None
    return known if known is not None and (known >= 0).all() else tf.cast(size, tf.int32)[lead:]


def _of_indexing(shape: Any, begin: Any, end: Any, cut: Any) -> tuple[Any, Any]:
    """Where `image[a:b, c:d]` begins and what it takes: as Python does, without ever leaving the image."""
    masks = cut.get_attr("begin_mask"), cut.get_attr("end_mask")
    begins, ends = [], []
    for axis in range(3):
        whole = shape[axis]
        given = [
            default if axis >= cut.inputs[1].shape[0] or mask >> axis & 1 else _inside(values[axis], whole)
            for values, mask, default in ((begin, masks[0], 0), (end, masks[1], whole))
        ]
        begins.append(given[0])
        ends.append(given[1])
    first = tf.stack(begins)
    return first, tf.maximum(tf.stack(ends) - first, 0)


def _inside(position: Any, whole: Any) -> Any:
    place = tf.cast(position, tf.int32)
    return tf.clip_by_value(tf.where(place < 0, place + whole, place), 0, whole)
