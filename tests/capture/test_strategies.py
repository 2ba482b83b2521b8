"""Scripts under a strategy with one replica: the handover, the consumer, and the windows served to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.usefixtures("any_loop_trains"),
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.slow,
]

from pipetune import tensorflow_private
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.capture.patches import Patches
from pipetune.capture.substitution import substitute
from pipetune.core.distribution import DATASET, FIT, FUNCTION
from pipetune.core.edits import Plan, Rewrite, Safety, SetArgument
from pipetune.core.pipeline import SERVICE
from pipetune.pipelines import call_sites, live
from pipetune.source.emit import emit
from tests.capture.test_hooks import LOOPS, Run, compiled, pairs, run, run_text

Dataset = tf.data.Dataset


def mirrored() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0"])


def in_strategy(text: str, **how: Any) -> Run:
    made = (
        "dataset = Dataset.range(40).batch(2)\nstrategy = mirrored()\nhand = strategy.experimental_distribute_dataset\n"
    )
    return run_text(made + text, {"mirrored": mirrored}, **how)


@pytest.mark.parametrize("text", [
    "for _ in tf.distribute.get_strategy().experimental_distribute_dataset(dataset):\n    pass\nmodel.fit(pairs())",
    "hand(dataset)\nfor _ in dataset:\n    pass",
], ids=["default-strategy", "plain-loop"])  # fmt: skip
def test_loop_without_a_handover(text: str) -> None:
    found = in_strategy(text, serve=(Dataset.range(4).batch(2),))
    assert (found.use.distributed_input, found.use.consumer_call) == (None, "a Python loop")
    assert found.use.name == "dataset" and len(found.windows) == 1


@pytest.mark.parametrize(("text", "role", "elements"), [
    ("next(iter(hand(dataset)))", "preview", 1),
    ("with strategy.scope():\n    model = compiled()\ndataset = pairs()\n"
     "model.evaluate(hand(dataset), verbose=0, steps=2)\nmodel.fit(np.ones([4, 2]), np.zeros([4, 1]), verbose=0)",
     "evaluation", None),
])  # fmt: skip
def test_use_under_a_strategy_that_is_not_training(text: str, role: str, elements: int | None) -> None:
    found = in_strategy(text)
    assert not found.begun and found.roles == {"dataset": role}
    assert elements in (None, found.script.uses[0].elements)


@pytest.mark.mission("B10.values")
def test_distributed_values_from_a_function_are_noted_and_not_training() -> None:
    found = in_strategy("strategy.experimental_distribute_values_from_function(lambda context: tf.constant(1.0))\n" * 3)
    assert not found.begun
    (note,) = found.script.notes
    assert note.startswith("MirroredStrategy.experimental_distribute_values_from_function")


EPOCHS = "while True:\n    for _step, element in enumerate(train):\n        seen.append(int(element))"
HANDED = "strategy.experimental_distribute_dataset(train)"
MADE = "strategy.distribute_datasets_from_function(lambda context: train.prefetch(1))"


@pytest.mark.parametrize(("loop", "count", "hand", "make"), [
    (EPOCHS, 12, HANDED, mirrored),
    (LOOPS["get_next"], 25, HANDED, mirrored),
    (LOOPS["optional"], 25, MADE, lambda: tf.distribute.OneDeviceStrategy("CPU:0")),
])  # fmt: skip
@pytest.mark.mission("B5.for", "B5.optional", "B9.under")
def test_distributed_loop_is_served_windows_through_its_strategy(loop: str, count: int, hand: str, make: Any) -> None:
    strategy = make()
    text = f"train = Dataset.range({count})\nhanded = {hand}\n{loop.replace('train', 'handed')}"
    others = (Dataset.range(1000, 1003), Dataset.range(2000, 2100))
    found = run_text(text, {"strategy": strategy}, serve=others)
    assert found.stopped and found.consumer.kind == "loop" and found.use.role == "training"
    assert found.seen[20:] == [1000, 1001, 1002, 1000, 1001, 1002, 2000, 2001, 2002, 2003, 2004, 2005]
    assert [window.steps for window in found.windows] == [4, 4] and found.use.distributed_input is not None
    facts = found.use.distributed_input.handover
    how = DATASET if hand == HANDED else FUNCTION
    assert (facts.strategy, facts.replicas, facts.how) == (type(strategy).__name__, 1, how)
    assert facts.shares == () and facts.elements_per_step == 1
    if hand == HANDED:
        assert found.use.name == "train"
    else:
        place = call_sites.location(found.use.dataset)
        assert place is not None and place.method == "prefetch", "the call in the script's function"


@pytest.mark.mission("B5.next")
def test_distributed_iterator_of_the_script_is_released() -> None:
    iterators: list[Any] = []

    def script() -> None:
        iterators.append(iter(mirrored().experimental_distribute_dataset(Dataset.range(50))))
        while True:
            next(iterators[0])

    assert len(run(script, serve=(Dataset.range(3),)).windows) == 1
    assert iterators[0]._iterators is None, "it would go on filling buffers"


@pytest.mark.mission("B1.rewrites")
def test_calls_behind_a_distributed_dataset_are_patched_at_their_call_sites(tmp_path: Path) -> None:
    path, names = tmp_path / "train.py", {"hand": mirrored().experimental_distribute_dataset, "Dataset": Dataset}
    path.write_text("train = Dataset.range(6).map(lambda number: number * 2)\ntrain = hand(train.batch(4))\n")
    with call_sites.Recorder():
        exec(compile(path.read_text(), str(path), "exec"), names)
    source = live.read(tensorflow_private.original_dataset(names["train"]))
    assert [node.op for node in source.pipeline] == ["range", "map", "batch"], "without what the strategy adds"
    edits = (SetArgument("n1", "num_parallel_calls", 2),)
    emission = emit(source.pipeline, Plan("plan", (Rewrite("parallel-map", "n1", Safety.EXACT, edits, ""),)))
    ((_, new),) = emission.files.values()
    assert not emission.not_covered and ".map(lambda number: number * 2, num_parallel_calls=2)" in new
    exec(compile(new, str(path), "exec"), names)
    assert [batch.numpy().tolist() for batch in names["train"]] == [[0, 2, 4, 6], [8, 10]]


@pytest.mark.parametrize(("library", "distributed"), [("keras", False), ("tf_keras", True)])
@pytest.mark.mission("B9.under")
def test_fit_under_a_strategy_trains_on_variants(library: str, distributed: bool) -> None:
    module = pytest.importorskip(library)
    taken: list[Any] = []

    def script() -> None:
        strategy = mirrored()
        with strategy.scope():
            model = compiled(module)
        train, check = pairs(), pairs()
        hand = strategy.experimental_distribute_dataset if distributed else lambda dataset: dataset
        taken.append(model)
        model.fit(hand(train), validation_data=hand(check))

    found = run(script)
    assert found.stopped and isinstance(found.consumer, FitConsumer)
    assert found.roles == {"train": "training", "check": "validation"}
    taken_by = found.use.distributed_input
    assert taken_by is not None and taken_by.handover.strategy == "MirroredStrategy"
    assert taken_by.how == (DATASET if distributed else FIT)
    window = found.consumer.window(pairs(), steps=3, warmup=1)
    assert window.steps == 3 and int(taken[0].optimizer.iterations.numpy()) == 1 + 3 + 1


@pytest.mark.parametrize("under", [mirrored, tf.distribute.get_strategy])
def test_fit_on_a_dataset_creator_trains_on_its_dataset(under: Any) -> None:
    tf_keras = pytest.importorskip("tf_keras")

    def dataset_fn(context: Any) -> Any:
        return pairs().repeat()

    def script() -> None:
        with under().scope():
            model = compiled(tf_keras)
        model.fit(tf_keras.utils.experimental.DatasetCreator(dataset_fn), steps_per_epoch=3)

    found = run(script)
    assert found.stopped and found.use.consumer_call == FIT and found.use.steps_per_epoch == 3
    place = call_sites.location(found.use.dataset)
    assert place is not None and place.method == "repeat"
    taken = found.use.distributed_input
    assert (taken is not None and taken.how == FUNCTION) is (under is mirrored)
    assert found.consumer.window(pairs().repeat(), steps=3, warmup=1).steps == 3


@pytest.mark.parametrize("hand", [
    lambda dataset: dataset,
    lambda dataset: mirrored().experimental_distribute_dataset(dataset),
    lambda dataset: mirrored().distribute_datasets_from_function(lambda context: dataset),
])  # fmt: skip
def test_substituted_dataset_is_consumed_after_every_handover(hand: Any) -> None:
    train, other = Dataset.range(3), Dataset.range(100, 102)
    patches = Patches()
    substitute(lambda dataset: other if dataset is train else dataset, patches)
    try:
        assert [int(element) for element in hand(train)] == [100, 101]
        assert [int(element) for element in hand(Dataset.range(1))] == [0]
    finally:
        patches.close()
    assert [int(element) for element in hand(train)] == [0, 1, 2]


@pytest.mark.parametrize(("hand", "captured"), [
    (lambda dataset: dataset, False),
    (lambda dataset: mirrored().experimental_distribute_dataset(dataset), True),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:To make it possible to preserve")
def test_function_that_iterates_a_dataset_gets_its_substitute(hand: Any, captured: bool) -> None:
    train, other, checked = Dataset.range(3), Dataset.range(100, 102), Dataset.range(7, 8)
    patches = Patches()
    substitute(lambda dataset: other if dataset is train else dataset, patches)
    try:
        data, checking = hand(train), hand(checked)

        @tf.function
        def total(given: Any) -> Any:
            found = tf.constant(0, tf.int64)
            for number in data if captured else given:
                found += number
            for number in checking:
                found += number
            return found

        assert int(total(tf.constant(0) if captured else data)) == 100 + 101 + 7
        assert int(total(tf.constant(0) if captured else data)) == 100 + 101 + 7
    finally:
        patches.close()


def test_service_dataset_has_the_service_title() -> None:
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    worker = service.WorkerServer(service.WorkerConfig(dispatcher.target.partition("://")[2]))
    try:
        off = service.ShardingPolicy.OFF
        dataset = Dataset.range(4).apply(service.distribute(off, dispatcher.target, compression=None))
        assert live.read(dataset.batch(2)).pipeline.nodes[0].title == SERVICE
    finally:
        worker._stop()
        dispatcher._stop()
