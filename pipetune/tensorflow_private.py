"""All private names of TensorFlow and Keras that pipetune depends on, each wrapped under a separate name.

`tests/facts/test_private_names.py` has one test per fact stated here, so that an incompatible TensorFlow version
fails there.
"""

from __future__ import annotations

import copy
import functools
import operator
import os
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import snapshot_pb2
from tensorflow.python.autograph.impl import api
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.data.experimental.ops import distribute as distribute_ops
from tensorflow.python.data.experimental.ops import prefetching_ops
from tensorflow.python.data.ops import dataset_ops, debug_mode, iterator_ops, prefetch_op, structured_function
from tensorflow.python.data.util import random_seed, structure
from tensorflow.python.distribute import distribute_lib, input_lib
from tensorflow.python.distribute import values as distribute_values
from tensorflow.python.distribute.coordinator import cluster_coordinator, coordinator_context, metric_utils
from tensorflow.python.distribute.coordinator import values as coordinator_values
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function, polymorphic_function, tracing_compilation
from tensorflow.python.framework import config, none_tensor, op_def_registry
from tensorflow.python.lib.io import _pywrap_file_io
from tensorflow.python.ops import random_ops, resource_variable_ops, script_ops
from tensorflow.python.ops.parallel_for import pfor

DatasetV2 = dataset_ops.DatasetV2
OwnedIterator = iterator_ops.OwnedIterator
NumpyIterator = dataset_ops.NumpyIterator
Strategy = distribute_lib.StrategyBase
DistributedDataset = input_lib.DistributedDataset
DistributedDatasetFromFunction = input_lib.DistributedDatasetsFromFunction
DistributedIterator = input_lib.DistributedIterator
DistributedVariable = distribute_values.DistributedVariable
"""A variable with one component per replica, each of which is also a variable. Reading it may run a step in which every
process of a job has to take part."""
ConcreteFunction = concrete_function.ConcreteFunction
RUN_FUNCTION = "_call_flat"
"""The method of `ConcreteFunction` that runs a function. It takes two lists of tensors: `tensor_inputs`, which the call
gives to the function, and `captured_inputs`. Every call of a `tf.function` runs it, once the function is traced and the
variables that it creates have their initial values."""
StructuredFunctionWrapper = structured_function.StructuredFunctionWrapper
NoneTensorSpec = none_tensor.NoneTensorSpec
CheckpointSaver = functional_saver.MultiDeviceSaver
"""Writes the files of every checkpoint, whichever API was called."""
file_operations = _pywrap_file_io
"""The module through which all Python code of TensorFlow writes, renames and removes files."""
PerWorkerDataset = coordinator_values.PerWorkerDatasetFromDatasetFunction


def in_debug_mode() -> bool:
    """Whether `tf.data.experimental.enable_debug_mode()` was called: functions then run as Python, one at a time."""
    return bool(debug_mode.DEBUG_MODE)


def inputs(dataset: Any) -> tuple[Any, ...]:
    """Returns the input datasets of a live dataset, including those that a reader keeps for its file names."""
    try:
        return tuple(dataset._inputs())
    except (AttributeError, NotImplementedError):
        return ()


def serialized_graph(dataset: Any) -> bytes:
    """Returns the dataset as a serialized GraphDef. External state is left out; arrays become constants."""
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return bytes(dataset._as_serialized_graph(external_state_policy=policy).numpy())


def snapshot_is_finished(folder: str) -> bool:
    """Whether a subfolder of a snapshot contains the complete data of one graph; it is then only read."""
    try:
        with open(os.path.join(folder, "snapshot.metadata"), "rb") as stream:
            return bool(snapshot_pb2.SnapshotMetadataRecord.FromString(stream.read()).finalized)
    except Exception:  # the file is missing or not such a record; protobuf's own error has no public type
        return False


def dataset_from_graph(graph_def: Any, spec: Any) -> Any:
    """Returns the dataset of this spec that a serialized GraphDef describes: bytes, or a scalar string tensor."""
    return tf.data.experimental.from_variant(tf.raw_ops.DatasetFromGraph(graph_def=graph_def), spec)


def op_is_stateful(op_type: str) -> bool:
    """Whether TensorFlow registers the op as stateful; True for unknown ops."""
    definition = op_def_registry.get(op_type)
    return True if definition is None else bool(definition.is_stateful)


def op_has_seed(op_type: str) -> bool:
    """Whether an op has the attributes `seed` and `seed2`; False for unknown ops."""
    definition = op_def_registry.get(op_type)
    if definition is None:
        return False
    names = {attribute.name for attribute in definition.attr}
    return {"seed", "seed2"} <= names


def op_is_vectorizable(op_type: str) -> bool:
    """Whether `tf.vectorized_map` has a converter for an op; True if this TensorFlow version does not expose that."""
    known = getattr(pfor, "_pfor_converter_registry", None)
    return known is None or op_type in known


def called_graph(op: Any, attribute: str = "f") -> Any:
    """Returns the graph of the function that an attribute of an op names; None if TensorFlow does not keep it."""
    try:
        return op.graph._get_function(op.get_attr(attribute).name).graph
    except AttributeError:  # the function was imported with a graph, not traced in this process
        return None


def autograph_origin(generated_file: str, line: int) -> tuple[str, int, str] | None:
    """Returns file, line and function of the user's statement that AutoGraph converted to a line; None if unknown."""
    for factories in list(api._TRANSPILER._cache._cache.values()):
        for factory in list(factories.values()):
            for location, origin in (factory.source_map or {}).items():
                if location.filename == generated_file and location.lineno == line:
                    return origin.loc.filename, origin.loc.lineno, origin.function_name or "<module>"
    return None


@contextmanager
def _replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Context manager: while open, an attribute has another value."""
    original = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def reusing_traced_functions() -> Iterator[None]:
    """Context manager: while open, traced functions passed to dataset methods are used without tracing them again."""
    original = StructuredFunctionWrapper

    def reuse(func: Any, *args: Any, **kwargs: Any) -> Any:
        # `group_by_window` wraps its argument in closures.
        traced = next((held for held in (func, *_closed_over(func)) if isinstance(held, original)), None)
        return traced if traced is not None else original(func, *args, **kwargs)

    with _replaced(structured_function, "StructuredFunctionWrapper", reuse):
        yield


def _closed_over(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # the name is not bound yet
            yield cell.cell_contents


def python_function(traced: Any) -> Any:
    """Returns the Python function from which a dataset's function was traced."""
    return traced._func


def eager_function(token: str) -> Any:
    """Returns the Python function that a `tf.py_function` op with this token calls; None if it is gone."""
    found = getattr(script_ops._py_funcs.get(token), "_func", None)  # AutoGraph's wrapper of the function
    return getattr(found, "__wrapped__", None)


def register_python_function(function: Callable[..., Any]) -> str:
    """Returns the token by which a `PyFunc` op calls a function of arrays, for as long as the caller keeps it."""
    return str(script_ops._py_funcs.insert(function))


def with_function(traced: Any, concrete: Any, *, output_spec: Any = None) -> Any:
    """Returns a copy of a dataset's traced function that runs another concrete function with the same arguments.

    Args:
        traced: the traced function, a `StructuredFunctionWrapper`.
        concrete: the concrete function to run.
        output_spec: the output spec, if it differs; None keeps the original's.
    """
    made = copy.copy(traced)
    made._function = concrete
    if output_spec is not None:
        made._output_structure = output_spec
    return made


def data_function(function: Callable[..., Any], specs: Sequence[Any]) -> Any:
    """Returns the concrete function traced from `function` of flat tensors as by a dataset, but without AutoGraph."""
    attributes = {"_tf_data_function": True}
    return tf.function(function, autograph=False, experimental_attributes=attributes).get_concrete_function(*specs)


def register_function(definition: Any) -> None:
    """Makes a function of this FunctionDef known, which others may then call by its name."""
    if not context.context().has_function(definition.signature.name):
        context.context().add_function_def(definition)


def call_traced(traced: Any, element: Any, *, function: Callable[..., Any] | None = None) -> Any:
    """Calls a dataset's traced function on an element and returns its result; for use inside another function.

    Args:
        traced: the traced function, a `StructuredFunctionWrapper`.
        element: with the structure of its input.
        function: called in place of the concrete function, on the same flat tensors.
    """
    flat = structure.to_tensor_list(traced._input_structure, element)
    return structure.from_compatible_tensor_list(traced.output_structure, (function or traced.function)(*flat))


def as_input(traced: Any, arguments: tuple[Any, ...]) -> Any:
    """Returns the element that a dataset makes of the arguments of its traced function, for `call_traced`."""
    spec = traced._input_structure
    return structure.normalize_element(arguments if type(spec) is tuple else arguments[0], element_signature=spec)


@contextmanager
def fixed_seeds(seed: Any, seed2: Any) -> Iterator[None]:
    """Context manager: while open, new datasets get these two seeds and draw none from the global state."""
    with _replaced(random_seed, "get_seed", lambda _seed: (seed, seed2)):
        yield


_MOST_SEEDED_DRAWS = 1000  # by judgement: more to make data than to choose files; each keeps a kernel in memory


@contextmanager
def seeded_eager_draws(seed: int, *, until: Callable[[], bool]) -> Iterator[None]:
    """Context manager: while open, eager random ops without any seed draw the same numbers in every process.

    Each gets the next seed of a sequence, as after `tf.random.set_seed`, but no global seed is set: datasets and
    functions draw as before, and so does what comes after the first thousand.

    Args:
        seed: of the sequence.
        until: says whether to end it: a seeded draw creates a kernel, which takes some hundred microseconds.
    """
    original, count = random_ops.random_seed, iter(range(1, _MOST_SEEDED_DRAWS + 1))

    def get_seed(op_seed: int | None) -> tuple[Any, Any]:
        seeds = original.get_seed(op_seed)
        unseeded = seeds == (None, None) and tf.executing_eagerly() and not until()
        second = next(count, None) if unseeded else None
        return seeds if second is None else (seed, second)

    seeded = types.ModuleType(original.__name__)
    seeded.__dict__.update(original.__dict__, get_seed=get_seed)
    with _replaced(random_ops, "random_seed", seeded):
        yield


def global_seed() -> int | None:
    """Returns the seed set by `tf.random.set_seed`, or None."""
    seed = context.global_seed()
    return None if seed is None else int(seed)


def op_seed_generator() -> Any:
    """Returns the generator from which op seeds are drawn after `tf.random.set_seed`, or None."""
    return getattr(context.context(), "_rng", None)  # exists only once a seed was set


def op_determinism_enabled() -> bool:
    """Whether `tf.config.experimental.enable_op_determinism` was called."""
    return bool(config.is_op_determinism_enabled())


def reserved_keys(table: Any) -> tuple[Any, ...]:
    """Returns the keys that a DenseHashTable uses for empty and deleted buckets, as arrays; () for other tables."""
    if not isinstance(table, tf.lookup.experimental.DenseHashTable):
        return ()
    keys = [tf.constant(key, table.key_dtype) for key in (table._empty_key, table._deleted_key)]
    return tuple(tf.reshape(key, [-1]).numpy().reshape(key.shape) for key in keys)  # arrays even for scalar strings


def table_values(table: Any, values: Any) -> Any:
    """Returns the exported values of a DenseHashTable in the shape that `insert` expects."""
    return values.numpy().reshape(len(values), *table._default_value.shape)


def restart_iterator(iterator: Any, dataset: Any) -> Any:
    """Returns the op by which an `OwnedIterator` begins a pass over a dataset of its spec, whatever it iterated."""
    return tf.raw_ops.MakeIterator(dataset=dataset._variant_tensor, iterator=iterator._iterator_resource)


def split_device_copy(dataset: Any) -> tuple[Any, Callable[[Any], Any]] | None:
    """Splits off a final `copy_to_device` (and any `prefetch` after it).

    Returns:
        The dataset before the copy, and a function that appends the same copy and prefetches to another dataset. None
        if `dataset` does not end in this way; operators may then be appended directly to it.
    """
    behind: list[Callable[[Any], Any]] = []
    while isinstance(dataset, prefetch_op._PrefetchDataset):
        behind.append(operator.methodcaller("prefetch", int(dataset._buffer_size)))
        dataset = dataset._input_dataset
    if not isinstance(dataset, prefetching_ops._CopyToDeviceDataset):
        return None
    copy = tf.data.experimental.copy_to_device(dataset._target_device, source_device(dataset))

    def put_behind(host: Any) -> Any:
        result = host.apply(copy)
        for step in reversed(behind):
            result = step(result)
        return result

    return dataset._input_dataset, put_behind


def source_device(dataset: Any) -> str:
    """Returns the device from which a `copy_to_device` copies."""
    return str(dataset._source_device_string)


@contextmanager
def watching_new_variables(created: Callable[[Any], None]) -> Iterator[None]:
    """Context manager: while open, calls `created` with each new variable that has got its initial value.

    Those that a `tf.function` creates when it is first called get it either at once or right before it runs. They may
    be reported twice.
    """
    initialize = polymorphic_function.Function._initialize_uninitialized_variables

    def watched(init: Any) -> Any:
        @functools.wraps(init)
        def watched_init(variable: Any, *args: Any, **kwargs: Any) -> None:
            init(variable, *args, **kwargs)
            if tf.executing_eagerly():
                created(variable)

        return watched_init

    @functools.wraps(initialize)
    def watched_initialize(called: Any, initializers: Any) -> Any:
        done = initialize(called, initializers)
        with tf.init_scope():  # the call may be inside another function that is being traced
            for variable, _ in initializers:
                created(variable)
        return done

    with ExitStack() as stack:
        for kind in (resource_variable_ops.ResourceVariable, polymorphic_function.UnliftedInitializerVariable):
            stack.enter_context(_replaced(kind, "__init__", watched(kind.__init__)))
        stack.enter_context(
            _replaced(polymorphic_function.Function, "_initialize_uninitialized_variables", watched_initialize)
        )
        yield


def undecorated(value: Any) -> Any:
    """Returns the Python function that a `tf.function` traces; any other value unchanged."""
    return value.python_function if isinstance(value, polymorphic_function.Function) else value


def tracing_seconds() -> float:
    """Returns the seconds that this process has spent on tracing `tf.function`s so far."""
    return float(tracing_compilation._graph_building_time_counter.get_cell().value()) / 1e6


def with_structure(dataset: Any, spec: Any) -> Any:
    """Returns the dataset with its components in the structure of `spec`, which has the same flat types."""
    return dataset_ops._RestructuredDataset(dataset, spec)


def with_graph_passes(dataset: Any, passes: tuple[str, ...], *, autotune: bool) -> Any:
    """Returns the dataset after exactly these graph passes of TensorFlow, which may use AUTOTUNE if so asked.

    Names of passes are those of TensorFlow, as "map_parallelization"; unknown ones have no effect.
    """
    configs = [f"{name}:autotune:{'true' if autotune else 'false'}" for name in passes]
    variant = tf.raw_ops.OptimizeDatasetV2(
        input_dataset=dataset._variant_tensor,
        optimizations_enabled=tf.constant(list(passes), tf.string),
        optimizations_disabled=tf.constant([], tf.string),
        optimizations_default=tf.constant([], tf.string),
        optimization_configs=configs,
        **dataset._flat_structure,
    )
    return dataset_ops._VariantDataset(variant, dataset.element_spec)


def with_implementation(dataset: Any) -> list[Any]:
    """Returns the dataset and, of a reader of files and `ragged_batch`, the datasets that TensorFlow makes it of."""
    mapped = getattr(dataset, "_mapped_dataset", None)  # of `ragged_batch`, from the same input
    found, made_of = [dataset] if mapped is None else [dataset, mapped], [getattr(dataset, "_impl", None)]
    while made_of:
        one = made_of.pop()
        if one is not None:
            found.append(one)
            made_of += inputs(one)
    return found


def element_at(dataset: Any, place: int) -> Any:
    """Returns the single tensor of an element, by operators alone: the methods of datasets may be observed."""
    about = dataset._flat_structure
    later = tf.raw_ops.SkipDataset(input_dataset=dataset._variant_tensor, count=tf.constant(place, tf.int64), **about)
    one = tf.raw_ops.TakeDataset(input_dataset=later, count=tf.constant(1, tf.int64), **about)
    (found,) = tf.raw_ops.DatasetToSingleElement(dataset=one, **about)
    return found


def source_tensors(dataset: Any) -> tuple[Any, ...]:
    """Returns the tensors of a dataset built from arrays; none for other datasets."""
    return tuple(getattr(dataset, "_tensors", ()))


def is_default_strategy(strategy: Any) -> bool:
    """Whether it is the default strategy, in effect if the script sets none; it passes datasets through unchanged."""
    return isinstance(strategy, distribute_lib._DefaultDistributionStrategy)


def cluster_resolver(strategy: Any) -> Any:
    """Returns the cluster resolver of a strategy, or None; `ParameterServerStrategy` has it as a private attribute."""
    return getattr(strategy, "cluster_resolver", None) or getattr(strategy, "_cluster_resolver", None)


def own_devices() -> tuple[str, ...]:
    """Returns the names of the devices that this process uses; of several processes in lockstep, those of its own task.

    TensorFlow then lists the devices of all processes, but cannot run anything on those of the others.
    """
    names = [device.name for device in tf.config.list_logical_devices()]
    served = context.context()._collective_ops_server_def
    if served is None:
        return tuple(names)
    specs = [(name, tf.DeviceSpec.from_string(name)) for name in names]
    return tuple(name for name, spec in specs if (spec.job, spec.task) == (served.job_name, served.task_index))


def sync_devices() -> None:
    """Like `tf.test.experimental.sync_devices`, which fails if several processes train in lockstep."""
    for name in own_devices():
        with tf.device(name):
            tf.raw_ops.SyncDevice()
    context.async_wait()


def host_pipelines(distributed: Any) -> tuple[Any, ...]:
    """Returns the host pipelines of a distributed dataset, with the operators that the strategy appended.

    One per worker, or one per call of the dataset function; () if they are not known.
    """
    name = "_datasets" if isinstance(distributed, DistributedDatasetFromFunction) else "_cloned_datasets"
    return tuple(getattr(distributed, name, ()))


def inferred_batch_size(dataset: Any) -> int | None:
    """Returns the size of a full batch as strategies infer it to divide batches; None if they cannot."""
    try:
        size = int(distribute_ops.compute_batch_size(dataset))
    except IndexError:  # an element without rows
        return None
    return size if size > 0 else None


def copy_partial_batch_handling(distributed: Any, other: Any) -> None:
    """Makes a distributed dataset fetch elements as `other` does, which costs more if batches may be partial."""
    if other._enable_get_next_as_optional and distributed._cardinality == tf.data.INFINITE_CARDINALITY:
        distributed._cardinality = tf.data.UNKNOWN_CARDINALITY
    distributed._enable_get_next_as_optional = other._enable_get_next_as_optional


def worker_pipeline(dataset: Any, *, workers: int, worker: int, replicas: int) -> Any:
    """Returns the pipeline of one worker of a cluster under `experimental_distribute_dataset`, without the cluster.

    `worker` is its index, `replicas` the number of them on all workers together.
    """
    devices = input_lib.InputWorkers([("/device:CPU:0", ("/device:CPU:0",))])
    made = DistributedDataset(
        devices,
        tf.distribute.OneDeviceStrategy("/device:CPU:0"),
        dataset,
        num_replicas_in_sync=replicas,
        input_context=tf.distribute.InputContext(workers, worker, replicas),
    )
    (mine,) = host_pipelines(made)
    return mine


def call_dataset_function(distributed: Any) -> Any:
    """Returns the dataset that the function of a distributed dataset, not built yet, creates for the first worker."""
    return distributed._dataset_fn(distributed._input_contexts[0])


def original_dataset(distributed: Any) -> Any:
    """Returns the original dataset of a distributed dataset that is not built yet."""
    return distributed._original_dataset


def unwrap_dataset_function(given: Any) -> Any:
    """Returns the script's dataset function in an argument of `create_per_worker_dataset`; else the argument itself."""
    return given._dataset_fn if isinstance(given, DistributedDatasetFromFunction) else given


def captured_tensors(made: Any) -> tuple[Any, ...]:
    """Returns the outside tensors that the traced function of a per-worker dataset captures."""
    return tuple(outside for outside, _ in made._dataset_fn.graph.captures)


def handle_tensors(value: Any) -> tuple[Any, ...]:
    """Returns the tensors by which a function captures a dataset, iterator, variable or table; () for other values."""
    if isinstance(value, tf.random.Generator):
        value = value.state
    names = ("_variant_tensor_attr", "_iterator_resource", "_handle", "_resource_handle")
    return tuple(held for name in names if (held := getattr(value, "__dict__", {}).get(name)) is not None)


def create_on_workers(coordinator: Any, function: Any, *args: Any) -> Any:
    """Calls `function` on each worker of a coordinator; returns one value with a component for each worker.

    An exception that it raises is raised by the steps that use the value.
    """
    return coordinator._create_per_worker_resources(function, args=args)


def wrap_iterators(made: Any, iterator: Any) -> Any:
    """Returns iterators of `create_on_workers`, wrapped for `schedule` in place of the script's, without retracing."""
    for mine, value in zip(made._values, iterator._values, strict=True):
        mine._type_spec = value._type_spec
    return coordinator_values.PerWorkerDistributedIterator(made._values)


def free_on_workers(made: Any) -> None:
    """Frees a value on every worker; no step can use it afterwards."""
    for value in made._values:
        value._get_error()  # waits, because it may not be created yet
        value._values = None


def fetch_from_workers(coordinator: Any, function: Any, *args: Any) -> tuple[Any, ...]:
    """Calls `function` on each worker, waits for all workers, and returns the results in their order.

    Raises:
        Exception: the exception of the first worker that failed.
    """
    return tuple(value.fetch() for value in create_on_workers(coordinator, function, *args)._values)


def run_step_on_workers(coordinator: Any, function: Any, args: Any, kwargs: Any) -> None:
    """Runs one step of a scheduled function on each worker, traced as `schedule` traces it, and waits for all.

    Of per-worker values among the arguments each worker gets its own component.

    Raises:
        Exception: the exception of the first worker that failed.
    """
    strategy = coordinator.strategy
    with strategy.scope():
        strategy.extended._being_scheduled = True
        try:
            made = coordinator._create_per_worker_resources(function, args=args, kwargs=kwargs)
        finally:
            strategy.extended._being_scheduled = False
    for error in _errors(made):
        raise error


def worker_failures() -> int:
    """Returns how often a coordinator of this process has lost a worker so far, including workers that came back.

    There is no other sign of a loss: other workers do the work, or it is repeated, and no error is raised.
    """
    return int(metric_utils.get_metric_summary("worker_failures")) if metric_utils._METRICS_MAPPING else 0


def workers_available(coordinator: Any) -> bool:
    """Whether every worker executes functions at the moment: a lost worker is back and has rebuilt its resources."""
    return not _errors(create_on_workers(coordinator, lambda: tf.constant(0)))


def _errors(made: Any) -> list[BaseException]:
    """Returns what the workers have raised, once all have finished: no worker is busy then."""
    return [error for error in [value._get_error() for value in made._values] if error is not None]


def unwrap_worker_error(error: BaseException) -> BaseException:
    """Returns the exception that a worker's input raised, unwrapped from a coordinator's own exceptions."""
    wrapping = (cluster_coordinator.ClosureInputError, cluster_coordinator.ClosureAbortedError)
    while isinstance(error, wrapping):
        error = error.original_exception
    return error


def in_coordinator_dispatch() -> bool:
    """Whether this thread belongs to a coordinator and is dispatching work to one of its workers."""
    return coordinator_context.get_current_dispatch_context() is not None
