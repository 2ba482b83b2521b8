"""The copy to a device: timed separately and applied as the last operator; repeats and comparisons are upstream of it.

The CPU takes the place of an accelerator: the same operators and functions, but no separate memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import loop_consumer
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.measurement import RunFailed
from pipetune.measure import epochs, machine, runner
from pipetune.pipelines import live, replay
from pipetune.stages.emission import expected_digests
from pipetune.timing import windows

Dataset = tf.data.Dataset
CPU = "/CPU:0"


def batches() -> Any:
    return Dataset.range(20).map(lambda x: (tf.cast(x, tf.float32) * 2, x)).batch(4)


def rewrite(after: str) -> Rewrite:
    copy = Insert(after, "copy_to_device", f"copy_to_device@{after}", {"target_device": CPU})
    buffer = Insert(copy.id, "prefetch", f"prefetch@{copy.id}", {"buffer_size": 1})
    return Rewrite("prefetch-to-device", after, Safety.EXACT, (copy, buffer), "", only_training=True)


def plan(dataset: Any) -> Plan:
    return Plan("device", (rewrite(live.read(dataset).pipeline.output.id),))


def values(dataset: Any) -> list[Any]:
    return [tuple(np.asarray(one).tolist() for one in tf.nest.flatten(element)) for element in dataset]


# -- timing of the copy


def test_copy_is_timed_and_returns_equal_elements() -> None:
    found = epochs.measure_transfer(batches(), CPU, limit_seconds=0.05)
    assert found is not None and found.equal and found.device == CPU
    assert found.element_bytes == 4 * 4 + 4 * 8
    assert found.seconds > 0 and found.copies >= 1
    assert epochs.measure_transfer(Dataset.from_tensors(tf.constant(["a"])), CPU) is None  # strings are not copied
    mixed = Dataset.from_tensors((tf.constant(["a"]), tf.ragged.constant([[1], [2, 3]], tf.int32)))
    found = epochs.measure_transfer(mixed, CPU, limit_seconds=0.01)
    assert found is not None and found.element_bytes == 3 * 4 + 3 * 8  # values and row splits


def test_no_tensor_is_copied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow keeps the copy of an eager tensor on another device: 19 MB were copied to a GPU at 204 GB/s."""
    copied: list[int] = []
    identity = tf.identity
    monkeypatch.setattr(tf, "identity", lambda tensor: (copied.append(tensor._id), identity(tensor))[1])
    found = epochs.measure_transfer(batches(), CPU, limit_seconds=0.01)
    onto_the_host, onto_the_device = copied[0::4] + copied[1::4], copied[2::4] + copied[3::4]
    assert len(set(onto_the_host)) == 2, "the components of the first element"
    assert len(set(onto_the_device)) == len(onto_the_device) >= 2 * found.copies


def test_copy_that_cannot_be_timed_fails_with_its_reason() -> None:
    with pytest.raises(RunFailed, match="empty"):
        epochs.measure_transfer(batches().take(0), CPU)
    with pytest.raises(RunFailed, match="/GPU:7"):
        epochs.measure_transfer(batches(), "/GPU:7")


# -- the applied rewrite


def test_copy_is_inserted_last_and_keeps_the_elements() -> None:
    dataset = batches()
    edited = runner_of(dataset).edited(plan(dataset))
    built = replay.replay(live.read(dataset), edited)
    assert [node.op for node in live.read(built).pipeline] == ["range", "map", "batch", "copy_to_device", "prefetch"]
    assert live.read(built).pipeline.identities() == edited.identities()  # a patched source is compared with this
    assert values(built) == values(dataset)


def test_repeat_is_inserted_upstream_of_the_copy() -> None:
    built = batches().apply(tf.data.experimental.prefetch_to_device(CPU, 2))
    for device_only in (built, batches().apply(tf.data.experimental.copy_to_device(CPU))):
        again = windows.repeat_forever(device_only)
        ops = [node.op for node in live.read(again).pipeline]
        assert ops[:4] == ["range", "map", "batch", "repeat"] and "copy_to_device" in ops[4:]
        assert values(again.take(6)) == [*values(batches()), values(batches())[0]]
    assert windows.host_part(built).element_spec == built.element_spec
    assert values(windows.host_part(built)) == values(batches())
    endless = batches().repeat()
    assert windows.repeat_forever(endless) is endless and windows.host_part(endless) is endless


def runner_of(dataset: Any) -> runner.TensorFlowRunner:
    consumer = loop_consumer.StepConsumer(lambda x, y: tf.reduce_sum(x))
    here = machine.read_machine("cpu")
    return runner.TensorFlowRunner(live.read(dataset), consumer, machine=here, examples_per_element=4.0)


def test_runner_measures_and_compares_a_plan_with_a_copy() -> None:
    dataset = batches()
    measuring, with_copy = runner_of(dataset), plan(dataset)
    assert measuring.training_window(with_copy, steps=9).steps == 9  # five batches are repeated
    assert measuring.input_window(with_copy, seconds=0.02, warmup_seconds=0.0).steps > 0
    comparison = measuring.compare(with_copy)
    assert comparison.proven, comparison


def test_script_with_its_own_copy_can_be_measured() -> None:
    dataset = batches().apply(tf.data.experimental.prefetch_to_device(CPU, 1))
    measuring = runner_of(dataset)
    assert measuring.training_window(Plan("current"), steps=9).steps == 9
    assert measuring.bound_window(steps=4).steps == 4
    assert expected_digests(dataset, seed=0) == expected_digests(batches(), seed=0) != ()
