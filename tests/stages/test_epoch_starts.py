"""The wait at the start of each epoch in the verdict, which is measured with nothing beside it."""

from __future__ import annotations

import time

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy.bottleneck import delay_elements
from pipetune.capture.loop_consumer import StepConsumer
from pipetune.stages.profiling import take_profile
from tests.stages.studies import study_here


def test_the_verdict_counts_the_wait_at_the_start_of_each_epoch() -> None:
    """Behind a full buffer 16 ms a batch are less than a step; filling it takes 0.8 s of an epoch of 2.8 s."""
    slow = delay_elements(tf.data.Dataset.range(400), 0.004).shuffle(200).batch(4).prefetch(2)
    consumer = take_profile(study_here(slow, consumer=StepConsumer(lambda _: time.sleep(0.02)), quick=True)).consumer
    assert consumer.real_seconds and consumer.wait_share is not None
    assert consumer.wait_share.median > 0.15
    assert consumer.start_seconds > 0.4 * consumer.wait_share.median * consumer.real_seconds
