"""A dataset that Keras makes inside the library, of images that it reads below the folder argv[1]."""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

folder = Path(sys.argv[1])
random = np.random.default_rng()
for kind in ("cats", "dogs"):
    (folder / "images" / kind).mkdir(parents=True, exist_ok=True)
    for number in range(200):
        pixels = random.integers(0, 256, (24, 24, 3), dtype="uint8")
        tf.io.write_file(str(folder / "images" / kind / f"{number}.png"), tf.io.encode_png(pixels))

images = keras.utils.image_dataset_from_directory(folder / "images", image_size=(16, 16), batch_size=4)
model = keras.Sequential([keras.Input([16, 16, 3]), keras.layers.Flatten(), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(images.map(lambda image, label: (image / 255.0, label)), epochs=2, verbose=2)
