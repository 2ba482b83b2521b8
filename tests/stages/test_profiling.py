"""The input wait of training is limited by the time of the input alone."""

from __future__ import annotations

import pytest

from pipetune.core.profile import CostSource
from pipetune.core.results import Interval
from pipetune.measure.differencing import Cost, DifferencingResult
from pipetune.measure.stall import Stall
from pipetune.stages.profiling import _limited, _slowdown, with_differences
from tests.words import parse

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
    found = _limited(Interval(*measured, 8, "t"), input_share=most / 4, slowdown=2.0, start_share=most / 2)
    assert (found.median, found.low, found.high) == bounded
    assert ("times what the input takes alone" in found.method) is (bounded != measured)


@pytest.mark.parametrize(
    ("ratios", "high"), [((1.2, 1.15, 1.3, 1.25), 0.8), ((1.2, 1.15, 1.3, 1.02), 0.0), ((0.99, 1.0, 1.01, 1.0), 0.0)]
)
def test_a_longer_step_on_a_repeated_batch_says_nothing_of_the_wait(ratios: tuple[float, ...], high: float) -> None:
    nothing = Interval(0.0, 0.0, 0.0, 4, "t")
    found = _limited(nothing, input_share=0.4, slowdown=2.0, start_share=0.0, ratios=ratios)
    assert (found.median, found.low, found.high) == (0.0, 0.0, pytest.approx(high))


@pytest.mark.parametrize(("cpu_seconds", "slowdown"), [(0.0, 2.0), (0.2, 2.5), (0.4, 3.0), (0.5, 3.0)])
def test_input_may_get_slower_beside_a_model_that_needs_its_cores(cpu_seconds: float, slowdown: float) -> None:
    stall = Stall(0.3, 0.2, Interval(0.3, 0.2, 0.4, 8, "t"), steps=10, bound_cpu_seconds=cpu_seconds)
    assert _slowdown(stall, cores=2.0) == pytest.approx(slowdown)


def _cost(cpu: tuple[float, float, float], waiting: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Cost:
    wall = tuple(one + other for one, other in zip(cpu, waiting, strict=True))
    return Cost(*(Interval(*values, 8, "t") for values in (cpu, wall, waiting)))


@pytest.mark.parametrize(
    ("node", "cost", "seconds", "source"),
    [
        # 0 to 500 us of 20 ms: the 90 us of the runtime's model are in it
        ("n2", _cost((0.0, 0.0, 500e-6)), 90e-6, CostSource.RUNTIME_MODEL),
        ("n2", _cost((80e-6, 60e-6, 100e-6)), 80e-6, CostSource.PREFIX_DIFFERENCING),
        # what a function takes besides its kernels the model only shares out
        ("n1", _cost((0.0, 0.0, 50e-6)), 0.0, CostSource.PREFIX_DIFFERENCING),
        ("n1", _cost((0.0, 0.0, 900e-6)), 600e-6, CostSource.RUNTIME_MODEL),
        # it waits, which the model takes for work
        ("n2", _cost((0.0, 0.0, 500e-6), (2e-3, 1.9e-3, 2.1e-3)), 0.0, CostSource.PREFIX_DIFFERENCING),
    ],
)
def test_cost_lost_in_the_noise_of_differences_is_that_of_the_runtime(
    node: str, cost: Cost, seconds: float, source: CostSource
) -> None:
    words = parse("range cpu=1us | map cpu=600us | batch 32 cpu=90us")
    found = with_differences(words.profile, words.pipeline, DifferencingResult({node: cost}, {}, 8)).operator(node)
    assert found is not None and found.cpu_seconds == pytest.approx(seconds) and found.cost_source is source
