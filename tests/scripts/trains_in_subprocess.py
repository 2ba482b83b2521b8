"""Trains in another process, started anew or forked: this one consumes no dataset (exit 4, with a hint)."""

import multiprocessing
import subprocess
import sys

if not sys.argv[1:]:
    sys.exit(subprocess.run([sys.executable, __file__, "train"], check=False).returncode)

import keras
import numpy as np
import tensorflow as tf


def train():
    features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
    dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y)).batch(32)
    weight = tf.Variable([0.0])
    for _ in dataset:
        weight.assign_add([1.0])
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(dataset, epochs=1, verbose=2)


if sys.argv[1] == "fork":
    forked = multiprocessing.get_context("fork").Process(target=train)
    forked.start()
    forked.join()
else:
    train()
