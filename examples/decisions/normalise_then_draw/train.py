"""A `tf.function` method of a class decodes and normalises an image, then draws how to augment it.

Right: the map is made parallel; a cache between the two parts is offered with consent.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "photos" / "data"
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


class Preprocessing:
    def __init__(self, pixels):
        self.pixels = pixels

    @tf.function
    def normalise(self, data):
        image = tf.image.resize(tf.io.decode_jpeg(data, channels=3), [self.pixels + 16, self.pixels + 16])
        return tf.image.per_image_standardization(image)

    @tf.function
    def __call__(self, record):
        example = tf.io.parse_single_example(record, FEATURES)
        image = self.normalise(example["image"])
        image = tf.image.random_crop(image, [self.pixels, self.pixels, 3])
        return tf.image.random_flip_left_right(image), example["label"]


def main():
    files = tf.data.Dataset.list_files(str(DATA / "train-*.tfrecord"))
    dataset = files.interleave(tf.data.TFRecordDataset).map(Preprocessing(112)).shuffle(200).batch(32).prefetch(1)
    model = keras.Sequential(
        [
            keras.Input([112, 112, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(dataset, epochs=2, verbose=2)


if __name__ == "__main__":
    main()
