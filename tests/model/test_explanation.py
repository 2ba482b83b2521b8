"""The cause that is named for given measurements of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.pipeline import Value
from pipetune.core.profile import Cause, ConsumerProfile
from pipetune.core.results import Interval
from pipetune.model.bottleneck import Explanation, explain
from pipetune.testing.words import parse

BURSTS = (0.050, *[0.0001] * 7)
TEXT = "range | map cpu=5ms | batch 1 | prefetch 1"


def explained(
    text: str,
    real: float | None,
    bound: float,
    alone: float,
    *,
    intervals: tuple[float, ...] = (),
    options: dict[str, Value] | None = None,
    bound_cpu: float | None = None,
    start: float = 0.0,
) -> Explanation | None:
    words = parse(text)
    share = None if real is None else Interval(1 - bound / real, 1 - bound / real, 1 - bound / real, 8)
    consumer = ConsumerProfile(
        "step", real, bound if real else None, alone, share, bound_cpu_seconds=bound_cpu, start_seconds=start
    )
    profile = replace(words.profile, consumer=consumer, intervals=intervals, input_cpu_seconds=0.9 * alone)
    pipeline = replace(words.pipeline, options=options or {})
    return explain(pipeline, profile, "n1", 2.0)


def cause(*args: object, **kwargs: object) -> Cause:
    found = explained(*args, **kwargs)  # type: ignore[arg-type]
    assert found is not None
    return found.cause


def test_slowest_operator_is_cause_if_input_is_slower_than_model() -> None:
    found = explained(TEXT, 0.010, 0.002, 0.010)
    assert found == Explanation(Cause.OPERATOR, "n1")


def test_python_is_cause_if_slowest_operator_runs_it() -> None:
    found = explained("range | map python cpu=5ms | batch 1", 0.010, 0.002, 0.010)
    assert found is not None and (found.cause, found.node) == (Cause.PYTHON, "n1")
    assert "Python" in found.sentence


def test_consumer_is_cause_if_step_takes_as_long_as_model() -> None:
    assert cause(TEXT, 0.0102, 0.010, 0.002) is Cause.CONSUMER


def test_start_of_epochs_is_cause_if_it_takes_most_of_the_wait() -> None:
    found = explained(TEXT, 0.013, 0.010, 0.0001, start=0.0025)
    assert found is not None and found.cause is Cause.START and "19 %" in found.sentence
    assert cause(TEXT, 0.020, 0.010, 0.018, start=0.002) is Cause.OPERATOR


def test_negligible_input_is_not_cause_of_noisy_step() -> None:
    assert cause(TEXT, 0.0182, 0.0170, 0.0006, bound_cpu=0.031) is Cause.CONSUMER
    # The cores are not the cause either if the input hardly uses them.
    assert cause(TEXT, 0.0300, 0.0170, 0.0030, bound_cpu=0.031) is Cause.OPERATOR


def test_buffer_is_cause_if_last_prefetch_is_too_small_for_bursts() -> None:
    found = explained(TEXT, 0.0133, 0.008, 0.0063, intervals=BURSTS)
    assert found is not None and (found.cause, found.node) == (Cause.BUFFER, "n3")
    assert "buffers 1; 8 would be enough" in found.sentence and "50 ms" in found.sentence


def test_buffer_is_not_cause_if_large_or_autotuned() -> None:
    for text in (TEXT.replace("prefetch 1", "prefetch 16"), TEXT.replace("prefetch 1", "prefetch AUTOTUNE")):
        assert cause(text, 0.0133, 0.008, 0.0063, intervals=BURSTS) is not Cause.BUFFER


def test_buffer_is_not_cause_for_regular_input() -> None:
    assert cause(TEXT, 0.0133, 0.008, 0.0063, intervals=(0.0063,) * 8) is not Cause.BUFFER


def test_missing_prefetch_is_cause() -> None:
    off: dict[str, Value] = {"autotune.enabled": False}
    assert cause("range | map cpu=5ms | batch 1", 0.014, 0.008, 0.006, options=off) is Cause.NO_PREFETCH


def test_shared_processors_are_cause() -> None:
    found = explained("range | map cpu=5ms | batch 1", 0.014, 0.008, 0.007, bound_cpu=0.010)
    assert found is not None and found.cause is Cause.PROCESSORS and "2 cores" in found.sentence
    assert cause("range | map cpu=5ms | batch 1", 0.014, 0.008, 0.007, bound_cpu=0.001) is Cause.OPERATOR


def test_operator_is_cause_if_only_input_is_measured() -> None:
    assert cause(TEXT, None, 0.0, 0.006) is Cause.OPERATOR


@pytest.mark.parametrize(("real", "bound", "alone"), [(0.1, 0.06, 0.05), (0.1, 0.06, 0.09), (0.1, 0.12, 0.2)])
def test_three_parts_sum_up_to_step(real: float, bound: float, alone: float) -> None:
    step = ConsumerProfile("step", real, bound, alone)
    parts = (step.model_seconds, step.input_wait_seconds, step.overlap_lost_seconds)
    assert sum(part or 0.0 for part in parts) == pytest.approx(real)
    assert all(part is not None and part >= 0 for part in parts)


def test_three_parts_by_definition() -> None:
    step = ConsumerProfile("step", 0.100, 0.060, 0.090)
    assert step.input_wait_seconds == pytest.approx(0.030)  # max(input, bound) - bound
    assert step.overlap_lost_seconds == pytest.approx(0.010)
    assert ConsumerProfile("none", input_seconds=0.1).input_wait_seconds is None
