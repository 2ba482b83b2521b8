"""One test for each of TensorFlow's internals that pipetune depends on: a new version that differs fails here first."""

from __future__ import annotations

import inspect
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow


from pipetune import tensorflow_private as private
from pipetune.core import cluster

RANGE = tf.data.Dataset.range


def values(dataset: Any) -> list[Any]:
    return [element.tolist() for element in dataset.as_numpy_iterator()]


# -- tensorflow_private, name by name


def test_eager_draws_without_seeds_are_the_same_in_every_process_until_training_begins() -> None:
    training: list[bool] = []

    def draw() -> list[Any]:
        drawn = (tf.random.shuffle(tf.range(1000)), tf.random.uniform([9]), tf.random.normal([9], seed=3))
        return [one.numpy().tolist() for one in drawn]

    @tf.function
    def drawn_in_a_function() -> Any:
        return tf.random.uniform([9])

    with private.seeded_eager_draws(1, until=lambda: bool(training)):
        dataset = RANGE(9).shuffle(9)
        first, second, of_function = draw(), draw(), drawn_in_a_function().numpy().tolist()
        training.append(True)
        unseeded = draw()
    training.clear()
    tf.random.set_seed(None)  # forgets the kernels of these seeds, as in a new process
    with private.seeded_eager_draws(1, until=lambda: bool(training)):
        assert (draw(), draw()) == (first, second)
        assert drawn_in_a_function().numpy().tolist() != of_function
    assert first[:2] != second[:2] and unseeded[:2] != first[:2] != draw()[:2]
    assert dataset._seed.numpy() == dataset._seed2.numpy() == 0  # as without: a new order in each process
    assert private.global_seed() is None


def test_every_dataset_is_created_through_one_init(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = private.DatasetV2.__init__

    def counting(dataset: Any, *args: Any, **named: Any) -> None:
        original(dataset, *args, **named)
        made.append(type(dataset).__name__)

    monkeypatch.setattr(private.DatasetV2, "__init__", counting)
    RANGE(3).map(lambda x: x).batch(2).prefetch(1)
    tf.data.TFRecordDataset(["a"])
    assert made[:4] == ["_RangeDataset", "_MapDataset", "_BatchDataset", "_PrefetchDataset"]
    assert made[-1] == "TFRecordDatasetV2"
    assert tf.data.Dataset is private.DatasetV2


def test_iterators_of_eager_loops_are_owned_iterators() -> None:
    assert type(iter(RANGE(3))) is private.OwnedIterator
    assert {"__next__", "get_next", "get_next_as_optional", "element_spec"} <= set(dir(private.OwnedIterator))


def test_new_variables_are_seen_with_their_initial_values() -> None:
    made: list[Any] = []
    seen: list[float] = []

    @tf.function
    def step() -> None:
        if not made:
            made.append(tf.Variable(2.0))
        made[0].assign_add(1.0)

    with private.watching_new_variables(lambda variable: seen.append(float(variable.numpy()))):
        tf.Variable(1.0).assign(9.0)
        step()
    tf.Variable(3.0)
    assert set(seen) == {1.0, 2.0} and float(made[0]) == 3.0


def test_inputs() -> None:
    source = RANGE(3)
    assert private.inputs(source.map(lambda x: x)) == (source,)
    assert private.inputs(source) == ()
    other = RANGE(2)
    assert private.inputs(tf.data.Dataset.zip((source, other))) == (source, other)
    names = tf.data.Dataset.from_tensor_slices(["a"])
    assert private.inputs(tf.data.TFRecordDataset(names))
    assert private.inputs(object()) == ()


def test_serialized_graph_recreates_the_dataset() -> None:
    dataset = RANGE(5).map(lambda x: x * 3).batch(2)
    again = private.dataset_from_graph(private.serialized_graph(dataset), dataset.element_spec)
    assert values(again) == values(dataset)
    assert again.element_spec == dataset.element_spec
    assert private.inputs(again) == ()  # so that replay cannot confuse the graph with the original


def test_serialized_graph_keeps_tables_variables_and_python() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), 0)
    variable = tf.Variable(10, dtype=tf.int64)

    def sum_of_all(x: Any) -> Any:
        python = tf.py_function(lambda y: y, [x], tf.int64)
        return tf.cast(table.lookup(tf.cast(x, tf.int32)), tf.int64) + variable + python

    graph = private.serialized_graph(RANGE(2).map(sum_of_all))
    again = private.dataset_from_graph(graph, tf.TensorSpec(None, tf.int64))
    assert values(again) == [15, 17]


def test_op_definitions_and_determinism() -> None:
    assert private.op_determinism_enabled() is False
    stateful = ("RandomUniform", "NoSuchOp", "PrintV2", "WriteFile")
    for op in {*stateful, "AddV2", "StatelessRandomUniformV2"}:
        assert private.op_is_stateful(op) == (op in stateful), op
    assert [op for op in ("RandomUniform", "AddV2", "NoSuchOp") if private.op_has_seed(op)] == ["RandomUniform"]


def test_autograph_maps_generated_lines_to_the_users_file() -> None:
    found: list[tuple[str, int, str] | None] = []

    def traced(x: Any) -> Any:
        if x > 1:
            x = x + 1
        remember()
        return x

    def remember() -> None:
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_name != "tf__traced":
            frame = frame.f_back
        assert frame is not None and "__autograph_generated_file" in frame.f_code.co_filename
        found.append(private.autograph_origin(frame.f_code.co_filename, frame.f_lineno))

    RANGE(2).map(traced)
    line = traced.__code__.co_firstlineno + 3
    assert found[0] == (__file__, line, "traced")
    assert private.autograph_origin("no such file", 3) is None


def test_traced_function_is_reused_without_calling_python() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return {"double": x * 2}

    dataset = RANGE(3).map(counted)
    before = len(calls)
    with private.reusing_traced_functions():
        again = RANGE(4).map(dataset._map_func)
        parallel = RANGE(4).map(dataset._map_func, num_parallel_calls=2)
        fresh = RANGE(2).map(lambda x: x + 1)  # a Python function is traced as usual
    assert len(calls) == before
    assert again.element_spec == parallel.element_spec == dataset.element_spec
    assert [element["double"] for element in again.as_numpy_iterator()] == [0, 2, 4, 6]
    assert values(fresh) == [1, 2]
    with pytest.raises((TypeError, ValueError)):
        RANGE(4).map(dataset._map_func)  # no longer possible


def test_traced_function_can_run_another_graph() -> None:
    dataset = RANGE(3).map(lambda i: {"a": i})
    other = private.data_function(lambda i: [i + 10], [tf.TensorSpec([], tf.int64)])
    text = private.data_function(lambda i: [tf.strings.as_string(i)], [tf.TensorSpec([], tf.int64)])
    with private.reusing_traced_functions():
        again = RANGE(3).map(private.with_function(dataset._map_func, other))
        spec = tf.TensorSpec([], tf.string)
        words = RANGE(3).map(private.with_function(dataset._map_func, text, output_spec=spec))
    assert [int(element["a"]) for element in again] == [10, 11, 12]
    assert again.element_spec == dataset.element_spec
    assert [bytes(word) for word in words.as_numpy_iterator()] == [b"0", b"1", b"2"]
    assert [int(element["a"]) for element in dataset] == [0, 1, 2]  # the traced function itself is unchanged


def test_registered_function_is_called_by_its_name() -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x + 1

    graph = tf.function(lambda x: inner(x) * 2).get_concrete_function(tf.TensorSpec([], tf.int32)).graph
    edited = graph.as_graph_def()
    (definition,) = edited.library.function
    (call,) = (node for node in edited.node if "f" in node.attr)
    definition.signature.name = call.attr["f"].func.name = f"{definition.signature.name}_of_this_test"
    for _ in range(2):  # a second time it is known
        private.register_function(definition)

    @tf.function
    def rebuilt(x: Any) -> Any:
        given = {graph.inputs[0].name: x}
        return tf.graph_util.import_graph_def(edited, input_map=given, return_elements=[graph.outputs[0].name])

    assert [one.numpy() for one in rebuilt(tf.constant(3))] == [8]


def test_fixed_seeds_reach_a_shuffle_without_drawing() -> None:
    original = RANGE(20).shuffle(20, seed=5)
    tf.random.set_seed(1)
    expected = values(RANGE(20).shuffle(20))
    tf.random.set_seed(1)
    with private.fixed_seeds(original._seed, original._seed2):
        again = RANGE(20).shuffle(20)
    assert (again._seed, again._seed2) == (original._seed, original._seed2)
    assert values(again) == values(original)
    assert values(RANGE(20).shuffle(20)) == expected  # no seed was taken from the global counter


def test_additional_seed_draw_changes_a_shuffles_order() -> None:
    tf.random.set_seed(1)
    first = values(RANGE(20).shuffle(20))
    tf.random.set_seed(1)
    RANGE(3).shuffle(3)
    assert values(RANGE(20).shuffle(20)) != first


def test_global_seed_and_its_generator() -> None:
    tf.random.set_seed(None)
    assert private.global_seed() is None
    tf.random.set_seed(7)
    assert private.global_seed() == 7
    generator = private.op_seed_generator()
    state = generator.getstate()
    first = float(tf.random.uniform([]))
    assert float(tf.random.uniform([])) != first
    generator.setstate(state)
    assert generator.getstate() == state
    again = random.Random()
    again.setstate(state)
    assert generator.randint(0, 1000) == again.randint(0, 1000)


def test_dense_table_exports_unused_buckets_under_reserved_keys() -> None:
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2, initial_num_buckets=4)
    table.insert([5], [50])
    keys, exported = table.export()
    assert set(keys.numpy().reshape(-1).tolist()) == {5, -1}
    assert [int(mark) for mark in private.reserved_keys(table)] == [-1, -2]
    assert private.table_values(table, exported).shape == (4,)
    assert private.reserved_keys(tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)) == ()


def test_structure_of_elements() -> None:
    assert isinstance(RANGE(2).map(lambda x: (x, None)).element_spec[1], private.NoneTensorSpec)
    dataset = RANGE(2).map(lambda x: (x, x + 1))
    spec = {"a": tf.TensorSpec([], tf.int64), "b": tf.TensorSpec([], tf.int64)}
    again = private.with_structure(dataset, spec)
    assert next(again.as_numpy_iterator()) == {"a": 0, "b": 1}


# -- attributes of live datasets


def test_live_objects_keep_what_replay_needs() -> None:
    source = RANGE(4)
    assert source.shuffle(3, seed=2)._seed.dtype == tf.int64
    padded = source.padded_batch(2, padded_shapes=[], padding_values=tf.constant(0, tf.int64))
    assert padded._padded_shapes is not None and padded._padding_values is not None
    scan = source.scan(tf.constant(0, tf.int64), lambda state, x: (state + x, state))
    assert scan._initial_state is not None and scan._scan_func.function is not None
    grouped = source.group_by_window(lambda x: x % 2, lambda key, window: window.batch(2), 2)
    assert all(getattr(grouped, name).function for name in ("_key_func", "_reduce_func", "_window_size_func"))
    serial = source.interleave(lambda x: RANGE(x), cycle_length=2, block_length=3)
    interleaved = source.apply(tf.data.experimental.parallel_interleave(RANGE, 2, block_length=3))
    assert {(int(one._cycle_length), int(one._block_length)) for one in (serial, interleaved)} == {(2, 3)}
    assert int(source.interleave(RANGE)._cycle_length) == tf.data.AUTOTUNE  # the default without parallel calls
    assert int(interleaved._buffer_output_elements) == 6 and int(interleaved._prefetch_input_elements) == 4
    assert interleaved._deterministic == "true" and interleaved._map_func.function is not None


def test_every_call_of_a_tf_function_runs_it_by_one_method(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[Any], list[Any]]] = []
    owner, name = private.ConcreteFunction, private.RUN_FUNCTION
    run = getattr(owner, name)

    def running(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        ran.append((list(tensor_inputs), list(captured_inputs)))
        return run(function, tensor_inputs, captured_inputs)

    monkeypatch.setattr(owner, name, running)
    variable, dataset, made = tf.Variable(1.0), RANGE(3), []

    @tf.function
    def function(data: Any, number: Any) -> Any:
        if not made:
            made.append(tf.Variable(2.0))
        return variable + made[0] + tf.cast(number, tf.float32) + tf.cast(next(iter(data)), tf.float32)

    for call in (1, 2):
        iterator = iter(dataset)
        assert float(function(dataset, tf.constant(4))) == 7
        (arguments, captured) = ran[-1]
        assert any(one is dataset._variant_tensor for one in arguments), "in this call as in the first one"
        assert {id(one.handle) for one in (variable, made[0])} <= {id(one) for one in captured}
        assert len(ran) == (2 if call == 1 else 3), "the first call also runs what initializes its variables"
        del iterator


# -- the runtime's model


def modelled(dataset: Any) -> Any:
    iterator = iter(dataset)
    next(iterator)
    return tf.data.experimental.get_model_proto(iterator)


def with_options(dataset: Any, **wanted: bool) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = wanted.get("autotune", True)
    options.experimental_optimization.apply_default_optimizations = wanted.get("optimised", False)
    options.experimental_optimization.inject_prefetch = wanted.get("optimised", False)
    return dataset.with_options(options)


def names(model: Any) -> list[str]:
    """Operators from the output upstream, along the first inputs."""
    found, number = [], model.output
    while True:
        found.append(model.nodes[number].name)
        if not model.nodes[number].inputs:
            return found
        number = model.nodes[number].inputs[0]


def test_runtime_model_of_a_graph_without_optimisations() -> None:
    dataset = RANGE(100).map(lambda x: x + 1).map(lambda x: x * 2, num_parallel_calls=3).batch(4).prefetch(2)
    model = modelled(with_options(dataset))
    kinds = [kind for kind in names(model) if kind not in ("Root", "Options")]
    assert kinds == ["Prefetch", "BatchV2", "ParallelMapV2", "Map", "Range"]
    by_name = {node.name: node for node in model.nodes.values()}
    parallelism = [one for one in by_name["ParallelMapV2"].parameters if one.name == "parallelism"]
    assert [(one.value, one.tunable) for one in parallelism] == [(3.0, False)]
    assert by_name["BatchV2"].num_elements >= 1
    for name in ("processing_time", "bytes_produced", "buffered_elements", "buffered_bytes", "inputs"):
        assert hasattr(by_name["Prefetch"], name)


def test_runtime_model_shows_default_optimisations() -> None:
    def kinds(dataset: Any) -> list[str]:
        return names(modelled(with_options(dataset, optimised=True)))

    assert {"MapAndBatch", "Map"} & set(kinds(RANGE(100).map(lambda x: x + 1).batch(4))) == {"MapAndBatch"}
    # A random function is not made parallel; where nothing is asynchronous, a prefetch is added at the end.
    assert {"Map", "Prefetch"} <= set(kinds(RANGE(100).map(lambda x: tf.random.uniform([]))))


def test_no_runtime_model_without_autotune() -> None:
    with pytest.raises(tf.errors.NotFoundError):
        modelled(with_options(RANGE(10), autotune=False))


# -- behaviour of operators


def test_serial_and_parallel_interleave_agree_with_an_explicit_cycle_length() -> None:
    def elements(**parallel: Any) -> list[int]:
        return values(RANGE(7).interleave(lambda x: RANGE(x), cycle_length=3, block_length=2, **parallel))

    assert elements() == elements(num_parallel_calls=2, deterministic=True)


def test_more_parallel_calls_than_the_cycle_length_is_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        values(RANGE(4).interleave(lambda x: RANGE(x), cycle_length=2, num_parallel_calls=3))


def test_shuffle_commutes_with_a_one_to_one_map() -> None:
    one = RANGE(12).shuffle(12, seed=3).map(lambda x: x * 2)
    other = RANGE(12).map(lambda x: x * 2).shuffle(12, seed=3)
    assert [values(one) for _ in range(3)] == [values(other) for _ in range(3)]


def test_numpy_array_inside_a_function_becomes_a_constant() -> None:
    import numpy as np

    array, tensor = np.arange(5), tf.range(5)
    constant = RANGE(5).map(lambda x: tf.gather(array, x))
    captured = RANGE(5).map(lambda x: tf.gather(tensor, x))
    assert not constant._map_func.function.captured_inputs
    assert len(captured._map_func.function.captured_inputs) == 1


def test_late_bound_closure_changes_when_traced_again() -> None:
    dataset = RANGE(3)
    for factor in (2, 3):
        dataset = dataset.map(lambda x: x * factor)  # noqa: B023 - the bug replay must not have
    assert values(dataset) == [0, 6, 12]
    first = private.inputs(dataset)[0]
    assert values(RANGE(3).map(first._map_func._func).map(dataset._map_func._func)) == [0, 9, 18]


def test_tensorflow_fingerprint_does_not_identify_a_pipeline() -> None:
    def fingerprint() -> Any:
        return RANGE(3).map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)).fingerprint().numpy()

    assert fingerprint() != fingerprint()


def test_only_own_devices_are_synchronised_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.python.eager import context

    alone = private.own_devices()
    assert alone == tuple(device.name for device in tf.config.list_logical_devices()) != ()
    private.sync_devices()
    names = [f"/job:worker/replica:0/task:{task}/device:CPU:{number}" for task in range(2) for number in range(2)]
    listed = [tf.config.LogicalDevice(name, "CPU") for name in names]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: listed)
    assert private.own_devices() == tuple(names)
    server = tf.train.ServerDef(job_name="worker", task_index=1)
    monkeypatch.setattr(context.context(), "_collective_ops_server_def", server)
    assert private.own_devices() == tuple(names[2:])


# -- what the undo journal and the redirection of file caches depend on


def test_python_file_operations_go_through_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for name in ("WritableFile", "CopyFile", "RenameFile", "DeleteFile", "DeleteRecursively", "CreateDir"):
        original = getattr(private.file_operations, name)
        recorded = lambda *args, of=original, called=name: (seen.append(called), of(*args))[1]  # noqa: E731
        monkeypatch.setattr(private.file_operations, name, recorded)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with tf.io.gfile.GFile(one, "w") as file:
        file.write("a")
    tf.io.gfile.copy(one, two)
    tf.io.gfile.rename(two, one, overwrite=True)
    tf.io.gfile.remove(one)
    tf.io.gfile.mkdir(two)
    tf.io.gfile.rmtree(two)
    assert seen == ["WritableFile", "CopyFile", "RenameFile", "DeleteFile", "CreateDir", "DeleteRecursively"]


def test_complete_file_cache_has_an_index_and_prefixed_files(tmp_path: Path) -> None:
    rows = RANGE(10).cache(str(tmp_path / "kept"))
    iterator = iter(rows)
    next(iterator)
    begun = sorted(path.name for path in tmp_path.iterdir())
    assert [name.rstrip("0123456789") for name in begun] == ["kept_0.data-00000-of-00001.tempstate", "kept_0.lockfile"]
    iterator._iterator_resource = iterator._dataset = None
    assert list(tmp_path.iterdir()) == []
    list(rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.data-00000-of-00001", "kept.index"]


def test_finished_snapshot_is_recognised_by_its_metadata(tmp_path: Path) -> None:
    rows = RANGE(10).snapshot(str(tmp_path))
    iterator = iter(rows)  # the folder is created before the first element is requested
    (folder,) = map(str, tmp_path.iterdir())
    assert not private.snapshot_is_finished(folder)
    del iterator
    list(rows)
    assert list(map(private.snapshot_is_finished, [*map(str, tmp_path.iterdir()), str(tmp_path)])) == [True, False]


def test_iterator_begins_anew_inside_a_function() -> None:
    numbers = RANGE(3).shuffle(3, seed=1)
    iterator = iter(numbers.take(0))

    def again(_: Any) -> Any:
        with tf.control_dependencies([private.restart_iterator(iterator, numbers)]):
            return tf.stack([iterator.get_next() for _ in range(3)])

    first, second = values(RANGE(2).map(again))
    assert sorted(first) == sorted(second) == [0, 1, 2]


@pytest.mark.parametrize("task", [{"type": "worker", "index": "1"}, {"type": "worker", "index": 1.0}])
@pytest.mark.parametrize("workers", [["a:1", "b:1"], {"1": "b:1", "0": "a:1"}])
def test_cluster_configuration_is_read_as_by_tensorflow(
    monkeypatch: pytest.MonkeyPatch, task: dict[str, object], workers: object
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": workers}, "task": task, "environment": "cloud"}))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == {"worker": ["a:1", "b:1"]}
    assert cluster.task_from_environment(os.environ) == cluster.ClusterTask(resolver.task_type, resolver.task_id, 2)
