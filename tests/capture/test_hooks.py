"""Consumers of a dataset: their roles and names, and the windows served to them after training has begun."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
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
from pipetune.capture import consumption, hooks, loop_consumer
from pipetune.capture import keras as inference
from pipetune.capture.consumption import FIRST_ELEMENTS
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.patches import ImportWatcher, Patches
from pipetune.core import cluster
from pipetune.core.codec import encode
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed, Window
from pipetune.pipelines import call_sites

Dataset = tf.data.Dataset
TEXTS = itertools.count()


@dataclass
class Run:
    """How a script ran under the hooks."""

    script: ObservedScript
    begun: list[tuple[consumption.Consumption, consumption.Consumer]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stopped: bool = False
    seen: list[Any] = field(default_factory=list)  # what a script given as text appends to `seen`
    result: Any = None  # of a script given as a function

    @property
    def use(self) -> consumption.Consumption:
        (begun,) = self.begun
        return begun[0]

    @property
    def consumer(self) -> consumption.Consumer:
        (begun,) = self.begun
        return begun[1]

    def use_of(self, dataset: Any) -> consumption.Consumption:
        (found,) = (use for use in self.script.uses if use.dataset is dataset)
        return found

    @property
    def roles(self) -> dict[str, str]:
        return {use.variable: use.role for use in self.script.uses}


def run(
    script: Callable[[], Any],
    *,
    wanted: str | None = None,
    training_loop: int | None = None,
    serve: tuple[Any, ...] = (),
) -> Run:
    """Runs `script`; a loop is served one window of four steps of each dataset in `serve`, then stopped."""
    threads: list[threading.Thread] = []

    def on_training(use: consumption.Consumption, consumer: consumption.Consumer) -> None:
        result.begun.append((use, consumer))
        if isinstance(consumer, loop_consumer.LoopConsumer):
            threads.append(threading.Thread(target=work, args=(consumer,)))
            threads[-1].start()

    def work(consumer: loop_consumer.LoopConsumer) -> None:
        consumer.wait_until_ready()
        with call_sites.running_workflow():
            for dataset in serve:
                try:
                    result.windows.append(consumer.window(dataset, steps=4, warmup=2))
                except RunFailed as failure:
                    result.failures.append(str(failure))
        consumer.stop()

    with (
        call_sites.Recorder(),
        hooks.installed(ObservedScript(on_training, target_dataset=wanted, training_loop=training_loop)) as opened,
    ):
        result = Run(opened)
        try:
            result.result = script()
        except consumption.ScriptStopped:
            result.stopped = True
        if opened.loop is not None:
            opened.loop.abandon("The script's loop ended.")
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    return result


def arrays(rows: int = 40) -> Any:
    return np.ones([rows, 2], "float32"), np.zeros([rows, 1], "float32")


def compiled(library: Any = keras, **options: Any) -> Any:
    model = library.Sequential([library.layers.Dense(1)])
    model.build([None, 2])
    model.compile("sgd", "mse", **options)
    return model


def pairs() -> Any:
    return Dataset.from_tensor_slices(arrays()).batch(4)


def run_text(text: str, given: dict[str, Any] | None = None, **how: Any) -> Run:
    """Runs a script of which this is the text, with these names besides the usual ones, as `run` does."""
    seen: list[Any] = []
    names = {"tf": tf, "keras": keras, "np": np, "Dataset": Dataset, "model": compiled(), "compiled": compiled}
    names |= {"pairs": pairs, "seen": seen}
    file = f"/{next(TEXTS)}/train.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    found = run(lambda: exec(compile(text, file, "exec"), {**names, **(given or {}), "__name__": "__main__"}), **how)
    found.seen = seen
    return found


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_fit_is_training_and_does_not_return(library: str) -> None:
    module = pytest.importorskip(library)
    after: list[str] = []

    def script() -> None:
        train, check = pairs(), pairs()
        callbacks = [module.callbacks.Callback()]
        how = {"steps_per_epoch": 5, "validation_steps": 2}
        compiled(module).fit(train, validation_data=check, epochs=3, callbacks=callbacks, **how)
        after.append("here")

    found = run(script)
    assert found.stopped and not after and isinstance(found.consumer, FitConsumer)
    assert (found.use.role, found.use.consumer_call, found.use.name) == ("training", "Model.fit", "train")
    assert (found.use.steps_per_epoch, found.use.epochs) == (5, 3)
    assert found.use.file == __file__ and found.use.line > 0
    assert found.use.restarts_iterator is (library == "keras") and not found.use.sharded_across_workers
    assert [code.co_name for code, _ in found.use.call_path][:2] == ["script", "run"]
    assert [use.steps_per_epoch for use in found.script.uses if use.role == "validation"] == [2]
    assert found.roles == {"check": "validation", "train": "training"}


@pytest.mark.parametrize(("often", "every"), [(3, 3), ([1, 10], 5), ([2, 30], 10), ([4, 8, 9], 4)])
def test_epochs_from_one_validation_to_the_next(often: int | list[int], every: int) -> None:
    how = {"validation_freq": often, "epochs": 10}
    found = run_text("train, check = pairs(), pairs()\nmodel.fit(train, validation_data=check, **how)", {"how": how})
    assert [use.every for use in found.script.uses if use.role == "validation"] == [every]


def test_numbers_of_steps_may_be_tensors() -> None:
    text = (
        "train, check = pairs(), pairs()\nsteps = tf.data.experimental.cardinality(train)\n"
        "model.fit(train.repeat(), steps_per_epoch=steps, validation_data=check, validation_steps=steps // 2)"
    )
    assert [encode(use.steps_per_epoch) for use in run_text(text).script.uses] == [5, 10]


def test_glance_says_nothing_of_how_often_a_library_calls_fit() -> None:
    library: dict[str, Any] = {}
    exec(compile("def train(model, data):\n    model.fit(data, epochs=3)", "/site-packages/own.py", "exec"), library)
    text = "data = pairs()\ndef show(data):\n    for _ in data:\n        break\nshow(data)\ntrain(model, data)"
    use = run_text(text, {"train": library["train"]}).use
    assert (use.epochs, use.epochs_certain) == (3, False)


@pytest.mark.parametrize(("text", "roles"), [
    ("train, check = pairs(), pairs()\nmodel.evaluate(check, verbose=0)\nmodel.fit(train, validation_data=check)",
     {"train": "training", "check": "validation"}),
    ("model.fit(np.ones([8, 2]), np.ones([8, 1]), validation_data=pairs(), verbose=0)", {"": "validation"}),
    ("train = Dataset.range(19)\nfor element in train:\n    int(element)", {"train": "preview"}),  # too few to train
])  # fmt: skip
def test_roles_of_what_a_script_reads(text: str, roles: dict[str, str]) -> None:
    found = run_text(text)
    assert found.roles == roles and bool(found.begun) is ("training" in roles.values())
    assert not any(use.inference for use in found.script.uses if not found.begun)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_script_that_has_ended_has_read_its_data_as_often_as_it_ever_will(passes: int) -> None:
    loop = f"while len(seen) < {4 * passes}:\n    for number in train:\n        seen.append(number)"
    text = f"train = Dataset.range(4)\nnext(iter(train))\n{loop}"
    (use,) = run_text(text).script.uses
    assert not use.epochs_certain and use.passes == passes, "a look at the first element is none"
    use.settle_epochs()
    assert (use.epochs, use.epochs_certain) == (passes, True)


@pytest.mark.parametrize(("text", "epochs", "certain"), [
    ("model.fit(train, epochs=9, initial_epoch=4)", 5, True),
    ("for epoch in range(3):\n    model.fit(train)", 1, False),
    ("def main(n):\n    for epoch in range(n):\n        for pair in train:\n            pass\nmain(1)", 1, True),
    ("model.fit(train)\nmodel.evaluate(train)", 1, False),
    ("for pair in train:\n    pass", 1, True),
    ("for epoch in range(3):\n    for pair in train:\n        pass", None, False),
    # by a library, which may read it several times
    ("import rich.progress\nfor pair in rich.progress.track(train, disable=True):\n    pass", None, False),
])  # fmt: skip
def test_epochs_are_certain_where_data_are_read_once(text: str, epochs: int | None, certain: bool) -> None:
    (use,) = run_text(f"train = pairs()\n{text}").script.uses
    assert (use.epochs, use.epochs_certain) == (epochs, certain)


@pytest.mark.parametrize(("text", "later"), [
    ("model.fit(train.take(3))\nmodel.fit(train, epochs=9)", "trains on train in line 3, too: --dataset train"),
    ("model.fit(train.take(3))\nmodel.fit(epochs=9, x=train)", "trains on train in line 3, too: --dataset train"),
    ("model.fit(train)\nmodel.fit(x=train, epochs=9)\nmodel.fit(other)", ""),
    ("model.fit(x=train)\nother = pairs()\nmodel.fit(x=other)\nmodel.fit(model)", ""),
])  # fmt: skip
def test_data_that_fit_trains_on_further_down_is_named(text: str, later: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"train = pairs()\n{text}\n")
    names = {"pairs": pairs, "model": compiled(), "__name__": "__main__"}
    found = run(lambda: exec(compile(file.read_text(), str(file), "exec"), names))
    said = consumption.describe_training(found.use, found.script.uses)
    assert (later in said) if later else ("too" not in said)


def test_evaluate_predict_and_adapt_are_not_training() -> None:
    found = run_text(
        "evaluated, predicted, adapted = pairs(), pairs().map(lambda x, y: x), pairs().map(lambda x, y: x)\n"
        "model.evaluate(evaluated, verbose=0, steps=3)\nmodel.predict(predicted, verbose=0)\n"
        "keras.layers.Normalization().adapt(adapted)"
    )
    assert not found.begun and not found.stopped
    assert found.roles == {"evaluated": "evaluation", "predicted": "prediction", "adapted": "adapt"}
    assert [use.steps_per_epoch for use in found.script.uses] == [3, None, None]
    said = found.script.describe_other_uses()
    assert "passed evaluated to Model.evaluate (train.py:" in said and "tuned with --dataset evaluated" in said
    assert "passed predicted to Model.predict (train.py:" in said and "adapted" not in said


def test_layer_that_calls_its_base_class_adapts_to_one_dataset() -> None:
    words, layer = Dataset.from_tensor_slices(["a", "b", "b"]).batch(2), keras.layers.StringLookup()
    with hooks.installed(ObservedScript(lambda *_: None, adapts_to=lambda dataset: dataset.take(1))) as script:
        layer.adapt(words)
    assert [(use.dataset, use.role) for use in script.uses] == [(words, "adapt")]
    assert layer.get_vocabulary() == ["[UNK]", "b", "a"]


INFERENCE = "score = pairs().map(lambda x, y: x)\nseen.append(len(model.predict(score, verbose=0)))"


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
@pytest.mark.parametrize("method", ["predict", "evaluate"])
def test_inference_that_lasts_long_is_what_the_script_does(monkeypatch, library, method) -> None:
    monkeypatch.setattr(inference, "UNCERTAIN_SECONDS", 0.0)
    monkeypatch.setattr(inference, "UNCERTAIN_ELEMENTS", 6)
    reads = inference._calls_what_trains  # this file trains
    monkeypatch.setattr(inference, "_calls_what_trains", lambda file: file != __file__ and reads(file))
    module = pytest.importorskip(library)
    text = f"data = pairs()\nmodel.{method}(pairs().take(5))\nmodel.{method}(data, callbacks=[own])\nseen.append(0)"
    names = {"model": compiled(module), "own": module.callbacks.Callback()}
    assert run_text(f"{text}\nif not seen:\n    model.fit(data)", names).seen == [0], "it may train later"
    found = run_text(text, names)
    assert found.stopped and not found.seen and found.consumer.description == f"Model.{method}"
    assert (found.use.name, found.use.role, found.use.elements) == ("data", "training", 6)
    assert "No training on a dataset was seen" in consumption.describe_training(found.use, found.script.uses)


def test_inference_begins_at_once_where_it_was_found_before_or_is_asked_for() -> None:
    for how in ({"training_loop": 0}, {"wanted": "score"}):
        found = run_text(INFERENCE, **how)
        assert found.stopped and (found.use.elements, found.use.epochs) == (0, 1) and not found.seen
    for other in ({"training_loop": 1}, {"wanted": "other"}, {}):
        assert run_text(INFERENCE, **other).seen == [40]


def test_script_that_switches_eager_execution_off_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(lambda: None)
    assert found.script.describe_other_uses() == ""
    monkeypatch.setattr(tf, "executing_eagerly", lambda: False)
    assert "without disable_eager_execution or disable_v2_behavior" in found.script.describe_other_uses()


def test_previews_before_fit_are_not_training() -> None:
    found = run_text(
        "train = pairs()\nnext(iter(train))\nfor _ in train.take(1):\n    pass\nfor _ in train.take(2):\n    break\n"
        "for _ in train:\n    break\nmodel.fit(train, epochs=3)"
    )
    assert found.use.name == "train" and found.use.role == "training"
    assert found.use.readings.elements is None, "a glance says nothing of how far fit reads"


def test_previews_upstream_of_the_last_one_are_remembered() -> None:
    """As in tutorials that show each step: that the map's dataset is read, too, tells where a cache belongs."""
    shown = [f"for _ in {name}:\n    pass" for name in ("data.take(3)", "data.take(1)", "train.take(1)")]
    text = "data = pairs()\n{}\ndata = data.map(lambda x, y: (x, y))\n{}\ntrain = data.shuffle(8)\n{}\nmodel.fit(train)"
    found = run_text(text.format(*shown))
    assert [use.line for use in found.script.uses if use.role == "preview"] == [2, 5, 8]


def test_fit_on_arrays_is_noted_and_runs_unchanged() -> None:
    said: list[str] = []
    script = ObservedScript(lambda *_: pytest.fail("it trains on no dataset"), on_other_data=said.append)
    with hooks.installed(script):
        compiled().fit(*arrays(), verbose=0)
    (note,) = script.notes
    assert said == [note], "before it trains: it may do so for hours"
    assert note.startswith("Model.fit was given ndarray (") and "not a tf.data.Dataset" in note


def test_iterator_that_fit_reads_is_no_loop_of_the_script() -> None:
    model = compiled(pytest.importorskip("tf_keras"))
    found = run(lambda: model.fit(iter(pairs().repeat()), steps_per_epoch=60, verbose=0))
    assert not found.begun
    assert found.script.notes == ["Model.fit was given OwnedIterator, not a tf.data.Dataset"]


@pytest.mark.parametrize("use", ["model.fit({}, verbose=0)\n", "for _ in {}:\n    pass\n"])
def test_use_of_the_target_dataset_is_training(use: str) -> None:
    each = [f"{use.format(name)}seen.append('{name}')\n" for name in ("first", "second")]
    found = run_text("first, second = pairs().repeat(3), pairs().repeat(3)\n" + "".join(each), wanted="second")
    assert found.use.name == "second" and found.seen == ["first"] and found.stopped


def test_optimizer_is_built_before_the_first_window() -> None:
    model = compiled()
    model.compile(keras.optimizers.Adam(), "mse")
    run(lambda: model.fit(pairs()))
    assert model.optimizer.built


LOOPS = {
    "for": "for element in train:\n    seen.append(int(element))",
    "get_next": "iterator = iter(train)\nwhile True:\n    seen.append(int(iterator.get_next()))",
    "optional": "iterator = iter(train)\nwhile (element := iterator.get_next_as_optional()).has_value():\n"
    "    seen.append(int(element.get_value()))",
    "NumPy": "for element in train.as_numpy_iterator():\n    assert isinstance(element, np.generic | np.ndarray)\n"
    "    seen.append(int(element))",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_loop_is_served_windows_after_twenty_elements(loop: str) -> None:
    others = (Dataset.range(1000, 1003), Dataset.range(2000, 2100))
    found = run_text(f"train = Dataset.range(100)\n{LOOPS[loop]}", serve=others)
    assert found.stopped and found.consumer.kind == "loop" and found.use.role == "training"
    assert found.use.consumer_call == "a Python loop" and found.use.name == "train"
    # 20 elements of the script, then each window: two warm-up steps and four counted; a short dataset repeats.
    windows = [1000, 1001, 1002, 1000, 1001, 1002, 2000, 2001, 2002, 2003, 2004, 2005]
    assert found.seen == [*range(20), *windows] and [window.steps for window in found.windows] == [4, 4]
    assert all(window.wait_seconds is not None for window in found.windows)


def test_loop_body_that_raises_fails_all_windows() -> None:
    def script() -> None:
        with contextlib.suppress(ZeroDivisionError):
            for element in Dataset.range(50):
                1 / (int(element) - 2001)

    found = run(script, serve=(Dataset.range(2000, 2010), Dataset.range(3)))
    assert not found.windows and found.failures == ["The script's loop ended."] * 2


def test_failing_or_empty_input_fails_only_its_window() -> None:
    bad = Dataset.range(9).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(3 - x, tf.float32), "bad"))
    found = run_text(
        "for number in Dataset.range(50):\n    seen.append(int(number))",
        serve=(bad, Dataset.range(0), Dataset.range(7, 13)),
    )
    assert len(found.failures) == 2 and "bad" in found.failures[0] and "empty" in found.failures[1]
    assert len(found.windows) == 1 and found.seen[-6:] == [7, 8, 9, 10, 11, 12]


def test_stop_ends_all_threads_that_take_elements() -> None:
    loop, ended = loop_consumer.LoopConsumer(), list[str]()

    def take() -> None:
        with pytest.raises(consumption.ScriptStopped):
            loop.next_element()
        ended.append("stopped")

    threads = [threading.Thread(target=take, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    threads[0].join(0.2)
    loop.stop()
    for thread in threads:
        thread.join(5)
    assert ended == ["stopped"] * 3


def test_loops_after_a_swallowed_stop_are_stopped_again() -> None:
    text = "for _ in range(3):\n    try:\n        for _ in Dataset.range(50):\n            pass\n    except:\n"
    found = run_text(f"{text}        seen.append(1)", serve=(Dataset.range(5),))
    assert len(found.windows) == 1 and len(found.begun) == 1
    assert len(found.seen) == 3  # each later loop is stopped at its first element


def test_validation_between_epochs_is_not_served_training_data() -> None:
    found = run_text(
        "train, check = Dataset.range(15), Dataset.range(100, 103)\nfor _ in range(3):\n"
        "    for _ in train:\n        pass\n    seen.append([int(element) for element in check])",
        serve=(Dataset.range(5),),
    )
    assert found.use.name == "train" and found.seen == [[100, 101, 102]]
    assert found.roles == {"train": "training", "check": "validation"}


@pytest.mark.parametrize(
    ("wanted", "roles"),
    [("train", {"train": "training", "check": "validation"}), ("check", {"train": "preview", "check": "training"})],
)
def test_what_a_loop_read_before_the_data_asked_for_may_train(wanted: str, roles: dict[str, str]) -> None:
    text = "train, check = Dataset.range(15), Dataset.range(13)\nfor _ in range(3):\n"
    found = run_text(f"{text}    for _ in train:\n        pass\n    for _ in check:\n        pass", wanted=wanted)
    assert found.roles == roles


def test_validation_data_of_the_same_call_is_no_other_stream() -> None:
    found = run_text(
        "train, check = [Dataset.range(size) for size in (50, 3)]\nfor step, x in enumerate(train):\n"
        "    if step % 5 == 4:\n        seen.append([int(one) for one in check])",
        serve=(Dataset.range(60),) * 2,
    )
    assert found.roles == {"train": "training", "check": "validation"}
    assert len(found.seen) > 4 and found.seen[-1] == [0, 1, 2], "also while it is measured"
    assert not found.script.reads_streams_alike, "it is studied by itself"


def test_evaluation_of_data_that_the_same_helper_makes_gets_its_own() -> None:
    text = (
        "def make(first, last):\n    return Dataset.range(first, last)\n"
        "def evaluate():\n    seen.append([int(element) for element in make(100, 103)])\n"
        "for epoch in range(9):\n    for n, x in enumerate(make(0, 50)):\n        if n % 5 == 0:\n"
        "            evaluate()"
    )
    found = run_text(text, serve=(Dataset.range(60), Dataset.range(60)))
    assert len(found.windows) == 2 and found.seen == [[100, 101, 102]] * len(found.seen)
    assert len(found.seen) > 5, "also while it is measured"


def test_data_evaluated_before_training_is_validated_on_if_each_epoch_evaluates_it() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.train, self.check, self.seen = compiled(), pairs(), pairs(), pairs()

        def run(self) -> None:
            self.model.evaluate(self.check, verbose=0)
            self.model.evaluate(self.seen, verbose=0)
            for _ in range(3):
                for x, y in self.train:
                    self.model.train_on_batch(x, y)
                self.model.evaluate(self.check, verbose=0)

    found = run(lambda: Trainer().run(), serve=(pairs(),))
    assert found.roles == {"train": "training", "check": "validation", "seen": "evaluation"}


@pytest.mark.parametrize(("text", "others"), [
    # the loop makes a new iterator of one of them at each step
    ("first, second = [Dataset.range(start, start + 100) for start in (1000, 2000)]\nstream = iter(first)\n"
     "while True:\n    seen.append([int(next(stream)), int(next(iter(second)))])", lambda step: [2000]),
    ("a, b, c = [iter(Dataset.range(start, start + 100)) for start in (1000, 2000, 3000)]\n"
     "while True:\n    seen.append([int(next(stream)) for stream in (b, a, c)])",
     lambda step: [1000 + step, 3000 + step]),
])  # fmt: skip
def test_datasets_of_one_call_are_each_served_their_own_data(text: str, others: Callable[[int], list[int]]) -> None:
    found = run_text(text, serve=(Dataset.range(5),))
    assert len(found.windows) == 1 and found.stopped
    assert [first for first, *_ in found.seen[20:]] == [0, 1, 2, 3, 4, 0][: len(found.seen) - 20]
    assert [rest for _, *rest in found.seen] == [others(step) for step in range(len(found.seen))]
    assert found.script.reads_streams_alike


def test_reduce_and_functions_without_a_dataset_are_not_training() -> None:
    found = run_text(
        "assert int(tf.function(lambda x: x + 1)(tf.constant(1))) == 2\n"
        "add = lambda a, b: a + b\n"
        "inner = Dataset.range(3).map(lambda x: Dataset.range(x).reduce(np.int64(0), add))\n"
        "assert [int(x) for x in inner] == [0, 0, 1]\n"
        "total = Dataset.range(50)\ntotal.reduce(np.int64(0), add)"
    )
    assert not found.begun
    uses = [(use.name, use.role, use.consumer_call) for use in found.script.uses if use.role != "preview"]
    assert uses == [("total", "other", "Dataset.reduce")]


def test_nested_tf_functions_are_still_converted_by_autograph() -> None:
    @tf.function
    def inner(value: Any) -> Any:
        if value > 0:  # works only through AutoGraph
            return value
        return -value

    class Model(tf.Module):
        @tf.function
        def step(self, value: Any, *, other: Any) -> Any:
            return inner(value) + inner(other)

    found = run(lambda: Model().step(tf.constant(-3), other=tf.constant(4)))
    assert not found.begun and int(found.result) == 7


def test_fit_after_training_has_begun_stops_the_script() -> None:
    found = run_text(
        "train = pairs()\nfor _ in range(3):\n    try:\n        model.fit(train)\n    except:\n"
        "        seen.append('swallowed')\nfor _ in train:\n    seen.append('looped')"
    )
    assert found.stopped and len(found.begun) == 1 and found.seen == ["swallowed"] * 3


def test_hooks_are_undone_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: dict[tuple[Any, str], Any] = {}  # what was there before
    replace = Patches.replace

    def note(self: Patches, owner: Any, name: str, new: Any) -> None:
        replaced.setdefault((owner, name), getattr(owner, name))
        replace(self, owner, name, new)

    monkeypatch.setattr(Patches, "replace", note)
    run(lambda: None)
    assert {"__iter__", "reduce", "fit", "evaluate", "predict", "adapt", "schedule", "save"} <= {n for _, n in replaced}
    assert [getattr(owner, name) for owner, name in replaced] == [*replaced.values()]
    assert not any(isinstance(finder, ImportWatcher) for finder in sys.meta_path)


def test_iterators_and_datasets_are_their_own_again_after_the_run() -> None:
    """A notebook goes on with them, and may be observed once more: nothing of the first run is known then."""
    dataset, kept = Dataset.range(100), []

    def preview() -> None:
        kept.append(iter(dataset))
        next(kept[0])

    first = run(preview)
    assert type(kept[0]) is tensorflow_private.OwnedIterator and first.use_of(dataset).elements == 1
    assert [int(next(kept[0])) for _ in range(50)] == list(range(1, 51)) and not first.begun

    def train() -> None:
        for _ in dataset:
            pass

    second = run(train)
    assert second.stopped and second.use.elements == FIRST_ELEMENTS and second.use is not first.use_of(dataset)


def test_iterators_of_pipetune_are_not_uses() -> None:
    def script() -> None:
        with call_sites.running_workflow():
            assert type(iter(Dataset.range(3))) is tensorflow_private.OwnedIterator
        assert type(iter(Dataset.range(3))) is not tensorflow_private.OwnedIterator

    assert len(run(script).script.uses) == 1


def test_number_of_recorded_previews_is_bounded() -> None:
    assert len(run_text("for _ in range(60):\n    next(iter(Dataset.range(3)))").script.uses) <= 51


def test_a_forked_child_is_left_alone() -> None:
    """A child process of a script has no thread that measures in it: its loops would wait forever."""

    def script() -> None:
        iterator = iter(Dataset.range(9))
        if (child := os.fork()) == 0:
            left = type(iterator) is not tensorflow_private.OwnedIterator
            os._exit(left or hasattr(Dataset.__iter__, "__wrapped__"))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        codes.append(type(iterator) is tensorflow_private.OwnedIterator)

    codes: list[int] = []
    run(script)
    assert codes == [0, False], "the script itself is observed as before"


@pytest.mark.parametrize("index", [None, 1, 0])
def test_server_join_is_refused_in_lockstep(monkeypatch: pytest.MonkeyPatch, index: int | None) -> None:
    served: list[Any] = []
    monkeypatch.setattr(tf.distribute.Server, "join", served.append)
    if index is not None:
        monkeypatch.setenv("TF_CONFIG", cluster.tf_config({"worker": ["a:1", "b:1"]}, "worker", index))
    with hooks.installed(ObservedScript(lambda *_: None, lockstep=index is not None)):
        if index == 0:
            with pytest.raises(PipetuneError, match="instead of training") as refused:
                tf.distribute.Server.join("it")
            assert "Add --parameter-servers 1" in refused.value.hint
        else:
            tf.distribute.Server.join("it")
    assert served == ([] if index == 0 else ["it"])


@pytest.mark.parametrize(("text", "elements"), [
    ("for _ in range(2):\n    for _ in range(300):\n        next(it)", 600),
    ("for _ in range(1_000_000_000_000_000_000_000):\n    next(it)", 10**21),
    ("def run(steps):\n    for _ in range(steps):\n        next(it)\nrun(600)", 600),
    ("for n in range(600):\n    next(it)\n    if n == len(seen) + 500:\n        break", None),
    ("for _ in range(600):\n    next(it), next(it)", None),
    ("while True:\n    next(it)", None),
])  # fmt: skip
def test_ranges_say_how_far_an_endless_dataset_is_read(text: str, elements: int | None) -> None:
    found = run_text(f"train = Dataset.range(9).repeat()\nit = iter(train)\n{text}", serve=(Dataset.range(50),))
    assert len(found.windows) == 1 and found.use.readings.elements == elements


@pytest.mark.parametrize(
    ("leave", "elements"),
    [("if n == 5:\n            break", 5), ("pass", None), ("if n == 99:\n            break", 14)],
)
def test_how_far_a_loop_reads_is_seen_while_it_is_measured(leave: str, elements: int | None) -> None:
    text = f"train = Dataset.range(9)\nfor _ in range(9):\n    for n, _ in enumerate(train, 1):\n        {leave}"
    found = run_text(text, serve=(Dataset.range(50), Dataset.range(50)))
    assert len(found.windows) == 2 and found.use.readings.elements == elements
