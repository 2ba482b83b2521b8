"""The expert's input: records are shuffled before they are decoded, in parallel and ahead of training.

Equal: every image still gets draws of its own, from the same distribution (the script fixes no seed), and a parallel
`map` keeps the order. The files' order changes every epoch, so nothing behind them can be cached.
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
    dataset = files.interleave(tf.data.TFRecordDataset).shuffle(200)
    dataset = dataset.map(Preprocessing(112), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(32).prefetch(tf.data.AUTOTUNE)
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
