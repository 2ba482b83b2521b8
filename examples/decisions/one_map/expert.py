"""The expert's input: images are decoded and resized once, and augmented in every epoch.

Equal: what is cached draws no random numbers; every image still gets draws of its own from the same distribution.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "simclr" / "data"
PIXELS = 128


def load(path, label):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [PIXELS + 16, PIXELS + 16]), label


def augment(image, label):
    image = tf.image.random_crop(image, [PIXELS, PIXELS, 3])
    image = tf.image.random_flip_left_right(image)
    return image / 127.5 - 1.0, label


def main():
    paths = sorted(DATA.glob("*/*.jpg"))
    labels = [int(path.parent.name == "flower") for path in paths]
    dataset = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(len(paths))
    dataset = dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
    model = keras.Sequential(
        [
            keras.Input([PIXELS, PIXELS, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(dataset, epochs=20, verbose=2)


if __name__ == "__main__":
    main()
