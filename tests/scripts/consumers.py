"""Consumes a dataset in the way that its first argument names."""

import os
import sys

import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.zeros([8]))


@tf.function
def train_step(x):
    weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))


@tf.function
def train_epoch(dataset):
    for x in dataset:
        weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))


features = np.random.default_rng().standard_normal((9600, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices(features).map(lambda x: tf.math.exp(-x))
match sys.argv[1]:
    case "endless":
        for step, batch in enumerate(dataset.take(950).repeat().batch(32)):
            train_step(batch)
            if step == 400:
                break
    case "enumerate_take":  # looks like a preview, and is the training loop
        for step, batch in enumerate(dataset.repeat().batch(32).take(250)):
            train_step(batch)
            if step % 100 == 0:
                print("step", step)
    case "next_iter":
        iterator = iter(dataset.repeat().batch(32))
        for _step in range(300):
            train_step(next(iterator))
    case "function":  # which loops over the dataset in the graph
        dataset = dataset.batch(32)
        for _epoch in range(2):
            train_epoch(dataset)
    case "reduce":  # the weights are the state
        dataset = dataset.batch(32)
        state = tf.zeros([8])
        for _epoch in range(2):
            state = dataset.reduce(state, lambda state, x: state + 0.01 * tf.reduce_mean(x, axis=0))
    case "removes_file":  # the file argv[2], at step 30 of many
        try:
            for step, batch in enumerate(dataset.batch(32)):
                train_step(batch)
                if step == 30:
                    os.remove(sys.argv[2])
        finally:
            print("it went on")
print("trained")
