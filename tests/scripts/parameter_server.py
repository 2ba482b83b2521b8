"""Trains by fit of tf_keras with a parameter server and two workers, all in this process, as the guide tests it."""

import socket

import tensorflow as tf
import tf_keras


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


with strategy.scope():
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(tf_keras.utils.experimental.DatasetCreator(dataset_fn), steps_per_epoch=1_000)
