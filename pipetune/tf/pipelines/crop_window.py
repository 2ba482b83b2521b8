"""Builds ops that decode a window of a JPEG to exactly the pixels that decoding the whole image gives there.

`decode_and_crop_jpeg` does not equal decode-then-slice: most JPEGs store color at half the resolution, and the decoder
blends it with the neighboring pixels, which are not decoded beyond the edge of a window. The decoded window is
therefore wider on each side, as far as the image reaches, and is sliced afterwards: the result is the same, bit for
bit. A window that is not inside the image behaves as before: `tf.slice` raises, `image[a:b]` returns what exists.
Input that is not a JPEG (the op also reads PNG) is decoded whole, because only a sample of the data was examined.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf.pipelines.crops import Crop

MARGIN_PIXELS = 2
"""Pixels that the decoded window adds to the crop on each side.

One pixel is enough except for a window one pixel wide at the left or right border: the decoder does not blend colors
when it decodes no more than two columns. The tests cover both cases.
"""

_MOST_CHANNELS = 3  # an image with four channels (CMYK) is decoded to RGB
_EVERY_CHANNEL = 1 << 16  # margin on the channel axis: more than any image has
_KEPT = ("fancy_upscaling", "try_recover_truncated", "acceptable_fraction", "dct_method")


def shapes_of(contents: Any, crop: Crop) -> list[Any]:
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
    asked = [tf.concat([[1] * lead, whole], axis=0) if lead else whole for _, lead in crop.shapes]
    kinds = [op.outputs[0].dtype for op, _ in crop.shapes]
    return [whole, *(tf.cast(shape, kind) for shape, kind in zip(asked, kinds, strict=True))]


def _decoded(contents: Any, crop: Crop) -> Any:
    """Decodes the whole image: the op also reads formats other than JPEG, which cannot be decoded in part."""
    return tf.raw_ops.DecodeJpeg(
        contents=contents, channels=crop.decode.get_attr("channels"), ratio=1, **_attributes(crop)
    )


def _attributes(crop: Crop) -> dict[str, Any]:
    attributes = {name: crop.decode.get_attr(name) for name in _KEPT}
    return attributes | {"dct_method": attributes["dct_method"].decode()}


def window_of(crop: Crop, contents: Any, shape: Any, first: Any, second: Any, *, margin: int) -> tuple[Any, Any, Any]:
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
        int32 [`crop.lead` + 3].
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
    window = tf.gather(tf.concat([low, high - low], axis=0), [0, 1, 3, 4])
    image = tf.cond(
        tf.io.is_jpeg(contents),
        lambda: tf.raw_ops.DecodeAndCropJpeg(
            contents=contents, crop_window=window, channels=crop.decode.get_attr("channels"), **_attributes(crop)
        ),
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


def _of_indexing(shape: Any, begin: Any, end: Any, cut: Any) -> tuple[Any, Any]:
    """Returns begin and size of `image[a:b, c:d]`, int32 [3] each, clipped to the image as Python indexing does."""
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
