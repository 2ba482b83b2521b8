"""One function reads, decodes, resizes and augments, as in many tutorials on small sets of images.

Right: the function is split, what the first half makes is cached, and every epoch draws anew.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "simclr" / "data"
PIXELS = 128


def load_training_image(path, label):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.image.resize(image, [PIXELS + 16, PIXELS + 16])
    image = tf.image.random_crop(image, [PIXELS, PIXELS, 3])
    image = tf.image.random_flip_left_right(image)
    return image / 127.5 - 1.0, label


def make_dataset():
    paths = sorted(DATA.glob("*/*.jpg"))
    labels = [int(path.parent.name == "flower") for path in paths]
    dataset = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
    dataset = dataset.map(load_training_image, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.shuffle(len(paths)).batch(16).prefetch(tf.data.AUTOTUNE)


def main():
    model = keras.Sequential(
        [
            keras.Input([PIXELS, PIXELS, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(make_dataset(), epochs=20, verbose=2)


if __name__ == "__main__":
    main()
