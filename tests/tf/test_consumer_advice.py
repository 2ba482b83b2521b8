"""Advice on the consumer, from real ones: Keras layers in maps, small steps in one call, data that is no dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow

from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.model.consumer_advice import layers_in_maps
from pipetune.tf.pipelines import live
from pipetune.tf.script import fit_consumer
from pipetune.tf.script.other_data import described


def test_a_random_layer_in_a_map_is_known_by_the_variable_it_changes() -> None:
    flip = keras.layers.RandomFlip()
    images = tf.data.Dataset.from_tensors(tf.zeros([2, 8, 8, 3])).map(lambda image: flip(image, training=True))
    pipeline = live.read(images).pipeline
    operators = (OperatorProfile("n1", Stage.TRANSFORM, cpu_seconds=0.003, visits=1.0),)
    profile = Profile(operators, ConsumerProfile("none"), input_cpu_seconds=0.004)
    (found,) = layers_in_maps(pipeline, profile)
    assert "75%" in found.message and "seed_generator" in found.message
    plain = live.read(tf.data.Dataset.from_tensors(tf.zeros([2, 8, 8, 3])).map(keras.layers.Rescaling(0.5))).pipeline
    assert list(layers_in_maps(plain, profile)) == []


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_several_steps_in_a_call_train_the_same_and_leave_the_model_as_it_was(library: str) -> None:
    made_with = pytest.importorskip(library)
    model = made_with.Sequential([made_with.layers.Input([4]), made_with.layers.Dense(1)])
    model.compile("sgd", "mse")
    fit, callbacks = type(model).fit, fit_consumer.callback_list(model)
    consumer = fit_consumer.FitConsumer(model, fit, {"shuffle": False}, callbacks)
    data = tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).cache()
    assert consumer.takes_one_step_a_call
    consumer.window(data, steps=8, warmup=2)
    own, kept = model.train_function, {}
    for number in (8, 32):
        before = int(model.optimizer.iterations)
        with consumer.several_steps(number):
            window = consumer.window(data, steps=2 * number, warmup=2)
            kept[number] = model.train_function
            assert kept[number] is not own and not consumer.takes_one_step_a_call
        assert window.steps == 2 * number
        taken = int(model.optimizer.iterations) - before
        assert taken >= 2 * number and taken % number == 0
        assert model.train_function is own and consumer.takes_one_step_a_call
        assert fit_consumer.steps_per_call(model) == 1
    for number in (8, 32):
        with consumer.several_steps(number):
            assert model.train_function is kept[number]  # it is not traced again


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


def test_what_fit_was_given_is_told() -> None:
    arrays = described(np.zeros([300, 1024], np.float32))
    assert "ndarray (300 rows, 1.2 MiB), not a tf.data.Dataset" in arrays and "gathers each batch" in arrays
    assert "300 rows, 1.2 MiB" in described({"a": tf.zeros([300, 1000]), "b": np.zeros([300, 24], np.float32)})
    one = described(Batches())
    assert "given Batches" in one and "workers=1, use_multiprocessing=False, max_queue_size=10" in one
    assert "batches/s" in one and "at most" in one
    assert "take turns at the interpreter" in described(Batches(workers=4))
    assert "batches/s" not in described(Batches(fails=True))
    assert described(iter([])) == "Model.fit was given list_iterator, not a tf.data.Dataset"
    assert described(None) == "Model.fit was given NoneType, not a tf.data.Dataset"


def test_keras_gathers_the_rows_of_arrays_by_their_numbers() -> None:
    """What the sentence about arrays rests on."""
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    made = ArrayDataAdapter(np.zeros([20, 4], np.float32), batch_size=8, shuffle=True).get_tf_dataset()
    functions = [node.function.operations for node in live.read(made).pipeline if node.function is not None]
    assert any("GatherV2" in names for names in functions)
