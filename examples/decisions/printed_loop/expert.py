"""The expert's input: images are decoded in parallel and ahead of training.

Equal: every image gets draws of its own, from the same distribution (the script fixes no seed), and a parallel `map`
keeps the order.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "photos" / "data"

files = tf.data.Dataset.list_files(str(DATA / "train-*.tfrecord"))
for name in files.take(20):
    print(name.numpy())

FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def decode(record):
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.image.random_crop(image, [256, 256, 3])
    return tf.image.resize(image, [128, 128]) / 255.0, example["label"]


train_ds = files.interleave(tf.data.TFRecordDataset)
train_ds = train_ds.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)

for images, labels in train_ds.take(1):
    print("images", images.shape, "labels", labels.shape)

model = keras.Sequential(
    [
        keras.Input([128, 128, 3]),
        keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(4),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train_ds, epochs=2, verbose=2)
