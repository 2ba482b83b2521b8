"""The ops that decode a window of a JPEG, so that it is what the decoded image has there.

`decode_and_crop_jpeg` is not decode-then-slice: most JPEGs keep colour at half the resolution, and the decoder blends
it with the pixels next to it, which at the edge of a window are not decoded. So the decoded window is wider on each
side, as far as the image reaches, and what is decoded is sliced: then it is the same, bit for bit. A window that is not
inside the image does what it did: `tf.slice` raises, `image[a:b]` takes what there is. What is no JPEG (the op reads
PNG, too) is decoded whole: nobody has seen all of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf.pipelines.crops import Crop

MARGIN_PIXELS = 2
"""How much wider than the crop the decoded window is on each side.

One would do, but for a window one pixel wide at the left or right border: the decoder blends nothing where it has no
more than two columns. The tests show both.
"""

_MOST_CHANNELS = 3  # an image of four (CMYK) is decoded to RGB
_EVERY_CHANNEL = 1 << 16
_KEPT = ("fancy_upscaling", "try_recover_truncated", "acceptable_fraction", "dct_method")


def shapes_of(contents: Any, crop: Crop) -> list[Any]:
    """The shape of the whole image, and what each op that asked for it gets."""
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
    """The whole image: the op reads other formats than JPEG too, of which no part can be decoded alone."""
    return tf.raw_ops.DecodeJpeg(
        contents=contents, channels=crop.decode.get_attr("channels"), ratio=1, **_attributes(crop)
    )


def _attributes(crop: Crop) -> dict[str, Any]:
    attributes = {name: crop.decode.get_attr(name) for name in _KEPT}
    return attributes | {"dct_method": attributes["dct_method"].decode()}


def window_of(crop: Crop, contents: Any, shape: Any, first: Any, second: Any, *, margin: int) -> tuple[Any, Any, Any]:
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
