"""`python -m tests.capture.coordinated`: schedules steps on two workers and a parameter server, and prints JSON.

The servers run in this process. A cluster changes the devices of its process, hence a separate one.
"""

from __future__ import annotations

import functools
import gc
import json
import linecache
import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import coordinator_consumer
from pipetune.capture.coordinator_consumer import CoordinatorConsumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.patches import Patches
from pipetune.capture.substitution import substitute
from pipetune.core.cluster import free_addresses
from pipetune.core.distribution import COORDINATOR as COORDINATOR_CALL
from pipetune.core.measurement import RunFailed
from pipetune.pipelines import call_sites, live
from tests.capture.test_hooks import Run, run

Dataset = tf.data.Dataset
WORKERS = 2
THREADS = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)  # more than workers, for any number of cores

gc.collect()
gc.freeze()  # imported modules: each window ends with a collection of everything else
first, second, third = free_addresses(3)
CLUSTER = tf.train.ClusterSpec({"worker": [first, second], "ps": [third]})
for job in CLUSTER.jobs:
    for index in range(CLUSTER.num_tasks(job)):
        tf.distribute.Server(CLUSTER, job_name=job, task_index=index, protocol="grpc", config=THREADS)
RESOLVER = tf.distribute.cluster_resolver.SimpleClusterResolver(CLUSTER, rpc_layer="grpc")
STRATEGY = tf.distribute.ParameterServerStrategy(RESOLVER)
COORDINATOR = tf.distribute.coordinator.ClusterCoordinator(STRATEGY)
with STRATEGY.scope():
    TAKEN = tf.Variable(0, dtype=tf.int64)
    SUM = tf.Variable(0, dtype=tf.int64)


def count(numbers: Any) -> None:
    TAKEN.assign_add(1)
    SUM.assign_add(tf.reduce_sum(numbers))


@tf.function
def one(iterator: Any) -> None:
    STRATEGY.run(count, args=(next(iterator),))


@tf.function
def three(iterator: Any) -> None:
    for _ in tf.range(3):
        STRATEGY.run(count, args=(next(iterator),))


@tf.function
def all_there_are(iterator: Any) -> None:
    for _numbers in iterator:
        pass


@tf.function
def nothing() -> None:
    pass


def numbers(_context: Any = None) -> Any:
    return Dataset.range(12).batch(4, drop_remainder=True)


def trains(step: Any, given: Any, *, name: str = "", before: Callable[[], Any] = lambda: None) -> Run:
    """Runs a script that schedules `step` with an iterator of the coordinator's dataset from `given`."""

    def script() -> None:
        before()
        iterator = iter(COORDINATOR.create_per_worker_dataset(given))
        for _ in range(3):
            COORDINATOR.schedule(step, args=(iterator,))
        COORDINATOR.join()

    return run(script, wanted=name or None)


def window(consumer: Any, dataset: Any, *, steps: int = 6) -> Any:
    """Steps of a window, calls that reached the server in it and their sum; or the message of its failure."""
    TAKEN.assign(0)
    SUM.assign(0)
    with call_sites.running_workflow():
        try:
            made = consumer.window(dataset, steps=steps, warmup=2)
        except RunFailed as failure:
            return str(failure)
    return [made.steps, int(TAKEN), int(SUM)]


def in_function() -> Any:
    return STRATEGY.distribute_datasets_from_function(numbers)


def distributed() -> Any:
    return STRATEGY.experimental_distribute_dataset(numbers())


Answer = tuple[str, Any, Any]
"""What is examined, what is found, and what is expected."""


def forms() -> Iterator[Answer]:
    """Each way to give a dataset to a coordinator but that of `served`, with a window of the scheduled steps."""
    for name, form in {
        "a function of a dataset": numbers,
        "a distributed dataset of a function": in_function(),
        "a distributed dataset": distributed(),
        "a dataset": numbers(),
    }.items():
        found = trains(one, form)
        steps, calls, _ = window(found.consumer, numbers())
        seen = [found.consumer.kind, steps, int(TAKEN) > 0, found.stopped]
        yield name, seen, ["coordinator", 6, True, True]
        yield f"{name}: calls of the window, and its warm-up on every worker", calls, WORKERS * (6 + 2)


def served() -> Iterator[Answer]:
    TAKEN.assign(5)
    found = trains(one, tf.function(in_function))
    consumer, use, handed = found.consumer, found.use, found.use.distributed_input
    assert isinstance(consumer, CoordinatorConsumer) and handed is not None
    yield "restored: steps were taken to see whether they can be", int(TAKEN), 5
    said = [use.role, use.consumer_call, handed.handover.workers, consumer.description]
    scheduled = "ClusterCoordinator.schedule"
    yield "described", said, ["training", scheduled, 2, f"{scheduled}, on 2 workers"]
    steps, calls, total = window(consumer, Dataset.from_tensors(tf.fill([4], tf.constant(1, tf.int64))))
    yield "others: every element is four ones", [steps, total], [6, 4 * calls]
    yield "one step a call", consumer.accepts_multi_step_calls, True
    traced = one.experimental_get_tracing_count()
    with consumer.multi_step_calls(4):
        steps, calls, _ = window(consumer, numbers(), steps=6)
        yield "four a call: two calls of four; the warm-up is one", [steps, calls], [8, WORKERS * (8 + 4)]
        yield "no more a call", consumer.accepts_multi_step_calls, False
    yield "again one", window(consumer, numbers())[:2], [6, WORKERS * 8]
    for what, dataset in (
        ("different shapes", Dataset.range(12).batch(3, drop_remainder=True)),
        ("too much", Dataset.range(12).map(broken).batch(4, drop_remainder=True)),
        ("Python function", Dataset.range(12).map(in_python).batch(4, drop_remainder=True)),
    ):
        failed = window(consumer, dataset)
        yield what, what in failed and (what != "too much" or "InvalidArgumentError" in failed), True
        yield f"after {what}", window(consumer, numbers())[0], 6
    cached = Dataset.range(12).map(drawn).cache().repeat().batch(12, drop_remainder=True)
    filled, again = epoch(cached), epoch(cached)
    yield "cached once per worker", [filled == again, len(filled), filled[0] != filled[1]], [True, WORKERS, True]
    yield "traced again: iterators of all of them are alike", one.experimental_get_tracing_count() - traced, 0


def broken(number: Any) -> Any:
    with tf.control_dependencies([tf.debugging.assert_less(number, tf.constant(6, tf.int64), "too much")]):
        return tf.identity(number)


def drawn(_number: Any) -> Any:
    return tf.random.uniform([], maxval=1 << 40, dtype=tf.int64)


def in_python(number: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda one: one, [number], tf.int64), [])


@tf.function
def first_of(iterator: Any) -> Any:
    return next(iterator)


def epoch(dataset: Any) -> list[list[int]]:
    """The first element on each worker of a new iterator of a dataset."""
    found = coordinator_consumer.worker_dataset_of(COORDINATOR, lambda: dataset)
    like = iter(COORDINATOR.create_per_worker_dataset(found.dataset_function(dataset)))
    made = tensorflow_private.fetch_from_workers(COORDINATOR, first_of, found.iterator(dataset, like))
    return [numbers.tolist() for numbers in made]


def looked_at() -> Iterator[Answer]:
    """Other uses of a coordinator in scripts."""
    consumer: Any = trains(three, tf.function(in_function)).consumer
    found = [*window(consumer, numbers(), steps=6)[:2], consumer.accepts_multi_step_calls]
    yield "three a call: one step per element", found, [6, WORKERS * (6 + 3), False]
    for step, given, why in (
        (all_there_are, numbers, "reads its iterator to"),
        (one, lambda: numbers().skip(2).map(broken), "too much"),
    ):
        consumer = trains(step, given).consumer
        yield why, [consumer.kind, why in consumer.description], ["none", True]

    def two() -> None:
        checked = iter(COORDINATOR.create_per_worker_dataset(lambda: Dataset.range(8).batch(4, drop_remainder=True)))
        COORDINATOR.schedule(nothing)
        COORDINATOR.join()
        trains_on = iter(COORDINATOR.create_per_worker_dataset(tf.function(in_function)))
        COORDINATOR.schedule(one, args=(trains_on,))
        COORDINATOR.schedule(one, args=(checked,))

    both = run(two)
    seen = [both.use.dataset.cardinality().numpy().item(), sorted(use.role for use in both.script.uses)]
    yield "the first that is scheduled", seen, [3, ["preview", "training"]]

    def made_once(_context: Any) -> Any:
        return Dataset.range(12).batch(4, drop_remainder=True)

    by_one_call = trains(one, tf.function(lambda: STRATEGY.distribute_datasets_from_function(made_once)))
    shared = [node.shared for node in live.read(by_one_call.use.dataset).pipeline]
    yield "made at each call by the script, which pipetune only looks at", shared, [1, 1]
    scheduled = trains(one, tf.function(in_function), name="another")
    yield "another is wanted", [len(scheduled.begun), scheduled.stopped], [0, False]


def replaced() -> Iterator[Answer]:
    """Sums of the elements a script trains on after its dataset is substituted, as `pipetune run` does."""
    for name, given in {"function": tf.function(in_function), "distributed": distributed, "dataset": numbers}.items():
        patches = Patches()
        substitute(lambda one: one.map(tf.ones_like).repeat() if int(one.cardinality()) == 3 else one, patches)
        try:
            iterator = iter(COORDINATOR.create_per_worker_dataset(given if name != "distributed" else given()))
        finally:
            patches.close()
        SUM.assign(0)
        for _ in range(8):  # more than the original dataset has
            COORDINATOR.schedule(one, args=(iterator,))
        COORDINATOR.join()
        yield f"replaced {name}", int(SUM), 8 * 4


OUTSIDE = {"train": Dataset.range(12)}
DRAWN = iter(Dataset.range(1 << 40))
MADE_HERE = tf.Variable(3, dtype=tf.int64)
DRAWS = tf.random.Generator.from_seed(1)
ARRAY, TENSOR = np.arange(12), tf.range(12, dtype=tf.int64)
with STRATEGY.scope():
    MADE_THERE = tf.Variable(3, dtype=tf.int64)
    TABLE_THERE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(TENSOR, TENSOR), -1)


def captured() -> Iterator[Answer]:
    """Objects captured by functions that workers call: kind, name, and how the text of the line begins."""
    train, taken = "OUTSIDE['train']", 'train = OUTSIDE["train"]'
    given: dict[str, tuple[Any, list[list[str]]]] = {
        "nothing": (in_function, []),
        "arrays": (lambda: Dataset.from_tensor_slices((ARRAY, TENSOR)).batch(4), []),
        "in scope": (lambda: numbers().map(lambda x: TABLE_THERE.lookup(x) + MADE_THERE), []),
        "a live dataset": (OUTSIDE["train"], []),
        "a distributed dataset": (STRATEGY.experimental_distribute_dataset(OUTSIDE["train"]), []),
        "dataset": (lambda: OUTSIDE["train"].batch(4), [["dataset", train, '"dataset": (lambda']]),
        "dataset, by a distributed one": (lambda: STRATEGY.distribute_datasets_from_function(takes_dataset),
            [["dataset", train, taken]]),
        "dataset, by a distributed one of here": (STRATEGY.distribute_datasets_from_function(takes_dataset),
            [["dataset", train, taken]]),
        "dataset, by tf_keras": (creating(takes_dataset), [["dataset", train, taken]]),
        "dataset, without a name": (lambda: vars(Held)["kept"]().batch(4),
            [["dataset", "", "return run(lambda: COORDINATOR.create_per_worker_dataset(given))"]]),
        "iterator": (lambda: numbers().map(lambda x: x + next(DRAWN)), [["iterator", "DRAWN", '"iterator": (lambda']]),
        "variable": (lambda: numbers().map(lambda x: x + MADE_HERE), [["state", "MADE_HERE", '"variable": (lambda']]),
        "generator": (lambda: numbers().map(lambda x: DRAWS.normal([])), [["state", "DRAWS", '"generator": (lambda']]),
    }  # fmt: skip
    for name, (one_given, expected) in given.items():
        (use,) = [
            use
            for use in created(one_given).uses
            if use.distributed_input is not None and use.distributed_input.how == COORDINATOR_CALL
        ]
        found = [[one.kind, one.name, linecache.getline(one.file, one.line).strip()] for one in use.captured]
        for line, (*_, begin) in zip(found, expected, strict=False):
            line[2] = begin if line[2].startswith(begin) else line[2]
        yield f"captured: {name}", found, expected


def created(given: Any) -> ObservedScript:
    """A script that makes the coordinator's dataset from `given`."""
    return run(lambda: COORDINATOR.create_per_worker_dataset(given)).script


class Held:
    kept = staticmethod(functools.partial(operator.itemgetter("train"), OUTSIDE))


def takes_dataset(_context: Any) -> Any:
    train = OUTSIDE["train"]
    return train.batch(4)


def creating(dataset_fn: Any) -> Any:
    """The function that `fit` of tf_keras gives to its coordinator."""
    import tf_keras

    creator = tf_keras.utils.experimental.DatasetCreator(dataset_fn)

    def per_worker_dataset_fn() -> Any:
        return STRATEGY.distribute_datasets_from_function(creator)

    return per_worker_dataset_fn


def reported() -> Iterator[Answer]:
    """The error of a failed input, the detection of coordinator threads, and the device of Python functions."""
    iterator = iter(COORDINATOR.create_per_worker_dataset(lambda: numbers().map(broken)))
    lost = tensorflow_private.create_on_workers(COORDINATOR, lambda: np.linalg.inv(np.zeros([2, 2])))
    like = tensorflow_private.wrap_iterators(lost, iterator)
    raised = ""
    try:
        tensorflow_private.run_step_on_workers(COORDINATOR, one, (like,), {})
    except Exception as error:
        raised = type(tensorflow_private.unwrap_worker_error(error)).__name__
    yield "raised", raised, "LinAlgError"
    dispatching = tensorflow_private.in_coordinator_dispatch
    inside = tensorflow_private.fetch_from_workers(COORDINATOR, lambda: tf.constant(dispatching()))
    yield "threads", [bool(one) for one in inside], [True, True]
    yield "here", dispatching(), False
    calling = COORDINATOR.create_per_worker_dataset(lambda: numbers().map(in_python))
    graph = calling._dataset_fn.graph.as_graph_def()
    at = {node.device for function in graph.library.function for node in function.node_def if node.op == "PyFunc"}
    yield "a worker calls Python at the chief", ["/job:chief" in one for one in at], [True]


if __name__ == "__main__":
    tf.get_logger().setLevel("CRITICAL")
    parts = (forms(), served(), looked_at(), replaced(), captured(), reported())
    print(json.dumps([answer for part in parts for answer in part]), flush=True)
    os._exit(0)  # the servers never end
