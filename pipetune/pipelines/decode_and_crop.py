"""Decodes only the window of a JPEG that is used: finds the crops in a traced function, and rewrites it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.functions import FunctionFacts
from pipetune.pipelines.graphs import CannotEdit, TracedOps, edited_function, reachable, replacement_node

_DECODER = "DecodeJpeg"

_CROPS = frozenset({"Slice", "StridedSlice"})
_RESIZES = frozenset({"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "ScaleAndTranslate"})
_PIXELWISE = frozenset({"Cast", "Identity"})
_SCALAR_ARITHMETIC = frozenset({"AddV2", "Mul", "RealDiv", "Sub"})


@dataclass(frozen=True)
class DecodeUse:
    """A decoded image, and the first op that does not treat all pixels alike; nothing else reads its pixels."""

    decode: Any  # the DecodeJpeg op
    op: Any
    shapes: tuple[tuple[Any, int], ...]  # Shape ops that read the whole image, each with its number of leading axes
    leading_axes: int  # axes before height, width and channels of what the op reads


def find_crop(graph: Any) -> DecodeUse:
    """Returns the one decode in the graph of which only a window is used, and the `Slice` or `StridedSlice` of it.

    Raises:
        CannotEdit: there is none, or decoding only the window might give a different result.
    """
    use = _find_use(graph, _CROPS)
    if use.leading_axes > 1 or not _is_window(use.op, use.leading_axes):
        raise CannotEdit(f"its op {use.op.type} cuts out something other than a window")
    return use


def find_resize(graph: Any) -> tuple[DecodeUse, tuple[int, int]]:
    """Returns the one decode in the graph whose whole image is resized to a fixed size, and this height and width.

    Raises:
        CannotEdit: there is none, or something depends on the size of the original image.
    """
    use = _find_use(graph, _RESIZES)
    size = tf.get_static_value(use.op.inputs[1])
    if size is None:
        raise CannotEdit("the size it resizes to is not fixed")
    if any(not _only_feeds(graph, op, use.op) for op, _ in use.shapes):
        raise CannotEdit("it uses the size of the image")
    return use, (int(size[0]), int(size[1]))


def _find_use(graph: Any, kinds: frozenset[str]) -> DecodeUse:
    """Finds the one decode in the graph, and the op with a type in `kinds` that alone uses its image; else raises."""
    decodes = [op for op in graph.get_operations() if op.type == _DECODER]
    if not decodes:
        raise CannotEdit("it decodes inside a branch, a loop or a traced function")
    if len(decodes) > 1:
        raise CannotEdit(f"it decodes {len(decodes)} images")
    (decode,) = decodes
    if decode.get_attr("ratio") != 1:
        raise CannotEdit("it decodes at a smaller scale (ratio)")
    if decode.get_attr("try_recover_truncated") or decode.get_attr("acceptable_fraction") != 1:
        raise CannotEdit("it accepts truncated images")
    tensor, steps, shapes, lead = decode.outputs[0], list[Any](), list[tuple[Any, int]](), 0
    while True:
        readers = list({id(op): op for op in tensor.consumers()}.values())
        shapes += [(op, lead) for op in readers if op.type == "Shape"]
        using = [op for op in readers if op.type != "Shape" and not _is_unused_identity(graph, op)]
        if any(tensor is output for output in graph.outputs):
            raise CannotEdit("it returns the whole image")
        if len(using) != 1:
            names = " and ".join(sorted(op.type for op in using)) or "nothing"
            raise CannotEdit(f"the whole image is used by {names}")
        (op,) = using
        if op.type in kinds:
            break
        if not _is_pixelwise(op, tensor):
            raise CannotEdit(f"its op {op.type} uses the whole image")
        if op.type == "ExpandDims":
            lead += 1
        steps.append(op)
        tensor = op.outputs[0]
    whole = {id(one) for one in (decode, *steps)}
    for waiting in graph.get_operations():
        if any(id(other) in whole for other in waiting.control_inputs):
            raise CannotEdit(f"its op {waiting.type} has a control dependency on the whole image")
    return DecodeUse(decode, op, tuple(shapes), lead)


def _only_feeds(graph: Any, shape: Any, resize: Any) -> bool:
    """Whether the result of the op `shape` is used only to compute inputs of the op `resize`."""

    def readers(op: Any) -> list[Any]:
        return [reader for made in op.outputs for reader in made.consumers() if reader is not resize]

    returned = set(map(id, graph.outputs))
    return all(op.outputs and returned.isdisjoint(map(id, op.outputs)) for op in reachable([shape], readers))


def _is_unused_identity(graph: Any, op: Any) -> bool:
    """Whether an op is an `Identity` that nothing reads: `central_crop` leaves one after it checks an image."""
    given = op.outputs[0] if op.type == "Identity" else None
    return given is not None and not given.consumers() and all(given is not output for output in graph.outputs)


def _is_pixelwise(op: Any, tensor: Any) -> bool:
    """Whether each value of the result of `op` depends only on the value of `tensor` at the same position."""
    if op.type in _PIXELWISE:
        return True
    if op.type == "ExpandDims":
        axis = tf.get_static_value(op.inputs[1])
        return tensor is op.inputs[0] and axis is not None and int(axis) == 0
    if op.type not in _SCALAR_ARITHMETIC:
        return False
    others = [one for one in op.inputs if one is not tensor]
    return len(others) == 1 and others[0].shape.rank == 0 and tf.get_static_value(others[0]) is not None


def _is_window(cut: Any, lead: int) -> bool:
    if cut.inputs[0].shape.rank != 3 + lead:
        return False
    if cut.type == "Slice":
        return True
    masks = [cut.get_attr(name) for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")]
    strides = tf.get_static_value(cut.inputs[3])
    plain = strides is not None and all(step == 1 for step in strides)
    return lead == 0 and not any(masks) and plain and cut.inputs[1].shape.is_fully_defined()


MARGIN_PIXELS = 2
"""Pixels that the decoded window adds to the crop on each side.

One pixel is enough except for a window one pixel wide at the left or right border: the decoder does not blend colors
when it decodes no more than two columns. The tests cover both cases.
"""

_MOST_CHANNELS = 3  # an image with four channels (CMYK) is decoded to RGB
_EVERY_CHANNEL = 1 << 16  # margin on the channel axis: more than any image has
_KEPT = ("channels", "fancy_upscaling", "try_recover_truncated", "acceptable_fraction", "dct_method")


def image_shapes(contents: Any, crop: DecodeUse) -> list[Any]:
    """Returns the shape of the whole image, and the result of each `Shape` op that read it.

    Args:
        contents: the encoded image, a scalar string.

    Returns:
        An int32 tensor [3] (height, width, channels), then for each op of `crop.shapes` a tensor [its leading axes + 3]
        of its output dtype.
    """
    channels = crop.decode.get_attr("channels")

    def stored() -> Any:
        shape = tf.io.extract_jpeg_shape(contents)
        return tf.concat([shape[:2], [channels] if channels else tf.minimum(shape[2:], _MOST_CHANNELS)], axis=0)

    whole = tf.cond(tf.io.is_jpeg(contents), stored, lambda: tf.shape(_decoded(contents, crop)))
    whole.set_shape([3])
    requests = [tf.concat([[1] * lead, whole], axis=0) if lead else whole for _, lead in crop.shapes]
    kinds = [op.outputs[0].dtype for op, _ in crop.shapes]
    return [whole, *(tf.cast(shape, kind) for shape, kind in zip(requests, kinds, strict=True))]


def _decoded(contents: Any, crop: DecodeUse) -> Any:
    """Decodes the whole image: the op also reads formats other than JPEG, which cannot be decoded in part."""
    return tf.raw_ops.DecodeJpeg(contents=contents, ratio=1, **_attributes(crop))


def _attributes(crop: DecodeUse) -> dict[str, Any]:
    attributes = {name: crop.decode.get_attr(name) for name in _KEPT}
    return attributes | {"dct_method": attributes["dct_method"].decode()}


def decode_window(
    crop: DecodeUse, contents: Any, shape: Any, first: Any, second: Any, *, margin: int
) -> tuple[Any, Any, Any]:
    """Decodes the image around the crop window.

    Uses few ops, each for all three axes at once: their run time reduces what partial decoding saves.

    Args:
        contents: the encoded image, a scalar string.
        shape: of the whole image, int32 [3].
        first: second input of the crop op: `begin`, one integer per axis (fewer for a `StridedSlice`).
        second: third input of the crop op: `size` of a `Slice`, `end` of a `StridedSlice`.
        margin: pixels decoded beyond the crop on each side.

    Returns:
        The decoded image, uint8 [height, width, channels]; where the crop begins in it, and the size of the crop, both
        int32 [`crop.leading_axes` + 3].
    """
    lead = crop.leading_axes
    if crop.op.type == "Slice":
        begin, size = tf.cast(first, tf.int32)[lead:], _size_of_slice(second, lead)
        size = tf.where(tf.equal(size, -1), shape - begin, size) if tf.is_tensor(size) else size
    else:
        begin, size = _slice_bounds(shape, first, second, crop.op)
    more = np.array([margin, margin, _EVERY_CHANNEL], np.int32)
    low = tf.maximum(begin - more, 0)
    high = tf.minimum(begin + (size + more), shape)
    window = tf.gather(tf.concat([low, high - low], axis=0), [0, 1, 3, 4])
    image = tf.cond(
        tf.io.is_jpeg(contents),
        lambda: tf.raw_ops.DecodeAndCropJpeg(contents=contents, crop_window=window, **_attributes(crop)),
        lambda: tf.slice(_decoded(contents, crop), low, high - low),
    )
    image.set_shape([None, None, crop.decode.get_attr("channels") or None])
    place = begin - low
    if lead:
        place = tf.concat([tf.cast(first, tf.int32)[:lead], place], axis=0)
        size = tf.concat([tf.cast(second, tf.int32)[:lead], size], axis=0)
    return image, place, tf.convert_to_tensor(size)


def _size_of_slice(size: Any, lead: int) -> Any:
    """Returns the requested size: an array if it is static, else a tensor in which -1 means everything to the end."""
    known = size[lead:].astype(np.int32) if isinstance(size, np.ndarray) else None
    return known if known is not None and (known >= 0).all() else tf.cast(size, tf.int32)[lead:]


def _slice_bounds(shape: Any, begin: Any, end: Any, cut: Any) -> tuple[Any, Any]:
    """Returns begin and size of `image[a:b, c:d]`, int32 [3] each, clipped to the image as Python indexing does."""
    masks = cut.get_attr("begin_mask"), cut.get_attr("end_mask")
    begins, ends = [], []
    for axis in range(3):
        whole = shape[axis]
        given = [
            default if axis >= cut.inputs[1].shape[0] or mask >> axis & 1 else _clipped_index(values[axis], whole)
            for values, mask, default in ((begin, masks[0], 0), (end, masks[1], whole))
        ]
        begins.append(given[0])
        ends.append(given[1])
    first = tf.stack(begins)
    return first, tf.maximum(tf.stack(ends) - first, 0)


def _clipped_index(position: Any, whole: Any) -> Any:
    place = tf.cast(position, tf.int32)
    return tf.clip_by_value(tf.where(place < 0, place + whole, place), 0, whole)


def applies(function: FunctionFacts) -> bool:
    """Whether a function decodes JPEGs."""
    return _DECODER in function.operations


def edit_graph(traced: Any, *, margin: int = MARGIN_PIXELS) -> Any:
    """Returns a dataset's traced function with the same ops and seeds that decodes only the window it crops.

    New ops take the position of the ops they replace, because random draws are numbered in op order, and all others
    keep their names and inputs. Ops between decode and crop stay before the crop, so that rounding and op fusion do not
    change.

    Args:
        traced: the function of a map whose graph decodes one JPEG.
        margin: pixels decoded beyond the crop on each side.

    Raises:
        CannotEdit: it needs the whole image.
    """
    graph = traced.function.graph
    crop, at = find_crop(graph), {node.name: node for node in graph.as_graph_def().node}
    decode, cut = at[crop.decode.name], at[crop.op.name]
    shapes = TracedOps("shape", lambda data: image_shapes(data, crop), [crop.decode.inputs[0]], [decode.input[0]])
    window = TracedOps(
        "window",
        lambda *tensors: decode_window(crop, *tensors, margin=margin),
        [crop.decode.inputs[0], tf.TensorSpec([3], tf.int32), *crop.op.inputs[1:3]],
        [decode.input[0], shapes.outputs[0], *cut.input[1:3]],
    )
    image, begin, size = window.outputs
    replaced = {
        decode.name: shapes.nodes,
        cut.name: [
            *window.nodes,
            replacement_node(decode, "Identity", [image], T=tf.uint8.as_datatype_enum),
            *_slice_nodes(cut, [cut.input[0], begin, size], crop.op.outputs[0].shape),
        ],
    }
    for (op, _), output in zip(crop.shapes, shapes.outputs[1:], strict=True):
        node = at[op.name]
        replaced[op.name] = [replacement_node(node, "Identity", [output], T=node.attr["out_type"].type)]
    return edited_function(traced, replaced, (shapes, window))


def _slice_nodes(node: Any, inputs: Sequence[str], shape: Any) -> Iterator[Any]:
    """Yields the ops that slice the window out of the decoded image in place of `node`; the static shape is kept."""
    kind = node.attr["T"].type
    cut = replacement_node(node, "Slice", inputs, T=kind, Index=tf.int32.as_datatype_enum)
    if not shape.is_fully_defined():
        cut.name = f"pipetune/cut/{node.name}"
        known = replacement_node(node, "EnsureShape", [cut.name], T=kind)
        known.attr["shape"].shape.CopyFrom(shape.as_proto())
        yield known
    yield cut
