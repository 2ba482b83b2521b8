"""The expert's input: images are decoded and resized once, and augmented in every epoch.

Equal: what is cached draws no random numbers; every image still gets draws of its own from the same distribution.
"""

from __future__ import annotations

import tensorflow as tf
import train


def load(path, label):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [train.PIXELS + 16, train.PIXELS + 16]), label


def augment(image, label):
    image = tf.image.random_crop(image, [train.PIXELS, train.PIXELS, 3])
    image = tf.image.random_flip_left_right(image)
    return image / 127.5 - 1.0, label


def make_dataset():
    paths = sorted(train.DATA.glob("*/*.jpg"))
    labels = [int(path.parent.name == "flower") for path in paths]
    dataset = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(len(paths))
    return dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)


train.make_dataset = make_dataset

if __name__ == "__main__":
    train.main()
