"""Trains in several processes in step, those of TF_CONFIG, in the way that its first argument names.

What each worker reads is its own share.
"""

import json
import os
import signal
import sys

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
GLOBAL_BATCH = 16
way = sys.argv[1]


def sharpen(row):
    for _ in range(4):
        row = tf.tanh(tf.sort(row))
    return row, tf.reduce_sum(row)[tf.newaxis]


def dataset_fn(context):
    dataset = rows().shard(context.num_input_pipelines, context.input_pipeline_id)
    return dataset.map(sharpen).batch(context.get_per_replica_batch_size(GLOBAL_BATCH)).repeat()


def rows():
    return tf.data.Dataset.range(GLOBAL_BATCH * 100).map(lambda number: tf.fill([1024], tf.cast(number, tf.float32)))


with strategy.scope():
    weights = tf.Variable(tf.zeros([1024, 1]))


def replica_step(x, y):
    error = tf.matmul(x, weights) - y
    gradient = tf.matmul(x, error, transpose_a=True)
    weights.assign_sub(1e-9 * tf.distribute.get_replica_context().all_reduce("SUM", gradient))
    return tf.nn.compute_average_loss(tf.reduce_sum(error**2, axis=1), global_batch_size=GLOBAL_BATCH)


@tf.function
def step(x, y):
    return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)


def batches():
    return rows().map(sharpen).batch(GLOBAL_BATCH).repeat()


if way == "loop":
    dataset = batches()
    for x, y in strategy.experimental_distribute_dataset(dataset):
        step(x, y)
elif way == "dataset_fn":
    for x, y in strategy.distribute_datasets_from_function(dataset_fn):
        step(x, y)
elif way == "dies":  # in the step after so many, on the last worker
    for number, (x, y) in enumerate(strategy.experimental_distribute_dataset(batches())):
        step(x, y)
        if worker and number == int(sys.argv[2]):
            print("no more of this", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
elif way == "raises":
    for number, (x, y) in enumerate(strategy.experimental_distribute_dataset(batches())):
        step(x, y)
        if worker and number == int(sys.argv[2]):
            raise ValueError("worker 1 has had enough")
elif way == "fit":
    import tf_keras as keras

    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-9), "mse")
    dataset = batches()
    model.fit(dataset, steps_per_epoch=50, verbose=0)
print("the end")
