"""Advice on real consumers: Keras layers in maps, several steps per call, data that is not a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.fit_consumer import FitConsumer, steps_per_call
from pipetune.capture.keras import describe_input
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.lint.consumer_advice import layers_in_maps, python_calls_in_maps, selections_in_maps
from pipetune.pipelines import live


def profile(seconds: float, *nodes: str, total: float = 0.01) -> Profile:
    operators = tuple(OperatorProfile(node, Stage.TRANSFORM, cpu_seconds=seconds, visits=1.0) for node in nodes)
    return Profile(operators, ConsumerProfile("none"), input_cpu_seconds=total)


def test_random_layer_in_map_is_recognized_by_its_variable() -> None:
    flip = keras.layers.RandomFlip()
    images = tf.data.Dataset.from_tensors(tf.zeros([2, 8, 8, 3])).map(lambda image: flip(image, training=True))
    pipeline = live.read(images).pipeline
    measured = profile(0.003, "n1", total=0.004)
    (found,) = layers_in_maps(pipeline, measured)
    assert "75 %" in found.message and "seed_generator" in found.message
    plain = live.read(tf.data.Dataset.from_tensors(tf.zeros([2, 8, 8, 3])).map(keras.layers.Rescaling(0.5))).pipeline
    assert list(layers_in_maps(plain, measured)) == []


def test_a_selection_of_whole_images_is_told_where_its_map_takes_time() -> None:
    def grey_by_chance(image: Any) -> Any:
        grey = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
        return tf.where(tf.random.uniform([]) < 0.2, grey, image)

    images = tf.data.Dataset.from_tensors(tf.zeros([224, 224, 3])).repeat().map(grey_by_chance)
    pipeline = live.read(images.map(grey_by_chance)).pipeline
    maps = [node.id for node in pipeline if node.op == "map"]
    (found,) = selections_in_maps(pipeline, profile(0.004, *maps))
    assert found.code == "array-selection" and "150,528 numbers" in found.message and "40 %" in found.message
    assert (found.file, found.line) == (__file__, grey_by_chance.__code__.co_firstlineno + 2)
    assert list(selections_in_maps(pipeline, profile(0.0009, *maps))) == []


@pytest.mark.parametrize(
    ("call", "seconds", "expected"),
    [(tf.py_function, 0.004, 1), (tf.py_function, 0.0009, 0), (tf.numpy_function, 0.004, 0)],
)
def test_eager_python_function_is_told_where_its_map_takes_time(call: Any, seconds: float, expected: int) -> None:
    numbers = tf.data.Dataset.range(4).map(lambda x: call(lambda value: value, [x], tf.int64))
    found = list(python_calls_in_maps(live.read(numbers).pipeline, profile(seconds, "n1")))
    assert [finding.code for finding in found] == ["py-function"] * expected


def test_multi_step_calls_train_all_steps_and_restore_model() -> None:
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    consumer = FitConsumer(model, type(model).fit, {"shuffle": False})
    data = tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).cache()
    assert consumer.accepts_multi_step_calls
    consumer.window(data, steps=8, warmup=2)
    own, kept = model.train_function, {}
    for number in (8, 32):
        before = int(model.optimizer.iterations)
        with consumer.multi_step_calls(number):
            window = consumer.window(data, steps=2 * number, warmup=2)
            kept[number] = model.train_function
            assert kept[number] is not own and not consumer.accepts_multi_step_calls
        assert window.steps == 2 * number
        taken = int(model.optimizer.iterations) - before
        assert taken >= 2 * number and taken % number == 0
        assert model.train_function is own and consumer.accepts_multi_step_calls and steps_per_call(model) == 1
    for number in (8, 32):
        with consumer.multi_step_calls(number):
            assert model.train_function is kept[number]  # not traced again


class Batches(keras.utils.PyDataset):
    def __init__(self, fails: bool = False, **how: Any) -> None:
        super().__init__(**how)
        self.fails = fails

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        if self.fails:
            raise OSError("the disk is gone")
        return np.ones([8, 4]), np.ones([8, 1])


def test_input_of_fit_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = describe_input(np.zeros([300, 1024], np.float32))
    assert "ndarray (300 rows, 1.2 MiB), not a tf.data.Dataset" in arrays and "gathers each batch" in arrays
    assert "300 rows, 1.2 MiB" in describe_input({"a": tf.zeros([300, 1000]), "b": np.zeros([300, 24], np.float32)})
    one = describe_input(Batches())
    assert "given Batches" in one and "workers=1, use_multiprocessing=False, max_queue_size=10" in one
    assert "batches/s" in one and "at most" in one and "share the GIL" in describe_input(Batches(workers=4))
    assert "batches/s" not in describe_input(Batches(fails=True))
    monkeypatch.setattr("pipetune.capture.keras._batch_seconds", lambda batches: 1.2)
    assert "one batch took 1,200 ms, so training gets at most 0.833 batches/s" in describe_input(Batches())
    assert describe_input(iter([])) == "Model.fit was given list_iterator, not a tf.data.Dataset"
    assert describe_input(None) == "Model.fit was given NoneType, not a tf.data.Dataset"


def test_keras_gathers_rows_of_arrays_by_index() -> None:
    """The message about arrays relies on this."""
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    made = ArrayDataAdapter(np.zeros([20, 4], np.float32), batch_size=8, shuffle=True).get_tf_dataset()
    functions = [node.function.operations for node in live.read(made).pipeline if node.function is not None]
    assert any("GatherV2" in names for names in functions)
