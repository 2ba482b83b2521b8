"""Trains with a parameter server and two workers, all in this process, as the guide tests it; `fit`: by tf_keras."""

import socket
import sys

import tensorflow as tf


def port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def address():
    return f"localhost:{port()}"


THREADS = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)  # more than workers, whatever the cores
cluster = tf.train.ClusterSpec({"worker": [address(), address()], "ps": [address()]})
servers = [
    tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc", config=THREADS)
    for job in cluster.jobs
    for index in range(cluster.num_tasks(job))
]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
)


def dataset_fn(context):
    dataset = tf.data.Dataset.range(640).shuffle(64)
    dataset = dataset.map(lambda number: (tf.fill([16], tf.cast(number, tf.float32)), tf.zeros([1])))
    return dataset.repeat().batch(8)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


if sys.argv[1:] == ["fit"]:
    import tf_keras

    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(tf_keras.utils.experimental.DatasetCreator(dataset_fn), steps_per_epoch=1_000)

with strategy.scope():
    weights = tf.Variable(tf.zeros([16, 1]))


@tf.function
def step(iterator):
    def replica_step(x, y):
        weights.assign_sub(1e-6 * tf.reduce_mean(x, axis=0)[:, tf.newaxis])

    strategy.run(replica_step, args=next(iterator))


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
for _ in range(100_000):
    coordinator.schedule(step, args=(iterator,))
coordinator.join()
