"""`python -m tests.capture.two_replicas`: measures two logical CPU devices under MirroredStrategy, and prints JSON.

Logical devices can be set only before TensorFlow is initialized, and so can the version of Keras: hence a process.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pipetune.api
import pipetune.worker.dispatch

# isort: split
import tensorflow as tf

# That fails where an import has initialized TensorFlow: a script could no longer set such options either.
processors = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(processors[0], [tf.config.LogicalDeviceConfiguration()] * 2)

from pipetune import tensorflow_private
from pipetune.capture import consumption, distributed_input, job_processes, loop_consumer, protection
from pipetune.capture.fit_consumer import FitConsumer, steps_per_call
from pipetune.core.distribution import DATASET, FUNCTION
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.measurement import RunFailed
from pipetune.equality.compare import replica_check
from pipetune.measure import machine, runner
from pipetune.pipelines import live

Dataset = tf.data.Dataset
STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def parts(element: Any) -> list[Any]:
    return [part.numpy().tolist() for part in STRATEGY.experimental_local_results(element)]


def steps(distributed: Any) -> list[Any]:
    return [parts(element) for element in distributed]


def handed(dataset: Any) -> distributed_input.DistributedInput:
    made = STRATEGY.experimental_distribute_dataset(dataset)
    return distributed_input.DistributedInput(STRATEGY, dataset, made, DATASET)


def from_function(dataset: Any, options: Any = None) -> distributed_input.DistributedInput:
    made = STRATEGY.distribute_datasets_from_function(lambda context: dataset, options)
    return distributed_input.DistributedInput(STRATEGY, dataset, made, FUNCTION, options)


def shares(dataset: Any) -> Any:
    facts = handed(dataset).handover
    return [facts.batch, list(facts.shares), facts.by_own_size, facts.prefetched]


def checks(dataset: Any, tuned: Any) -> list[Any]:
    return [check.equal for check in replica_check(handed(dataset), tuned)]


def not_sharded(dataset: Any) -> Any:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def records(folder: str) -> Any:
    """Nine records of one byte, read in a loop over files."""
    with tf.io.TFRecordWriter(f"{folder}/one") as writer:
        for number in range(9):
            writer.write(str(number))
    names = Dataset.from_tensor_slices([f"{folder}/one"])
    return names.interleave(tf.data.TFRecordDataset).map(lambda text: tf.strings.to_number(text, tf.int64))


def plus_one(value: Any) -> Any:
    return value + 1


def measured(source: Any, taken: distributed_input.DistributedInput) -> Any:
    """Rows per step of the input alone; whether a plan with a prefetch of 7 is equal, the last check, its reading."""
    here = machine.read_machine("cpu")
    alone = consumption.NoConsumer("alone")
    how = {"machine": here, "examples_per_element": 4.0, "distributed_input": taken}
    made = runner.TensorFlowRunner(live.read(source), alone, **how)
    made.input_window(Plan("defaults"), seconds=0.05, warmup_seconds=0.0)
    end = made.source.pipeline.output.id
    insert = Insert(end, "prefetch", "p", {"buffer_size": 7})
    plan = Plan("p", (Rewrite("p", end, Safety.EXACT, (insert,), ""),))
    window = made.input_window(plan, seconds=0.05, warmup_seconds=0.0)
    found = made.compare(plan)
    seen = {value.node: value.value for value in made.autotune_readings[plan.key].values if value.node == "p"}
    return [window.examples / window.steps, found.equal, [check.name for check in found.checks][-1], seen]


def windows_of(taken: distributed_input.DistributedInput, dataset: Any, count: int) -> list[Any]:
    """The elements a loop body gets in one window, and the steps the window counts."""
    window = loop_consumer.LoopWindow(dataset, steps=4, warmup=0, handed=taken)
    seen = []
    while True:
        more, element = window.advance()
        if not more:
            break
        seen.append(parts(element))
    assert window.failure is None, window.failure
    return [seen[:count], window.result.steps if window.result else None]


def put_back() -> list[Any]:
    """Each replica's values of a mirrored and of a summed variable: before, changed, restored."""
    with STRATEGY.scope():
        mirrored = tf.Variable(1.0)
        summed = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )

    def held() -> list[list[float]]:
        return [[float(part) for part in STRATEGY.experimental_local_results(one)] for one in (mirrored, summed)]

    def count() -> None:
        summed.assign_add(tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 3)

    STRATEGY.run(count)
    kept = protection.Snapshot()
    before = held()
    mirrored.assign(7.0)
    STRATEGY.run(count)
    changed = held()
    kept.restore()
    distributed = sum(isinstance(variable, tensorflow_private.DistributedVariable) for variable, _ in kept.variables)
    return [before, changed, held(), distributed]


def per_replica_options() -> Any:
    return tf.distribute.InputOptions(
        experimental_fetch_to_device=False, experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA
    )


def several_steps(library: str) -> Any:
    """Steps of a window with 8 per call, or its error; then the steps per call of the model, and of another window."""
    keras = importlib.import_module(library)
    with STRATEGY.scope():
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    consumer = FitConsumer(model, type(model).fit, {})
    data = Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).cache()
    counted: Any
    try:
        with consumer.multi_step_calls(8):
            counted = consumer.window(data, steps=32, warmup=1).steps
    except RunFailed as failure:
        counted = str(failure).partition(":")[0]
    after = consumer.window(data, steps=4, warmup=1).steps
    return [counted, steps_per_call(model), consumer.accepts_multi_step_calls, after]


def wait(value: Any) -> Any:
    time.sleep(0.02)
    return value


def slow(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(wait, [tf.cast(x, tf.float32)], tf.float32), [])[None], tf.zeros([1])


def monitored() -> list[Any]:
    """The epochs for which `InputMonitor` logs a wait, the wait, and what it prints."""
    model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = pipetune.keras.InputMonitor()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        history = model.fit(Dataset.range(40).map(slow).batch(4), epochs=2, callbacks=[monitor], verbose=0)
    return [len(history.history.get("input_wait", [])), monitor.input_wait, printed.getvalue()]


def answers() -> Iterator[tuple[str, Any, Any]]:
    """What is examined, what is found, and what is expected."""
    nine = Dataset.range(9).batch(6)
    dealt = not_sharded(nine)
    # Behaviour of TensorFlow that the warnings and the check rely on: sharded by element, a last batch of 3 is divided
    # by its own size, also with a single worker; otherwise by the size of full batches, where that is known.
    distributed = STRATEGY.experimental_distribute_dataset
    yield "divided", steps(distributed(nine)), [[[0, 1, 2], [3, 4, 5]], [[6, 7], [8]]]
    yield "dealt", steps(distributed(dealt)), [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], []]]
    yield "dealt behind a map", steps(distributed(dealt.map(plus_one))), [[[1, 2, 3], [4, 5, 6]], [[7, 8], [9]]]
    with tempfile.TemporaryDirectory() as folder:
        files = records(folder).batch(6)
        yield "of files", steps(distributed(files)), [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], []]]
        yield "shares of files", shares(files), [6, [3, 3], False, 2]
    # With fixed shapes a step needs an element for each replica: the fifth element reaches none.
    fixed = Dataset.range(7).batch(2, drop_remainder=True)
    made = STRATEGY.distribute_datasets_from_function
    yield "fixed shapes", steps(made(lambda context: fixed)), [[[0, 1], [2, 3]]]
    yield "free shapes", steps(made(lambda context: Dataset.range(5).batch(2))), [[[0, 1], [2, 3]], [[4], []]]
    kinds = (nine, nine.map(plus_one), nine.repeat().prefetch(1), Dataset.range(9), fixed)
    yield "seen", [tensorflow_private.inferred_batch_size(one) for one in kinds], [6, None, 6, None, 2]
    # what pipetune reads
    odd = Dataset.range(9).batch(5)
    yield "shares, by its own size", shares(nine), [6, [3, 3], True, 2]
    yield "shares", shares(dealt), [6, [3, 3], False, 2]
    yield "shares behind a map", shares(dealt.map(plus_one)), [None, [0, 0], True, 2]
    yield "odd shares, by its own size", shares(odd), [5, [3, 2], True, 2]
    yield "odd shares", shares(not_sharded(odd)), [5, [3, 2], False, 2]
    function = from_function(Dataset.range(9).batch(3)).handover
    yield "of a function", [function.batch, list(function.shares), function.elements_per_step], [3, [], 2]
    # whether a plan divides its batches in the same way
    yield "same", checks(dealt, dealt.prefetch(2)), [True]
    yield "size lost", checks(dealt, dealt.map(plus_one)), [False]
    yield "size lost, by its own size before", checks(nine, nine.map(plus_one)), [True]
    endless = not_sharded(Dataset.range(9).repeat().batch(6))
    yield "size lost, never partial", checks(endless, endless.map(plus_one)), [True]
    dropping = not_sharded(Dataset.range(9).batch(6, drop_remainder=True))
    yield "size lost, dropping", checks(dropping, dropping.map(plus_one)), [True]
    yield "other shares", checks(dealt, not_sharded(Dataset.range(9).batch(4))), [False]
    yield "per replica", [check.equal for check in replica_check(from_function(nine), nine.map(plus_one))], []
    # Measured and served windows. Keras 3 fails in several steps per execution (keras-team/keras, issue 19246);
    # afterwards both models take one step per call again.
    yield "several steps", several_steps("keras"), ["Model.fit raised InvalidArgumentError", 1, True, 4]
    yield "several steps of tf_keras", several_steps("tf_keras"), [32, 1, True, 4]
    rows = Dataset.range(40).batch(4)
    yield "input: whole global batches", measured(rows, handed(rows)), [4.0, True, "replicas", {"p": 7.0}]
    # The strategy prefetches 2 downstream, which is not the plan's own prefetch.
    yield "endless input", measured(rows.repeat(), handed(rows.repeat()))[3], {"p": 7.0}
    host = [one.numpy().tolist() for one in handed(rows).host_pipeline(rows.take(2))]
    yield "host", host, [[0, 1], [2, 3], [4, 5], [6, 7]]
    loop = windows_of(handed(rows), Dataset.range(8).batch(4), 3)
    yield "loop", loop, [[[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[0, 1], [2, 3]]], 4]
    # A step takes two elements of the function's dataset: a window of four elements has two steps.
    loop = windows_of(from_function(rows), Dataset.range(8).batch(2), 2)
    yield "function loop", loop, [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 4]
    partial = distributed_input.endless(nine, handed(nine))
    yield "partial batches are looked for, though the window has none", partial._enable_get_next_as_optional, True
    yield "optional", parts(iter(partial).get_next_as_optional().get_value()), [[0, 1, 2], [3, 4, 5]]
    obstacle = job_processes.switching_obstacle
    yield "obstacles", [obstacle(one) for one in (None, handed(rows), from_function(rows))], [""] * 3
    yield "obstacle", "called once per replica" in obstacle(from_function(rows, per_replica_options())), True
    alone = tf.distribute.MultiWorkerMirroredStrategy()  # its one process can be given other data
    taken = distributed_input.DistributedInput(alone, rows, alone.experimental_distribute_dataset(rows), DATASET)
    found = [taken.handover.strategy, taken.handover.replicas, obstacle(taken)]
    yield "one worker", found, ["MultiWorkerMirroredStrategy", 1, ""]
    before, changed, after, distributed_ones = put_back()
    yield "restored", [before, after], [[[1.0, 1.0], [3.0, 4.0]]] * 2
    yield "changed", changed != before, True
    yield "none is read that stands for all: that may take every process of a job", distributed_ones, 0
    epochs, share, _ = monitored()
    yield "monitored", [epochs, share > 0.5], [2, True]
    with STRATEGY.scope():
        *none, printed = monitored()
    yield "monitored replicas", none, [0, None]
    yield "printed", "not available: the batches do not come from one iterator" in printed, True


if __name__ == "__main__":
    print(json.dumps([*answers()], default=int))
