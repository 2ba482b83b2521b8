"""Generated inputs are those that the functions of the changed part accept."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.equality.sharing import ChangedRegion, ComparedPipeline
from pipetune.pipelines import live

Dataset = tf.data.Dataset


def add(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.range(9).map(add).prefetch(2).map(add).batch(3).map(add), 2),  # elements stay behind a prefetch
        (Dataset.range(9).batch(3).map(add), 0),
    ],
)
def test_functions_of_a_region_are_those_that_take_its_elements(dataset: Any, expected: int) -> None:
    source = live.read(dataset)
    side = ComparedPipeline(source, source.pipeline)
    start = next(node.id for node in source.pipeline if node.op == "range")
    assert len(ChangedRegion(start, (side, side)).functions) == expected
