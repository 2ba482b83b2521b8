"""One test for each fact about TensorFlow's inside that pipetune stands on: a new version tells here first."""

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

from tensorflow.python.eager.polymorphic_function import polymorphic_function

from pipetune.core import cluster
from pipetune.tf import private

RANGE = tf.data.Dataset.range


def values(dataset: Any) -> list[Any]:
    return [element.tolist() for element in dataset.as_numpy_iterator()]


@pytest.fixture(autouse=True)
def _no_global_seed() -> Any:
    yield
    tf.random.set_seed(None)


# -- private.py, name by name


def test_a_marked_function_is_called_as_it_is() -> None:
    def branch(value: Any) -> Any:
        return 1 if value > 0 else 2  # AutoGraph would make a tf.cond of it

    converted = tf.function(lambda value: branch(value))
    assert int(converted(tf.constant(3))) == 1
    private.never_converted(branch)
    with pytest.raises(TypeError, match="Python `bool`"):
        tf.function(lambda value: branch(value))(tf.constant(3))


def test_every_dataset_is_made_through_one_init(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_inputs() -> None:
    source = RANGE(3)
    assert private.inputs(source.map(lambda x: x)) == (source,)
    assert private.inputs(source) == ()
    other = RANGE(2)
    assert private.inputs(tf.data.Dataset.zip((source, other))) == (source, other)
    names = tf.data.Dataset.from_tensor_slices(["a"])
    assert private.inputs(tf.data.TFRecordDataset(names))
    assert private.inputs(object()) == ()


def test_a_serialized_graph_makes_the_same_dataset() -> None:
    dataset = RANGE(5).map(lambda x: x * 3).batch(2)
    again = private.dataset_from_graph(private.serialized_graph(dataset), dataset.element_spec)
    assert values(again) == values(dataset)
    assert again.element_spec == dataset.element_spec
    assert private.inputs(again) == ()  # so that the graph cannot stand in for replay


def test_a_serialized_graph_keeps_tables_variables_and_python() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), 0)
    variable = tf.Variable(10, dtype=tf.int64)
    dataset = RANGE(2).map(
        lambda x: tf.cast(table.lookup(tf.cast(x, tf.int32)), tf.int64)
        + variable
        + tf.py_function(lambda y: y, [x], tf.int64)
    )
    again = private.dataset_from_graph(private.serialized_graph(dataset), tf.TensorSpec(None, tf.int64))
    assert values(again) == [15, 17]


def test_op_definitions() -> None:
    assert private.op_is_stateful("RandomUniform") and private.op_has_seed("RandomUniform")
    assert not private.op_is_stateful("AddV2") and not private.op_has_seed("AddV2")
    assert not private.op_is_stateful("StatelessRandomUniformV2")
    assert private.op_is_stateful("NoSuchOp") and not private.op_has_seed("NoSuchOp")
    assert private.op_is_stateful("PrintV2") and private.op_is_stateful("WriteFile")


def test_autograph_keeps_a_map_from_its_file_to_the_users() -> None:
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


def test_a_traced_function_is_used_again_without_calling_python() -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return {"double": x * 2}

    dataset = RANGE(3).map(counted)
    before = len(calls)
    with private.reusing_traced_functions():
        again = RANGE(4).map(dataset._map_func)
        parallel = RANGE(4).map(dataset._map_func, num_parallel_calls=2)
        fresh = RANGE(2).map(lambda x: x + 1)  # a Python function is traced as ever
    assert len(calls) == before
    assert again.element_spec == parallel.element_spec == dataset.element_spec
    assert [element["double"] for element in again.as_numpy_iterator()] == [0, 2, 4, 6]
    assert values(fresh) == [1, 2]
    with pytest.raises((TypeError, ValueError)):
        RANGE(4).map(dataset._map_func)  # closed again


def test_a_traced_function_can_run_another_graph() -> None:
    dataset = RANGE(3).map(lambda i: {"a": i})
    other = private.data_function(lambda i: [i + 10], [tf.TensorSpec([], tf.int64)])
    text = private.data_function(lambda i: [tf.strings.as_string(i)], [tf.TensorSpec([], tf.int64)])
    with private.reusing_traced_functions():
        again = RANGE(3).map(private.with_function(dataset._map_func, other))
        words = RANGE(3).map(private.with_function(dataset._map_func, text, gives=tf.TensorSpec([], tf.string)))
    assert [int(element["a"]) for element in again] == [10, 11, 12]
    assert again.element_spec == dataset.element_spec
    assert [bytes(word) for word in words.as_numpy_iterator()] == [b"0", b"1", b"2"]
    assert [int(element["a"]) for element in dataset] == [0, 1, 2]  # the traced function itself is untouched


def test_given_seeds_reach_a_shuffle_and_draw_nothing() -> None:
    original = RANGE(20).shuffle(20, seed=5)
    tf.random.set_seed(1)
    expected = values(RANGE(20).shuffle(20))
    tf.random.set_seed(1)
    with private.seeds_given(original._seed, original._seed2):
        again = RANGE(20).shuffle(20)
    assert (again._seed, again._seed2) == (original._seed, original._seed2)
    assert values(again) == values(original)
    assert values(RANGE(20).shuffle(20)) == expected  # no seed was taken from the global counter


def test_one_more_seed_drawing_call_changes_a_shuffles_order() -> None:
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
    assert generator.randint(0, 1000) == _drawn_after(state)


def _drawn_after(state: Any) -> int:
    again = random.Random()
    again.setstate(state)
    return again.randint(0, 1000)


def test_op_determinism_can_be_read() -> None:
    assert private.op_determinism_enabled() is False


def test_a_dense_table_exports_unused_buckets_under_its_marks() -> None:
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2, initial_num_buckets=4)
    table.insert([5], [50])
    keys, exported = table.export()
    assert set(keys.numpy().reshape(-1).tolist()) == {5, -1}
    assert [int(mark) for mark in private.unused_keys(table)] == [-1, -2]
    assert private.table_values(table, exported).shape == (4,)
    assert private.unused_keys(tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)) == ()


def test_executing_in_function() -> None:
    seen: list[bool] = []

    @tf.function
    def inside() -> None:
        seen.append(private.executing_in_function())

    inside()
    assert seen == [True]
    assert not private.executing_in_function()


def test_none_in_an_element_has_a_spec_of_its_own() -> None:
    dataset = RANGE(2).map(lambda x: (x, None))
    assert isinstance(dataset.element_spec[1], private.NoneTensorSpec)


def test_restructured() -> None:
    dataset = RANGE(2).map(lambda x: (x, x + 1))
    spec = {"a": tf.TensorSpec([], tf.int64), "b": tf.TensorSpec([], tf.int64)}
    again = private.restructured(dataset, spec)
    assert next(again.as_numpy_iterator()) == {"a": 0, "b": 1}


# -- what live datasets keep


def test_live_objects_keep_what_replay_needs() -> None:
    source = RANGE(4)
    assert source.shuffle(3, seed=2)._seed.dtype == tf.int64
    padded = source.padded_batch(2, padded_shapes=[], padding_values=tf.constant(0, tf.int64))
    assert padded._padded_shapes is not None and padded._padding_values is not None
    scan = source.scan(tf.constant(0, tf.int64), lambda state, x: (state + x, state))
    assert scan._initial_state is not None and scan._scan_func.function is not None
    grouped = source.group_by_window(lambda x: x % 2, lambda key, window: window.batch(2), 2)
    assert all(getattr(grouped, name).function for name in ("_key_func", "_reduce_func", "_window_size_func"))
    interleaved = source.interleave(lambda x: RANGE(x), cycle_length=2, block_length=3)
    assert (int(interleaved._cycle_length), int(interleaved._block_length)) == (2, 3)


def test_the_default_cycle_length_is_autotune_without_parallel_calls() -> None:
    interleaved = RANGE(4).interleave(lambda x: RANGE(x))
    assert int(interleaved._cycle_length) == tf.data.AUTOTUNE


def test_tf_function_calls_go_through_one_method() -> None:
    assert isinstance(tf.function(lambda x: x), polymorphic_function.Function)
    assert "__call__" in vars(polymorphic_function.Function)


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
    """Operators from the output up, along the first inputs."""
    found, number = [], model.output
    while True:
        found.append(model.nodes[number].name)
        if not model.nodes[number].inputs:
            return found
        number = model.nodes[number].inputs[0]


def test_the_runtimes_model_of_a_graph_as_written() -> None:
    dataset = RANGE(100).map(lambda x: x + 1).map(lambda x: x * 2, num_parallel_calls=3).batch(4).prefetch(2)
    model = modelled(with_options(dataset))
    kinds = names(model)
    assert [kind for kind in kinds if kind not in ("Root", "Options")] == [
        "Prefetch", "BatchV2", "ParallelMapV2", "Map", "Range"
    ]  # fmt: skip
    by_name = {node.name: node for node in model.nodes.values()}
    parallelism = [p for p in by_name["ParallelMapV2"].parameters if p.name == "parallelism"]
    assert [parameter.value for parameter in parallelism] == [3.0]
    assert not parallelism[0].tunable
    assert by_name["BatchV2"].num_elements >= 1
    for name in ("processing_time", "bytes_produced", "buffered_elements", "buffered_bytes", "inputs"):
        assert hasattr(by_name["Prefetch"], name)


def test_the_default_optimisations_are_what_the_model_shows_otherwise() -> None:
    kinds = names(modelled(with_options(RANGE(100).map(lambda x: x + 1).batch(4), optimised=True)))
    assert "MapAndBatch" in kinds and "Map" not in kinds
    kinds = names(modelled(with_options(RANGE(100).map(lambda x: tf.random.uniform([])), optimised=True)))
    assert "Map" in kinds  # a random function is not made parallel
    assert "Prefetch" in kinds  # and where nothing is asynchronous, a prefetch is put at the end


def test_without_autotune_there_is_no_model() -> None:
    with pytest.raises(tf.errors.NotFoundError):
        modelled(with_options(RANGE(10), autotune=False))


# -- behaviour of operators


def test_a_serial_and_a_parallel_interleave_agree_when_the_cycle_length_is_written() -> None:
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


def test_a_numpy_array_inside_a_function_becomes_a_constant() -> None:
    import numpy as np

    array, tensor = np.arange(5), tf.range(5)
    constant = RANGE(5).map(lambda x: tf.gather(array, x))
    captured = RANGE(5).map(lambda x: tf.gather(tensor, x))
    assert not constant._map_func.function.captured_inputs
    assert len(captured._map_func.function.captured_inputs) == 1


def test_a_late_bound_closure_gives_something_else_when_called_again() -> None:
    dataset = RANGE(3)
    for factor in (2, 3):
        dataset = dataset.map(lambda x: x * factor)  # noqa: B023 - the bug replay must not have
    assert values(dataset) == [0, 6, 12]
    first = private.inputs(dataset)[0]
    assert values(RANGE(3).map(first._map_func._func).map(dataset._map_func._func)) == [0, 9, 18]


def test_the_fingerprint_of_tensorflow_is_no_identity() -> None:
    def fingerprint() -> Any:
        return RANGE(3).map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)).fingerprint().numpy()

    assert fingerprint() != fingerprint()


def test_of_a_job_of_several_processes_only_the_own_devices_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- what the undo journal and the redirection of file caches stand on


def test_every_file_operation_of_python_goes_through_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    for name in ("WritableFile", "CopyFile", "RenameFile", "DeleteFile", "DeleteRecursively", "CreateDir"):
        original = getattr(private.file_operations, name)
        monkeypatch.setattr(
            private.file_operations, name, lambda *args, of=original, called=name: (seen.append(called), of(*args))[1]
        )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with tf.io.gfile.GFile(one, "w") as file:
        file.write("a")
    tf.io.gfile.copy(one, two)
    tf.io.gfile.rename(two, one, overwrite=True)
    tf.io.gfile.remove(one)
    tf.io.gfile.mkdir(two)
    tf.io.gfile.rmtree(two)
    assert seen == ["WritableFile", "CopyFile", "RenameFile", "DeleteFile", "CreateDir", "DeleteRecursively"]


def test_a_file_cache_is_complete_with_its_index_and_names_its_files_by_a_prefix(tmp_path: Path) -> None:
    rows = RANGE(10).cache(str(tmp_path / "kept"))
    iterator = iter(rows)
    next(iterator)
    begun = sorted(path.name for path in tmp_path.iterdir())
    assert [name.rstrip("0123456789") for name in begun] == [
        "kept_0.data-00000-of-00001.tempstate",
        "kept_0.lockfile",
    ]
    iterator._iterator_resource = iterator._dataset = None
    assert list(tmp_path.iterdir()) == []
    list(rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.data-00000-of-00001", "kept.index"]


def test_a_snapshot_is_finished_when_its_metadata_says_so(tmp_path: Path) -> None:
    rows = RANGE(10).snapshot(str(tmp_path))
    iterator = iter(rows)  # the folder is made before the first element is asked for
    (folder,) = tmp_path.iterdir()
    assert not private.snapshot_is_finished(str(folder))
    del iterator
    list(rows)
    (folder,) = tmp_path.iterdir()
    assert private.snapshot_is_finished(str(folder))
    assert not private.snapshot_is_finished(str(tmp_path))


@pytest.mark.parametrize("task", [{"type": "worker", "index": "1"}, {"type": "worker", "index": 1.0}])
@pytest.mark.parametrize("workers", [["a:1", "b:1"], {"1": "b:1", "0": "a:1"}])
def test_a_configuration_is_read_as_tensorflow_reads_it(
    monkeypatch: pytest.MonkeyPatch, task: dict[str, object], workers: object
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": workers}, "task": task, "environment": "cloud"}))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == {"worker": ["a:1", "b:1"]}
    assert cluster.place_in(os.environ) == cluster.Place(resolver.task_type, resolver.task_id, 2)
