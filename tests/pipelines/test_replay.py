"""Replay: the edited pipeline returns the original elements, without calling the user's functions again."""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import tensorflow_private
from pipetune.core import operators
from pipetune.core.edits import Edit, Insert, Move, Remove, ReplaceFunction, SetArgument, SetOption, apply_edits
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.collect import parts
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known
from pipetune.pipelines import live, replay
from pipetune.source.call_arguments import write_call
from pipetune.source.syntax_tree import parse
from tests.pipelines.samples import OPERATORS, Unknown, numbers

Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE


def elements(dataset: Any, epochs: int = 2) -> list[Any]:
    def plain(component: Any) -> Any:
        if isinstance(component, tf.data.Dataset):
            return [plain(element) for element in component]
        if isinstance(component, tf.RaggedTensor):
            return component.to_list()
        if isinstance(component, tf.SparseTensor):
            return tf.sparse.to_dense(component).numpy().tolist()
        return component.numpy().tolist()

    found = []
    for _ in range(epochs):
        found.append([
            [plain(component) for component in tf.nest.flatten(element, expand_composites=False)]
            for element in dataset
        ])  # fmt: skip
    return found


def edited(dataset: Any, *edits: Edit) -> Any:
    source = live.read(dataset)
    return replay.replay(source, apply_edits(source.pipeline, edits))


def below_a_prefetch(dataset: Any) -> Any:
    """Everything downstream of the first source is rebuilt."""
    return edited(dataset, Insert("n0", "prefetch", "new", {"buffer_size": 1}))


def assert_same(one: Any, other: Any, epochs: int = 2) -> None:
    assert one.element_spec == other.element_spec and int(one.cardinality()) == int(other.cardinality())
    assert elements(one, epochs) == elements(other, epochs)


@pytest.mark.parametrize("name", OPERATORS)
def test_rebuilt_operator_returns_equal_elements(name: str) -> None:
    dataset = OPERATORS[name]()
    assert_same(below_a_prefetch(dataset), dataset, epochs=3)


NO_MODULE = {
    "snapshot", "copy_to_device", "scan", "group_by_window", "group_by_window, function", "bucket", "ragged_batch",
    "ragged_batch, int32", "ragged elements", "sparse elements", "sample", "choose", "parallel_interleave",
    "unbatch, ragged", "rebatch", "rebatch, several",  # behind a map of TensorFlow's
    "from_list",
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_in_a_module_returns_equal_elements(name: str) -> None:
    dataset = OPERATORS[name]()
    source = live.read(dataset)
    try:
        collected, parameter = parts.collect(source, source.pipeline)
        module = kinds.find("mirrored").emit(collected, Known("train.py"))
    except CannotExpress as error:
        assert name in NO_MODULE, error
        return
    assert name not in NO_MODULE
    namespace: dict[str, Any] = {}
    exec(module.text, namespace)
    given = [] if parameter is None else [parameter]
    assert elements(namespace["dataset_fn"](tf.distribute.InputContext(), *given)) == elements(dataset)


TREE = parse(b"import tensorflow as tf\nmade = tf.data.Dataset.range(7)\n")
(CALL,) = TREE.calls.values()


@pytest.mark.parametrize(
    "name",
    ["batch", "batch, remainder", "unbatch", "rebatch", "repeat", "take", "skip", "shard", "prefetch", "cache",
     "window", "window, defaults", "ignore_errors", "unique"],
)  # fmt: skip
def test_operator_in_a_patch_returns_equal_elements(name: str) -> None:
    dataset = OPERATORS[name]()
    node, (above,) = live.read(dataset).pipeline.output, tensorflow_private.inputs(dataset)
    written = write_call(TREE, CALL, node.arguments, op=node.op)
    assert elements(eval(f"above.{written}", {"above": above, "tf": tf})) == elements(dataset), written


@pytest.mark.parametrize("name", [op for op, facts in operators.OPERATORS.items() if facts.method])
def test_row_has_the_parameters_of_the_method(name: str) -> None:
    known = operators.OPERATORS[name].parameter_names
    _, *parameters, last = inspect.signature(getattr(Dataset, name)).parameters
    assert last == "name"
    assert [parameter for parameter in known if parameter in parameters] == parameters  # an older one has fewer


def test_every_builder_is_tested() -> None:
    tried = {node.op for make in OPERATORS.values() for node in live.read(make()).pipeline}
    assert {op for op, facts in operators.OPERATORS.items() if facts.classes and not facts.source} <= tried
    assert tried >= operators.READERS


def test_unchanged_pipeline_is_the_users_own_object() -> None:
    dataset = numbers().map(lambda x: x).batch(2)
    source = live.read(dataset)
    assert replay.replay(source, source.pipeline) is dataset
    built = replay.replay_nodes(source, apply_edits(source.pipeline, [SetArgument("n2", "batch_size", 3)]))
    assert built["n1"] is source.datasets["n1"]  # nothing is rebuilt upstream of the change
    assert built["n2"] is not dataset and elements(built[replay.OUTPUT], 1) == elements(numbers().batch(3), 1)


ARGUMENTS: list[tuple[str, str, Any]] = [
    ("map", "num_parallel_calls", 2),
    ("map", "num_parallel_calls", AUTOTUNE),
    ("map, parallel", "num_parallel_calls", 1),
    ("map, parallel", "num_parallel_calls", None),
    ("interleave", "num_parallel_calls", 2),
    ("interleave, parallel", "num_parallel_calls", 3),
    ("batch", "num_parallel_calls", 2),
    ("batch, remainder", "num_parallel_calls", None),
    ("prefetch", "buffer_size", AUTOTUNE),
]


@pytest.mark.one_core
@pytest.mark.parametrize(("name", "argument", "value"), ARGUMENTS)
def test_parallelism_and_buffers_change_no_element(name: str, argument: str, value: Any) -> None:
    dataset = OPERATORS[name]()
    changed = edited(dataset, SetArgument("n1", argument, value))
    assert live.read(changed).pipeline["n1"].argument(argument) == value
    assert_same(changed, dataset)


def test_changed_argument_has_its_effect() -> None:
    assert elements(edited(numbers().take(3), SetArgument("n1", "count", 5)), 1) == elements(numbers().take(5), 1)
    assert elements(edited(numbers().batch(2), Remove("n1")), 1) == elements(numbers(), 1)
    cached = edited(numbers().batch(2), Insert("n0", "cache", "c"))
    assert [node.op for node in live.read(cached).pipeline] == ["range", "cache", "batch"]
    repeated = edited(numbers(), Insert("n0", "repeat", "r", {"count": 2}))
    assert elements(repeated, 1) == elements(numbers().repeat(2), 1)


def test_unbatch_takes_the_structure_of_its_new_input() -> None:
    dataset = numbers().map(lambda x: (x, {"a": x})).batch(4).unbatch()
    assert_same(edited(dataset, Insert("n2", "shuffle", "s", {"buffer_size": 1})), dataset)
    dataset = numbers().batch(4).map(lambda x: (x, x)).unbatch()
    changed = edited(dataset, SetArgument("n1", "drop_remainder", True))
    assert changed.element_spec == dataset.element_spec and elements(changed, 1)[0] == elements(dataset, 1)[0][:4]


def test_late_bound_closures_keep_their_traced_values() -> None:
    dataset = numbers()
    for factor in (2, 3):
        dataset = dataset.map(lambda x: x * factor)  # noqa: B023 - what scripts do
    assert_same(below_a_prefetch(dataset), dataset)
    assert elements(below_a_prefetch(dataset), 1)[0][1] == [6]


@pytest.mark.parametrize(
    "function",
    [lambda x: x + random.randrange(10**9), lambda x: tf.random.uniform([], seed=4)],
    ids=["Python", "seeded"],
)
def test_draws_are_kept(function: Any) -> None:
    dataset = numbers().map(function)
    assert_same(below_a_prefetch(dataset), dataset)


def test_user_functions_are_not_called_again() -> None:
    calls: list[str] = []

    def counted(name: str, result: Any) -> Any:
        def function(*arguments: Any) -> Any:
            calls.append(name)
            return result(*arguments)

        return function

    def once() -> Any:
        calls.append("generator")
        yield from range(5)

    dataset = (
        Dataset.from_generator(once, output_signature=tf.TensorSpec([], tf.int64))
        .map(counted("map", lambda x: x))
        .filter(counted("filter", lambda x: x >= 0))
        .interleave(counted("interleave", lambda x: Dataset.range(x)), cycle_length=2)
        .scan(np.int64(0), counted("scan", lambda state, x: (state, x)))
    )
    before = list(calls)
    rebuilt = below_a_prefetch(dataset)
    assert calls == before
    assert_same(rebuilt, dataset, epochs=1)
    assert set(calls[len(before) :]) == {"generator"}  # by iterating, as before


def test_a_function_on_batches_is_traced_once_for_each_input() -> None:
    calls: list[Any] = []

    def doubled(x: Any) -> Any:
        calls.append(x.shape)
        return x * 2

    source = live.read(numbers().map(doubled).batch(4))
    onto_batches = (Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, ""))
    plans = [
        apply_edits(source.pipeline, [*onto_batches, *more])
        for more in ((), [SetArgument("n1", "num_parallel_calls", 2)])
    ]
    whole = apply_edits(source.pipeline, [SetArgument("n2", "drop_remainder", True), *onto_batches])
    calls.clear()
    for pipeline in [*plans, *plans]:
        assert elements(replay.replay(source, pipeline)) == elements(source.dataset)
    assert elements(replay.replay(source, whole), 1)[0] == elements(source.dataset, 1)[0][:1]
    assert calls == [(None,), (4,)]


def test_seeds_are_kept_and_none_is_drawn() -> None:
    tf.random.set_seed(5)
    dataset = numbers().shuffle(7).map(lambda x: x)
    expected = elements(dataset, 3)
    untouched = elements(numbers().shuffle(7), 1)
    tf.random.set_seed(5)
    dataset = numbers().shuffle(7).map(lambda x: x)
    rebuilt = below_a_prefetch(dataset)
    assert elements(rebuilt, 3) == expected
    assert elements(numbers().shuffle(7), 1) == untouched  # the next shuffle of the script draws the same seed


def test_tables_variables_and_captured_arrays_are_kept() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), -1)
    variable = tf.Variable(100)
    tensor = tf.range(10)
    dataset = numbers().map(lambda x: table.lookup(tf.cast(x, tf.int32)) + variable + tf.gather(tensor, x))
    rebuilt = below_a_prefetch(dataset)
    assert_same(rebuilt, dataset)
    variable.assign(200)
    assert elements(rebuilt, 1)[0][0] == [205]


def test_options_are_kept_and_can_be_set() -> None:
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 2
    dataset = numbers().with_options(options).batch(2)
    rebuilt = below_a_prefetch(dataset)
    assert rebuilt.options().deterministic is False and rebuilt.options().threading.private_threadpool_size == 2
    changed = edited(dataset, SetOption("deterministic", True), SetOption("autotune.enabled", False))
    assert changed.options().deterministic is True and changed.options().autotune.enabled is False
    assert changed.options().threading.private_threadpool_size == 2 and dataset.options().deterministic is False


def test_replacement_datasets_are_used_for_nodes() -> None:
    dataset = numbers().map(lambda x: x + 1).batch(2)
    source = live.read(dataset)
    replacements = {"n0": Dataset.from_tensor_slices(np.int64([10, 20]))}
    rebuilt = replay.replay(source, source.pipeline, replacements=replacements)
    assert elements(rebuilt, 1) == [[[[11, 21]]]]


def test_opaque_dataset_is_kept_but_cannot_be_rebuilt() -> None:
    dataset = Unknown(numbers()).batch(2)
    with pytest.raises(CannotReplay, match="Unknown"):
        below_a_prefetch(dataset)
    changed = edited(dataset, Insert("n1", "prefetch", "p", {"buffer_size": 1}))
    assert_same(changed, dataset)


def test_operator_with_a_function_cannot_be_inserted_without_one() -> None:
    source = live.read(numbers())
    with pytest.raises(CannotReplay, match="map"):
        replay.replay(source, apply_edits(source.pipeline, [Insert("n0", "map", "m")]))


def test_reading_the_rebuilt_dataset_returns_the_edited_pipeline() -> None:
    dataset = numbers().map(lambda x: x + 1).shuffle(3, seed=1).batch(2)
    source = live.read(dataset)
    edits = [SetArgument("n1", "num_parallel_calls", 2), Insert("n3", "prefetch", "p", {"buffer_size": 1})]
    wanted = apply_edits(source.pipeline, edits)
    found = live.read(replay.replay(source, wanted)).pipeline
    assert Pipeline(found.nodes).fingerprint == Pipeline(wanted.nodes).fingerprint
