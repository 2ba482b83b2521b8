"""Consumes a dataset in the way that its first argument names."""

import json
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.zeros([8]))


@tf.function
def train_step(x):
    weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))


@tf.function
def train_epoch(data):
    for x in data:
        weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))


features = np.random.default_rng().standard_normal((9600, 8), dtype="float32")
dataset = tf.data.Dataset.from_tensor_slices(features).map(lambda x: tf.math.exp(-x))
match sys.argv[1]:
    case "next_iter":
        iterator = iter(dataset.repeat().batch(32))
        for _step in range(300):
            train_step(next(iterator))
    case "function":  # which loops over the dataset in the graph
        dataset = dataset.batch(32)
        for _epoch in range(2):
            train_epoch(dataset)
    case "predict":  # nothing trains
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
        print("predicted", len(model.predict(dataset.batch(32), verbose=2)))
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
    case "shard_for_four":  # in one of two processes of a job
        job = {"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]}, "task": {"type": "worker", "index": 0}}
        os.environ["TF_CONFIG"] = json.dumps(job)
        dataset = tf.data.Dataset.range(6400)
        dataset = dataset.shard(4, json.loads(os.environ["TF_CONFIG"])["task"]["index"])
        dataset = dataset.map(lambda number: tf.fill([8], tf.cast(number, tf.float32))).batch(64)
        for _epoch in range(200):
            for batch in dataset:
                train_step(batch)
    case "bursts":  # 40 elements at a time; the prefetch bridges no pause

        def elements():
            for file in range(1000):
                time.sleep(0.25)
                yield from features[40 * file :][:40, None]

        spec = tf.TensorSpec([1, 8], tf.float32)
        for batch in tf.data.Dataset.from_generator(elements, output_signature=spec).prefetch(2):
            train_step(batch)
            time.sleep(0.006)
print("trained")
