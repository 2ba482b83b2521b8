"""The cause that is named for given measurements of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.profile import Cause, ConsumerProfile
from pipetune.core.results import Interval
from pipetune.model.bottleneck import Explanation, explain
from tests.words import parse

BURSTS = (0.050, *[0.0001] * 7)
TEXT = "range | map cpu=5ms | batch 1 | prefetch 1"


def explained(
    text: str, real: float | None, bound: float, alone: float, *, options: Any = None, **more: Any
) -> Explanation | None:
    """`more`: of the consumer, or the intervals between elements."""
    words, intervals = parse(text), more.pop("intervals", ())
    share = None if real is None else Interval(*[1 - bound / real] * 3, 8)
    consumer = ConsumerProfile("step", real, bound if real else None, alone, share, **more)
    profile = replace(words.profile, consumer=consumer, intervals=intervals, input_cpu_seconds=0.9 * alone)
    return explain(replace(words.pipeline, options=options or {}), profile, "n1", 2.0)


UNBUFFERED = "range | map cpu=5ms | batch 1"


@pytest.mark.parametrize(
    ("text", "step", "more", "cause", "sentence"),
    [
        (TEXT, (0.010, 0.002, 0.010), {}, Cause.OPERATOR, ""),
        (TEXT, (None, 0.0, 0.006), {}, Cause.OPERATOR, ""),  # only the input was measured
        ("range | map python cpu=5ms | batch 1", (0.010, 0.002, 0.010), {}, Cause.PYTHON, "Python"),
        # a step takes as long as the model, or the input is negligible beside a noisy step
        (TEXT, (0.0102, 0.010, 0.002), {}, Cause.CONSUMER, ""),
        (TEXT, (0.0182, 0.0170, 0.0006), {"bound_cpu_seconds": 0.031}, Cause.CONSUMER, ""),
        # the start of each epoch takes most of the wait, or less
        (TEXT, (0.013, 0.010, 0.0001), {"start_seconds": 0.0025}, Cause.START, "19 %"),
        (TEXT, (0.020, 0.010, 0.018), {"start_seconds": 0.002}, Cause.OPERATOR, ""),
        # the last prefetch is too small for bursts; not if it is large or autotuned, or the input is regular
        (TEXT, (0.0133, 0.008, 0.0063), {"intervals": BURSTS}, Cause.BUFFER, "buffers 1; 8 would be enough"),
        (TEXT, (0.0133, 0.008, 0.0063), {"intervals": BURSTS}, Cause.BUFFER, "50 ms"),
        (TEXT, (0.266, 0.16, 0.126), {"intervals": (0.9997, *[0.002] * 7)}, Cause.BUFFER, "up to 1 s for"),
        (f"{UNBUFFERED} | prefetch 16", (0.0133, 0.008, 0.0063), {"intervals": BURSTS}, Cause.OPERATOR, ""),
        (f"{UNBUFFERED} | prefetch AUTOTUNE", (0.0133, 0.008, 0.0063), {"intervals": BURSTS}, Cause.OPERATOR, ""),
        (TEXT, (0.0133, 0.008, 0.0063), {"intervals": (0.0063,) * 8}, Cause.OPERATOR, ""),
        (UNBUFFERED, (0.014, 0.008, 0.006), {"options": {"autotune.enabled": False}}, Cause.NO_PREFETCH, ""),
        # input and model share the cores; not if the model or the input hardly uses them
        (UNBUFFERED, (0.014, 0.008, 0.007), {"bound_cpu_seconds": 0.010}, Cause.PROCESSORS, "2 cores"),
        (UNBUFFERED, (1.4, 0.8, 0.7), {"bound_cpu_seconds": 1.0}, Cause.PROCESSORS, "need 1.63 s of CPU time"),
        (UNBUFFERED, (0.014, 0.008, 0.007), {"bound_cpu_seconds": 0.001}, Cause.OPERATOR, ""),
        (TEXT, (0.0300, 0.0170, 0.0030), {"bound_cpu_seconds": 0.031}, Cause.OPERATOR, ""),
    ],
)
def test_cause(
    text: str, step: tuple[float | None, float, float], more: dict[str, Any], cause: Cause, sentence: str
) -> None:
    found = explained(text, *step, **more)
    assert found is not None and found.cause is cause and sentence in found.sentence
    nodes = {Cause.OPERATOR: "n1", Cause.PYTHON: "n1", Cause.BUFFER: "n3"}
    assert found.node == nodes.get(cause)


@pytest.mark.parametrize(
    ("bound", "alone", "parts"),
    [
        (0.060, 0.090, (0.060, 0.030, 0.010)),  # of the wait: max(input, bound) - bound
        (0.060, 0.050, (0.060, 0.0, 0.040)),
        (0.120, 0.200, (0.100, 0.0, 0.0)),
    ],
)
def test_three_parts_of_a_step_of_100_ms(bound: float, alone: float, parts: tuple[float, float, float]) -> None:
    step = ConsumerProfile("step", 0.100, bound, alone)
    assert (step.model_seconds, step.input_wait_seconds, step.overlap_lost_seconds) == pytest.approx(parts)
    assert ConsumerProfile("none", input_seconds=alone).input_wait_seconds is None
