"""What is measured in place of the pipeline: shuffle buffers that are cut, the same in every plan, and one batch."""

from __future__ import annotations

import time
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import NoConsumer
from pipetune.core.edits import Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.measure.caches import CutBuffers, cut_buffers, with_buffers
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from tests.core.sessions import MACHINE

Dataset = tf.data.Dataset


def slow(count: int = 100_000) -> Any:
    """Numbers, each of which takes a millisecond."""

    def wait(number: Any) -> Any:
        time.sleep(0.001)
        return number

    return Dataset.range(count).map(lambda x: tf.ensure_shape(tf.py_function(wait, [x], tf.int64), []))


def starting_slowly() -> Any:
    """Numbers that come at once, but for the first."""

    def wait(number: Any) -> Any:
        time.sleep(0.3)
        return number

    first = Dataset.range(1).map(lambda x: tf.py_function(wait, [x], tf.int64))
    return first.flat_map(lambda _: Dataset.range(10**9))


def sizes(cut: CutBuffers) -> list[int]:
    return [node.argument("buffer_size") for node in cut.source.pipeline if node.op == "shuffle"]


def test_buffer_that_takes_long_to_fill_is_cut() -> None:
    source = live.read(slow().shuffle(5000).batch(4))
    cut = cut_buffers(source)
    (size,) = sizes(cut)
    assert 32 <= size <= 100 and list(cut.sizes.values()) == [size]
    assert cut.fill_seconds > 4
    assert [node.id for node in cut.source.pipeline] == [node.id for node in source.pipeline]
    assert next(iter(cut.source.dataset)).shape == [4]


@pytest.mark.parametrize("make", [
    lambda: Dataset.range(10**9).shuffle(500).batch(4),
    lambda: starting_slowly().shuffle(500),
    lambda: slow().shuffle(32),
    lambda: slow(30).shuffle(5000),
    lambda: slow(20).shuffle(5000).cache().batch(2),
    lambda: slow().batch(4),
    lambda: Dataset.from_generator(lambda: iter(()), output_signature=tf.TensorSpec([])).shuffle(5000),
], ids=["filled at once", "slow start", "small", "few elements", "cached", "no shuffle", "empty"])  # fmt: skip
def test_other_buffers_stay(make: Any) -> None:
    source = live.read(make())
    cut = cut_buffers(source)
    assert cut.source is source and cut.sizes == {} and cut.fill_seconds == 0


def test_cut_is_the_same_in_every_plan() -> None:
    source = live.read(slow().shuffle(5000).batch(4))
    (shuffle, batch) = (next(node for node in source.pipeline if node.op == op) for op in ("shuffle", "batch"))
    cut = with_buffers(source, {shuffle.id: 40})
    runner = TensorFlowRunner(source, NoConsumer("nobody trains"), machine=MACHINE, examples_per_element=4.0)
    runner.cut = cut
    edits = (SetArgument(batch.id, "num_parallel_calls", 2),)
    plan = Plan("tuned", (Rewrite("parallel-batch", batch.id, Safety.EXACT, edits, "in parallel"),))
    for chosen in (Plan("defaults"), plan):
        dataset = runner.training_dataset(chosen)
        assert [node.argument("buffer_size") for node in live.read(dataset).pipeline if node.op == "shuffle"] == [40]
    assert runner.edited(plan)[shuffle.id].argument("buffer_size") == 5000
    smaller = apply_edits(source.pipeline, [SetArgument(shuffle.id, "buffer_size", 8)])
    assert cut.applied_to(smaller) == smaller


# -- the one batch on which training never waits


TENS = Dataset.range(10, 90, 10)


@pytest.mark.parametrize(("dataset", "element"), [
    (TENS.enumerate(), (1, 20)),
    (Dataset.zip((Dataset.range(3), TENS)), (1, 20)),
    (TENS.take(1).enumerate(), (0, 10)),  # there is no second one
    (TENS, 10),
    # It has a zip, and TensorFlow does not join it with another dataset.
    (Dataset.sample_from_datasets([TENS.repeat().map(lambda x: (1, x))] * 2,
     weights=Dataset.from_tensors(0).repeat().map(lambda _: tf.constant([1.0, 0.0]))), (1, 20)),
], ids=["numbered", "zipped", "one element", "not numbered", "chosen"])  # fmt: skip
def test_a_step_that_does_more_for_the_first_number_is_not_repeated(dataset: Any, element: Any) -> None:
    """As in `for step, batch in ds.enumerate(): if step % 1000 == 0: print(...)`."""
    runner = TensorFlowRunner(live.read(dataset), NoConsumer(""), machine=MACHINE, examples_per_element=1.0)
    assert list(runner.training_dataset(None).as_numpy_iterator()) == [element]
