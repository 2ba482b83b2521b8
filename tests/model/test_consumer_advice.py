"""Advice on the consumer: only where the measurements support it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.measurement import Interval
from pipetune.core.profile import ConsumerProfile, Finding, Profile
from pipetune.lint.consumer_advice import (
    CallGains,
    advise_steps_per_execution,
    advise_steps_per_schedule,
    layers_in_maps,
    steps_are_small,
    wait_between_epochs,
)
from tests.lint.uses import use
from tests.words import parse


@pytest.mark.parametrize(("bound", "real", "strategy", "small"), [
    (0.0049, 0.009, False, True),
    (0.001, 0.0021, False, False),  # the input takes more than half of a step
    (0.006, 0.006, False, False),
    (None, 0.001, False, False),
    (0.001, None, False, False),
    (0.01, 0.012, False, False),
    (0.01, 0.012, True, True),
])  # fmt: skip
def test_small_steps(bound: float | None, real: float | None, strategy: bool, small: bool) -> None:
    consumer = ConsumerProfile("keras-fit", real_seconds=real, bound_seconds=bound)
    assert steps_are_small(consumer, under_a_strategy=strategy) is small


def gains(*lows: float) -> CallGains:
    """Gains with these lower ends: 8 and 32 steps per call over one, and 32 over 8."""
    eight, thirty_two, more = (Interval(median=low + 0.1, low=low, high=low + 0.2, pairs=6) for low in lows)
    return CallGains({1: 0.0014, 8: 0.0011, 32: 0.001}, {8: eight, 32: thirty_two}, more)


@pytest.mark.parametrize(("eight", "thirty_two", "more", "advised"), [
    (1.09, 1.09, 1.0, None),
    (1.2, 1.3, 1.02, 8),  # 32 is not significantly faster than 8
    (1.2, 1.3, 1.03, 32),
    (1.05, 1.2, 1.01, 32),  # only 32 gains at least 10 %
])  # fmt: skip
def test_smallest_sufficient_steps_per_call_are_advised(eight, thirty_two, more, advised) -> None:
    measured = gains(eight, thirty_two, more)
    assert measured.advised == advised
    found = advise_steps_per_execution(measured, file="a.py", line=9)
    assert (found is None) is (advised is None)
    assert found is None or f"steps_per_execution={advised};" in found.hint


@pytest.mark.mission("C5.fit")
def test_advice_has_both_gains_with_intervals_and_reason() -> None:
    found = advise_steps_per_execution(gains(1.3, 1.4, 1.05), file="a.py", line=9)
    assert found is not None and (found.code, found.file, found.line) == ("steps-per-execution", "a.py", 9)
    assert "a step takes 1.4 ms, 1.1 ms with 8 steps per call (1.40x, 1.30 to 1.50, 6 pairs) and 1 ms" in found.message
    says = "with 32 steps per call (1.50x, 1.40 to 1.60, 6 pairs). The difference is the work that Keras does"
    assert says in found.message
    under = advise_steps_per_execution(gains(1.3, 1.4, 1.05), strategy="MirroredStrategy", file="a.py", line=9)
    assert under is not None and "the work that Keras and MirroredStrategy do around each call" in under.message


@pytest.mark.mission("C5.coordinator")
def test_advice_for_coordinator_points_to_schedule_call() -> None:
    assert advise_steps_per_schedule(gains(1.0, 1.05, 1.05), workers=2, file="a.py", line=9) is None
    found = advise_steps_per_schedule(gains(1.3, 1.4, 1.0), workers=2, file="a.py", line=9)
    assert found is not None and (found.code, found.file, found.line) == ("steps-per-schedule", "a.py", 9)
    assert "a step of each of 2 workers takes 1.4 ms, 1.1 ms with 8 steps per call (1.40x, 1.30" in found.message
    assert "the work that the coordinator does around each call" in found.message
    assert "for _ in tf.range(8)" in found.hint
    alone = advise_steps_per_schedule(gains(1.3, 1.4, 1.05), workers=1, by_fit=True, file="a.py", line=9)
    assert alone is not None and alone.code == "steps-per-execution" and "a step takes 1.4 ms" in alone.message
    assert "steps_per_execution=32;" in alone.hint


ROWS = "range elements=10000 | batch 10"  # 1,000 batches


def wait(
    text: str, step: float | None, *, epochs: int = 5, steps: int | None = None, by_fit: bool = True, **more: Any
) -> Finding | None:
    profile = Profile((), ConsumerProfile("keras-fit", real_seconds=step), cardinality=more.pop("counts", None))
    pipeline = use(text, **more).pipeline
    return wait_between_epochs(pipeline, profile, epochs=epochs, steps=steps, by_fit=by_fit, file="a.py", line=9)


@pytest.mark.parametrize(("text", "step", "more", "says"), [
    (ROWS, 0.0028, {}, "fit(dataset.repeat(), steps_per_epoch=len(dataset))"),
    (ROWS, None, {}, "steps_per_epoch=len(dataset)"),
    (ROWS, 0.0028, {"steps": 300}, "steps_per_epoch=300)"),  # a new iterator in the fourth epoch
    (f"{ROWS} | filter", 0.0028, {"counts": {"n2": 500}}, "steps_per_epoch=500"),
    (f"{ROWS} | filter", 0.0028, {}, "steps_per_epoch=..."),
    (ROWS, 0.0028, {"by_fit": False}, "iter(dataset.repeat()), len(dataset) steps each"),
])  # fmt: skip
def test_wait_between_epochs(text: str, step: float | None, more: Any, says: str) -> None:
    found = wait(text, step, **more)
    assert found is not None and (found.file, found.line) == ("a.py", 9)
    assert says in found.hint


@pytest.mark.parametrize(("text", "step", "more"), [
    (f"{ROWS} | repeat", 0.0028, {"steps": 1000}),  # one iterator
    (ROWS, 0.0028, {"epochs": 1}),
    (ROWS, 0.0028, {"steps": 200}),  # all five epochs end with the data
    (ROWS, 0.0028, {"options": {"autotune.enabled": False}}),
    (ROWS, 0.0001, {}),
    (ROWS, 1.5, {}),  # 60 s in 25 minutes
])  # fmt: skip
def test_no_wait_between_epochs(text: str, step: float | None, more: Any) -> None:
    assert wait(text, step, **more) is None


_DRAWING = "writes=random_flip/seed_generator_state python_random"
SILENT = [
    "range 9 | map! | batch 2",
    "range 9 | map! random | batch 2",
    "range 9 | map! writes=counter | batch 2",
    "range 9 | map! variable=seed_generator_state | batch 2",  # read only
    f"range 9 | map {_DRAWING} cpu=1us | map! | batch 2",  # a small part of the input
    f"range 9 | filter! {_DRAWING} | batch 2",
]


@pytest.mark.parametrize("words", SILENT)
def test_no_advice_without_random_layer(words: str) -> None:
    described = parse(words)
    assert list(layers_in_maps(described.pipeline, replace(described.profile, input_cpu_seconds=0.03))) == []


def test_keras_layer_in_map_is_named_with_its_share() -> None:
    described = parse(f"range 9 | map cpu=3ms {_DRAWING} | batch 2")
    (found,) = layers_in_maps(described.pipeline, replace(described.profile, input_cpu_seconds=0.010))
    assert (found.code, found.file, found.line) == ("keras-layer-in-map", "train.py", 2)
    assert "seed_generator_state" in found.message and "60 %" in found.message
    assert list(layers_in_maps(described.pipeline, described.profile)) == []  # the input was not measured
