"""Takes options, among them some that pipetune has too (--out, --seed, --verbose): all must reach it unchanged."""

import argparse

import keras
import numpy as np
import tensorflow as tf


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--out")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    print(arguments)
    features = np.random.default_rng(arguments.seed).standard_normal((arguments.rows, 8), dtype="float32")
    dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y)).batch(32)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(dataset, epochs=1, verbose=2)


if __name__ == "__main__":
    main()
