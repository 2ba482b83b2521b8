"""The wait at the start of each epoch in the verdict, which is measured with nothing beside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy.bottleneck import delay_elements
from pipetune.capture.loop_consumer import StepConsumer
from pipetune.stages.profiling import take_profile
from tests.stages.studies import study_here


def records(folder: Path) -> Any:
    """200 records, each of which takes 4 ms; TensorFlow does not know how many they are."""

    def wait(record: bytes) -> bytes:
        time.sleep(0.004)
        return record

    path = str(folder / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(200):
            writer.write(str(number).encode())
    read = tf.data.Dataset.from_tensors(path).interleave(tf.data.TFRecordDataset, cycle_length=1)
    return read.map(lambda record: tf.ensure_shape(tf.numpy_function(wait, [record], tf.string), []))


@pytest.mark.parametrize(("make", "size", "notable"), [
    (lambda _: delay_elements(tf.data.Dataset.range(400), 0.004), 200, True),
    (records, 10_000, True),  # more than there are
    (lambda _: delay_elements(tf.data.Dataset.range(40_000), 0.004), 200, False),
], ids=["numbers", "uncounted records", "long epochs"])  # fmt: skip
def test_the_verdict_counts_the_wait_at_the_start_of_each_epoch(make, size, notable, tmp_path) -> None:
    """Behind a full buffer 16 ms a batch are less than a step; filling it takes 0.8 s of an epoch of 2.8 s or of 1.8 s.

    Windows then fill it, too: a plan may save that.
    """
    slow = make(tmp_path).shuffle(size).batch(4).prefetch(2)
    study = study_here(slow, consumer=StepConsumer(lambda _: time.sleep(0.02)), quick=True)
    profile = take_profile(study)
    consumer = profile.consumer
    assert consumer.real_seconds and consumer.wait_share is not None
    assert (consumer.wait_share.median > 0.15) is notable
    assert (consumer.start_seconds > 0.1 * consumer.real_seconds) is notable
    assert bool(study.runner.cut.sizes) is not notable
    assert profile.first_element_seconds is not None and profile.first_element_seconds < 4
