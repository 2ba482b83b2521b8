"""Element specs of modules, compared with an `input_signature` from the script's spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("counted_for_two_workers", "counted_alone")]

from pipetune.distributed.verify.batch_checks import changes, sentences
from tests.distributed.written_modules import emit, load


def spec(*shape: int | None, dtype: Any = None) -> Any:
    return tf.TensorSpec(shape, dtype or tf.float32)


def rows(*, drop_remainder: bool) -> Any:
    numbers = tf.data.Dataset.range(24)
    numbers = numbers.map(lambda number: {"x": tf.fill([3], number), "y": number})
    return numbers.batch(8, drop_remainder=drop_remainder)


def taking(dataset: Any) -> Any:
    """A function that takes the elements of the script's pipeline, with a signature as scripts declare it."""

    @tf.function(input_signature=[dataset.element_spec])
    def step(batch: Any) -> Any:
        return tf.reduce_sum(batch["y"])

    return step


@pytest.mark.mission("B6.spec")
def test_each_changed_component_is_named_with_its_acceptance_by_a_signature() -> None:
    script = {"a": spec(8, 3), "b": (spec(None), spec(2))}
    refused, narrower = sentences(changes(script, {"a": spec(4, 3), "b": (spec(4), spec(2))}))
    assert "['a'] (8, 3) float32 becomes (4, 3) float32. A tf.function" in refused and "refuses" in refused
    assert "['b'][0] (None,) float32 becomes (4,) float32" in narrower and "takes such elements" in narrower
    for other in (spec(None), (spec(8), spec()), spec(8, dtype=tf.int64)):
        ((_, accepted),) = changes(spec(8), other)
        assert not accepted


@pytest.mark.mission("B6.spec")
def test_signature_of_the_script_accepts_batches_of_every_worker(tmp_path: Path) -> None:
    written = rows(drop_remainder=False)
    result = emit(written, "multiworker", tmp_path)
    assert result.module and result.checks[0].spec == () and result.advice == ()
    module, step = load(result), taking(written)
    for worker in range(2):
        for batch in module.dataset_fn(tf.distribute.InputContext(2, worker, 2)):
            step(batch)


def test_fixed_batch_size_becomes_that_of_a_replica_and_is_reported(tmp_path: Path) -> None:
    written = rows(drop_remainder=True)
    result = emit(written, "multiworker", tmp_path)
    (told,) = result.advice
    assert "['x'] (8, 3) int64 becomes (4, 3) int64, ['y'] (8,) int64 becomes (4,) int64" in told
    batch = next(iter(load(result).dataset_fn(tf.distribute.InputContext(2, 0, 2))))
    with pytest.raises((TypeError, ValueError)):
        taking(written)(batch)
