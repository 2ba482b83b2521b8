"""The expert's input: one map makes both views; each crops the image as bytes, and turns only what is left to floats.

Equal: a crop of converted pixels is the converted crop, and a grey view is computed only where it is taken. Every draw
is made by the same function from the same distribution. To decode only the crop would change the colours at its edge.
"""

from __future__ import annotations

import tensorflow as tf
import train


def crop_and_resize(image):
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=tf.zeros([1, 0, 4]),
        min_object_covered=0.1,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.image.convert_image_dtype(tf.ensure_shape(tf.slice(image, begin, size), [None, None, 3]), tf.float32)
    return tf.image.resize(window, [train.IMAGE_PIXELS, train.IMAGE_PIXELS], method="bicubic")


def maybe_grey(image):
    taken = tf.random.uniform([]) < 0.2
    return tf.cond(taken, lambda: tf.tile(tf.image.rgb_to_grayscale(image), [1, 1, 3]), lambda: image)


def view(image):
    image = tf.image.random_flip_left_right(crop_and_resize(image))
    return maybe_grey(train.clip(train.blur(train.jitter(image))))


def two_views(path):
    image = train.decode(path)
    return train.side_by_side(view(image), view(image))


def training_dataset(data=train.DATA):
    dataset = tf.data.Dataset.list_files(str(data / "*" / "*.jpg"))
    dataset = dataset.map(two_views, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(train.BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
