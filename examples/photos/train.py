"""Train a small network on photographs, with the input pipeline a beginner would write (see pipeline.py).

What it shows: every image is read, decoded and augmented while the network waits. The augmentation draws
random numbers, so TensorFlow leaves it on one processor; nothing is prefetched by the script.

    python examples/photos/make_data.py
    pipetune analyze examples/photos/train.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import keras
from pipeline import BATCH_SIZE, IMAGE_PIXELS, training_dataset, validation_dataset

HERE = Path(__file__).resolve().parent


def build_model():
    model = keras.Sequential(
        [
            keras.Input([IMAGE_PIXELS, IMAGE_PIXELS, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all training images once)")
    parser.add_argument("--out", type=Path, default=HERE / "data" / "model.keras", help="where the model is saved")
    arguments = parser.parse_args()

    about_path = arguments.data / "about.json"
    if not about_path.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/photos/make_data.py first")
    about = json.loads(about_path.read_text())
    train = training_dataset(str(arguments.data / "train-*.tfrecord"))
    validation = validation_dataset(str(arguments.data / "validation-*.tfrecord"))

    model = build_model()
    model.fit(
        train,
        epochs=arguments.epochs,
        steps_per_epoch=arguments.steps or about["training_images"] // BATCH_SIZE,
        validation_data=validation,
        callbacks=[keras.callbacks.ModelCheckpoint(arguments.out)],
        verbose=2,
    )


if __name__ == "__main__":
    main()
