"""The input wait of training is limited by the time of the input alone."""

from __future__ import annotations

import pytest

from pipetune.core.results import Interval
from pipetune.stages.profiling import _limited

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("measured", "most", "bounded"),
    [
        ((0.30, 0.25, 0.35), 0.50, (0.30, 0.25, 0.35)),  # below the limit
        ((0.30, 0.25, 0.35), 0.32, (0.30, 0.25, 0.32)),
        ((0.30, 0.25, 0.35), 0.28, (0.28, 0.25, 0.28)),
        ((0.40, 0.35, 0.45), 0.015, (0.015, 0.0, 0.015)),  # never 1.5 % (1.5 % to 1.5 %)
    ],
)
def test_input_wait_is_limited_by_time_of_input_alone(
    measured: tuple[float, ...], most: float, bounded: tuple[float, ...]
) -> None:
    found = _limited(Interval(*measured, 8, "t"), most=most)
    assert (found.median, found.low, found.high) == bounded
    assert ("times what the input takes alone" in found.method) is (bounded != measured)
