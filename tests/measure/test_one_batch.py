"""The one batch on which training never waits."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from pipetune.capture.consumption import NoConsumer
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from tests.core.sessions import MACHINE

pytestmark = pytest.mark.tensorflow

Dataset = tf.data.Dataset
TENS = Dataset.range(10, 90, 10)


@pytest.mark.parametrize(
    ("dataset", "element"),
    [
        (TENS.enumerate(), (1, 20)),
        (Dataset.zip((Dataset.range(3), TENS)), (1, 20)),
        (TENS.take(1).enumerate(), (0, 10)),  # there is no second one
        (TENS, 10),
    ],
    ids=["numbered", "zipped", "one element", "not numbered"],
)
def test_a_step_that_does_more_for_the_first_number_is_not_repeated(dataset: Any, element: Any) -> None:
    """As in `for step, batch in ds.enumerate(): if step % 1000 == 0: print(...)`."""
    runner = TensorFlowRunner(live.read(dataset), NoConsumer(""), machine=MACHINE, examples_per_element=1.0)
    assert list(runner.training_dataset(None).as_numpy_iterator()) == [element]
