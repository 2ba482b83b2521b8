"""The helper functions that a patch adds to a file so that only the crop window of a JPEG is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.added_functions import add_functions, outermost
from pipetune.source.draft import Draft, Splice
from pipetune.source.literals import tensorflow_text

WINDOW, RANDOM_WINDOW, SHAPE = "crop_jpeg", "random_crop_jpeg", "jpeg_shape"

_TEXTS = {
    WINDOW: '''\
def crop_jpeg(contents, begin, size, channels):
    """tf.slice of a decoded JPEG, of which only the window is decoded."""
    # Two pixels more on each side are decoded, and cut off again: most JPEGs keep colour at half the resolution, and a
    # pixel's colour is blended with that of its neighbours. At the edge of what is decoded they would be missing.
    begin = tf.convert_to_tensor(begin)
    top_left = tf.maximum(begin[:2] - 2, 0)
    bottom_right = tf.minimum(begin[:2] + size[:2] + 2, jpeg_shape(contents, channels)[:2])
    window = tf.concat([top_left, bottom_right - top_left], axis=0)
    image = tf.cond(
        tf.io.is_jpeg(contents),  # decode_jpeg reads other formats too, which are decoded whole
        lambda: tf.io.decode_and_crop_jpeg(contents, window, channels=channels),
        lambda: tf.image.crop_to_bounding_box(tf.io.decode_jpeg(contents, channels=channels), *tf.unstack(window)),
    )
    image.set_shape([None, None, channels])
    return tf.slice(image, begin - tf.concat([top_left, [0]], axis=0), size)
''',
    RANDOM_WINDOW: '''\
def random_crop_jpeg(contents, size, channels, seed=None):
    """tf.image.random_crop of a decoded JPEG, by the same draws; only the window is decoded."""
    drawn = tf.random.uniform([3], maxval=tf.int32.max, dtype=tf.int32, seed=seed)
    return crop_jpeg(contents, drawn % (jpeg_shape(contents, channels) - size + 1), size, channels)
''',
    SHAPE: '''\
def jpeg_shape(contents, channels):
    """tf.shape of a decoded JPEG, which is not decoded for that."""
    return tf.cond(
        tf.io.is_jpeg(contents),
        lambda: tf.concat([tf.io.extract_jpeg_shape(contents)[:2], [channels]], axis=0),
        lambda: tf.shape(tf.io.decode_jpeg(contents, channels=channels)),
    )
''',
}

def insert_helpers(
    draft: Draft, file: str, names: Iterable[str], splices: Sequence[Splice], *, before: cst.FunctionDef
) -> Draft:
    """Returns the draft with `splices` applied to `file`, and the helpers in front of the statement around `before`.

    Args:
        names: of the helpers to insert.
        before: the function that calls them; they go in front of the module-level statement that contains it.

    Raises:
        CannotExpress: the file already uses one of the names for something else, or has no name for TensorFlow.
    """
    tree = draft.tree(file)
    tensorflow = (tensorflow_text(tree, outermost(tree, before), "slice") or "").removesuffix("slice")
    if not tensorflow.endswith("."):
        raise CannotExpress("The file has no name for TensorFlow, which the window is decoded through.")
    texts = {name: _TEXTS[name].replace("tf.", tensorflow) for name in names}
    return add_functions(draft, file, texts, splices, before=before)
