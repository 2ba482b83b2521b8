"""Train with parameter servers: a chief sends steps to workers, which read the data by themselves.

TF_CONFIG says what a process is. Without it chief, workers and server all run in this process, to try it out. Keras 3
knows no parameter servers, so the model is a matrix.

    python examples/distributed/make_data.py
    python examples/distributed/start.py --parameter-servers 1 examples/distributed/parameter_server/train.py
    pipetune analyze examples/distributed/parameter_server/train.py
    pipetune analyze --workers 2 --parameter-servers 1 examples/distributed/parameter_server/train.py
"""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

import tensorflow as tf

DATA = Path(__file__).resolve().parents[1] / "data"
PIXELS = 28 * 28
BATCH_SIZE = 64
THREADS = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)  # more than workers, whatever the cores


def serve(cluster, job, index):
    return tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc", config=THREADS)


def find_cluster():
    """The cluster that TF_CONFIG names; never returns where this process only serves it."""
    if "TF_CONFIG" in os.environ:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
        if resolver.task_type in ("worker", "ps"):
            serve(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
        return resolver
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    first, second, third = (f"127.0.0.1:{one.getsockname()[1]}" for one in sockets)
    for one in sockets:
        one.close()
    cluster = tf.train.ClusterSpec({"worker": [first, second], "ps": [third]})
    for job in cluster.jobs:
        for index in range(cluster.num_tasks(job)):
            serve(cluster, job, index)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [PIXELS])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="steps per epoch, of all workers together")
    arguments = parser.parse_args()

    strategy = tf.distribute.ParameterServerStrategy(find_cluster())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/distributed/make_data.py first")
    pattern = str(arguments.data / "train-*.tfrecord")

    def dataset_fn(context):
        """Everything, without end: workers differ by the order alone, and nobody waits for a slow one."""
        files = tf.data.Dataset.list_files(pattern)
        dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.shuffle(2048).repeat().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.batch(BATCH_SIZE, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    @tf.function
    def per_worker_dataset():
        return strategy.distribute_datasets_from_function(dataset_fn)

    with strategy.scope():
        weights = tf.Variable(tf.zeros([PIXELS, 10]))
    learning_rate = 0.1

    @tf.function
    def train_step(iterator):
        def replica_step(images, labels):
            with tf.GradientTape() as tape:
                logits = tf.matmul(images, weights)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            weights.assign_sub(learning_rate * tape.gradient(loss, weights))
            return loss

        return strategy.run(replica_step, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset))
    for epoch in range(arguments.epochs):
        losses = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(arguments.steps)]
        coordinator.join()
        mean = sum(float(loss.fetch()) for loss in losses) / len(losses)
        print(f"epoch {epoch + 1}: mean loss {mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
