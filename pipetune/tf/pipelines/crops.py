"""Finds JPEG decodes whose pixels are not all used, from the graph of a traced function alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

DECODER = "DecodeJpeg"

_CROPS = frozenset({"Slice", "StridedSlice"})
_RESIZES = frozenset(
    {"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "ScaleAndTranslate"}
)
_EACH_PIXEL = frozenset({"Cast", "Identity"})
_WITH_A_NUMBER = frozenset({"AddV2", "Mul", "RealDiv", "Sub"})


class NoCrop(Exception):
    """The whole image is needed, or less is not known to suffice; the message is the last clause of a sentence."""


@dataclass(frozen=True)
class Crop:
    """A decoded image, and the one op that cuts a window out of it; nothing else reads its pixels."""

    decode: Any  # the DecodeJpeg op
    steps: tuple[Any, ...]  # ops between decode and cut, each of which treats all pixels alike
    cut: Any  # the Slice or StridedSlice op
    shapes: tuple[tuple[Any, int], ...]  # Shape ops that read the whole image, each with its number of leading axes
    lead: int  # axes before height, width and channels at the cut: 0 or 1


@dataclass(frozen=True)
class Resize:
    """A decoded image, and the one op that resizes it to a fixed size; nothing else reads its pixels."""

    decode: Any
    op: Any  # one of `_RESIZES`
    size: tuple[int, int]  # height, width


@dataclass(frozen=True)
class _Use:
    """A decoded image, and the first op that does not treat all pixels alike; the fields are those of `Crop`."""

    decode: Any
    steps: tuple[Any, ...]
    op: Any
    shapes: tuple[tuple[Any, int], ...]
    lead: int


def find_crop(graph: Any) -> Crop:
    """Finds the one decode in the graph of which only a window is used.

    Raises:
        NoCrop: there is none, or decoding only the window might give a different result.
    """
    use = _find_use(graph, _CROPS)
    if use.lead > 1 or not _is_window(use.op, use.lead):
        raise NoCrop(f"its op {use.op.type} cuts out something else than a window")
    return Crop(use.decode, use.steps, use.op, use.shapes, use.lead)


def find_resize(graph: Any) -> Resize:
    """Finds the one decode in the graph whose whole image is resized to a fixed size.

    Raises:
        NoCrop: there is none, or something depends on the size of the original image.
    """
    use = _find_use(graph, _RESIZES)
    size = tf.get_static_value(use.op.inputs[1])
    if size is None:
        raise NoCrop("the size it resizes to is not fixed")
    if any(not _says_scale(graph, op, use.op) for op, _ in use.shapes):
        raise NoCrop("it uses the size of the image")
    return Resize(use.decode, use.op, (int(size[0]), int(size[1])))


def _find_use(graph: Any, kinds: frozenset[str]) -> _Use:
    """Finds the one decode in the graph, and the op with a type in `kinds` that alone uses its image.

    Raises:
        NoCrop: there is none, or its image is used in another way.
    """
    decodes = [op for op in graph.get_operations() if op.type == DECODER]
    if not decodes:
        raise NoCrop("it decodes inside a branch, a loop or a traced function")
    if len(decodes) > 1:
        raise NoCrop(f"it decodes {len(decodes)} images")
    (decode,) = decodes
    _refuse_unusual(decode)
    tensor, steps, shapes, lead = decode.outputs[0], list[Any](), list[tuple[Any, int]](), 0
    while True:
        readers = list({id(op): op for op in tensor.consumers()}.values())
        shapes += [(op, lead) for op in readers if op.type == "Shape"]
        using = [op for op in readers if op.type != "Shape" and not _is_idle(graph, op)]
        if any(tensor is output for output in graph.outputs):
            raise NoCrop("it gives the whole image on")
        if len(using) != 1:
            names = " and ".join(sorted(op.type for op in using)) or "nothing"
            raise NoCrop(f"the whole image is used by {names}")
        (op,) = using
        if op.type in kinds:
            break
        if not _treats_pixels_alike(op, tensor):
            raise NoCrop(f"its op {op.type} uses the whole image")
        if op.type == "ExpandDims":
            lead += 1
        steps.append(op)
        tensor = op.outputs[0]
    _refuse_waiting(graph, {id(one) for one in (decode, *steps)})
    return _Use(decode, tuple(steps), op, tuple(shapes), lead)


def _says_scale(graph: Any, shape: Any, resize: Any) -> bool:
    """Whether the result of the op `shape` is used only to compute inputs of the op `resize`."""
    waiting, seen = [shape], set[int]()
    while waiting:
        op = waiting.pop()
        if id(op) in seen or op is resize:
            continue
        seen.add(id(op))
        if not op.outputs or any(made is output for made in op.outputs for output in graph.outputs):
            return False
        waiting += [reader for made in op.outputs for reader in made.consumers()]
    return True


def _refuse_unusual(decode: Any) -> None:
    if decode.get_attr("ratio") != 1:
        raise NoCrop("it decodes at a smaller scale (ratio)")
    if decode.get_attr("try_recover_truncated") or decode.get_attr("acceptable_fraction") != 1:
        raise NoCrop("it takes images that are cut off")


def _is_idle(graph: Any, op: Any) -> bool:
    """Whether an op is an `Identity` that nothing reads: `central_crop` leaves one after it checks an image."""
    given = op.outputs[0] if op.type == "Identity" else None
    return given is not None and not given.consumers() and all(given is not output for output in graph.outputs)


def _treats_pixels_alike(op: Any, tensor: Any) -> bool:
    """Whether each value of the result of `op` depends only on the value of `tensor` at the same position."""
    if op.type in _EACH_PIXEL:
        return True
    if op.type == "ExpandDims":
        axis = tf.get_static_value(op.inputs[1])
        return tensor is op.inputs[0] and axis is not None and int(axis) == 0
    if op.type not in _WITH_A_NUMBER:
        return False
    others = [one for one in op.inputs if one is not tensor]
    return len(others) == 1 and others[0].shape.rank == 0 and tf.get_static_value(others[0]) is not None


def _refuse_waiting(graph: Any, whole: set[int]) -> None:
    for op in graph.get_operations():
        if any(id(other) in whole for other in op.control_inputs):
            raise NoCrop(f"its op {op.type} waits for the whole image")


def _is_window(cut: Any, lead: int) -> bool:
    if cut.inputs[0].shape.rank != 3 + lead:
        return False
    if cut.type == "Slice":
        return True
    masks = [cut.get_attr(name) for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")]
    strides = tf.get_static_value(cut.inputs[3])
    plain = strides is not None and all(step == 1 for step in strides)
    return lead == 0 and not any(masks) and plain and cut.inputs[1].shape.is_fully_defined()
