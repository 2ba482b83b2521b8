"""A finite buffer in front of the model: closed forms, and which pipelines have a buffer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.model.bottleneck import buffered_step_seconds, output_buffer, sufficient_buffer
from tests.words import pipeline

BURSTS = [0.050, *[0.0] * 7]  # eight elements at once, every 50 ms


@pytest.mark.parametrize(
    ("times", "model", "buffer", "seconds"),
    [
        ([0.004], 0.010, 0, 0.014),  # without a buffer, input and model alternate
        # The slow element is started when its predecessor is taken: the model works on that one in the meantime.
        (BURSTS, 0.008, 1, (0.050 + 7 * 0.008) / 8),
        (BURSTS, 0.008, 4, (0.050 + 4 * 0.008) / 8),
        (BURSTS, 0.008, 8, 0.008),
        (BURSTS, 0.002, None, 0.050 / 8),  # no buffer helps an input whose average rate is too low
    ],
)
def test_step_behind_a_buffer(times: list[float], model: float, buffer: int | None, seconds: float) -> None:
    assert buffered_step_seconds(times, model, buffer) == pytest.approx(seconds)


def test_bursts_need_a_buffer_of_their_size() -> None:
    assert sufficient_buffer(BURSTS, 0.008) == 8 and sufficient_buffer([0.010] * 4, 0.002) == 1


@given(
    st.lists(st.floats(0.0, 0.1), min_size=1, max_size=12).filter(lambda times: sum(times) > 0), st.floats(0.0001, 0.1)
)
def test_larger_buffer_is_never_slower_and_slower_part_is_the_limit(times: list[float], model: float) -> None:
    steps = [buffered_step_seconds(times, model, buffer) for buffer in (0, 1, 2, 4, 64, None)]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(steps))
    assert steps[-1] == pytest.approx(max(sum(times) / len(times), model))


@pytest.mark.parametrize(
    ("words", "options", "buffer"),
    [
        ("range | map | prefetch 1", {}, 1),
        ("range | map | prefetch AUTOTUNE", {}, None),
        ("range | prefetch 1 | map", {}, None),  # TensorFlow adds a prefetch at the end
        ("range | map", {}, None),
        ("range | map", {"experimental_optimization.inject_prefetch": False}, 0),
        ("range | map", {"autotune.enabled": False}, 0),
        ("range | map 2", {"autotune.enabled": False}, None),
        ("range | prefetch 2 | batch 4", {"autotune.enabled": False}, None),
    ],
)
def test_output_buffer_of_pipeline(words: str, options: dict[str, bool], buffer: int | None) -> None:
    assert output_buffer(pipeline(words, options=options)) == buffer
