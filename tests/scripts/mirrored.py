"""Trains on two replicas, the processor twice, in the way that its first argument names."""

import sys

import tensorflow as tf

processors = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(processors[0], [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
GLOBAL_BATCH = 32


def sharpen(row):
    for _ in range(12):
        row = tf.tanh(tf.sort(row))
    return row, tf.reduce_sum(row)[tf.newaxis]


def rows():
    return tf.data.Dataset.range(GLOBAL_BATCH * 200).map(lambda number: tf.fill([2048], tf.cast(number, tf.float32)))


def dataset_fn(context):
    dataset = rows().shard(context.num_input_pipelines, context.input_pipeline_id)
    dataset = dataset.map(sharpen)
    return dataset.batch(context.get_per_replica_batch_size(GLOBAL_BATCH))


with strategy.scope():
    weights = tf.Variable(tf.zeros([2048, 1]))


def replica_step(x, y):
    error = tf.matmul(x, weights) - y
    weights.assign_sub(1e-6 * tf.matmul(x, error, transpose_a=True))
    return tf.nn.compute_average_loss(tf.reduce_sum(error**2, axis=1), global_batch_size=GLOBAL_BATCH)


@tf.function
def step(x, y):
    return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)


if sys.argv[1] == "loop":
    dataset = rows().map(sharpen).batch(GLOBAL_BATCH)
    for x, y in strategy.experimental_distribute_dataset(dataset):
        step(x, y)
else:
    for x, y in strategy.distribute_datasets_from_function(dataset_fn):
        step(x, y)
print("the end")
