"""Advice on the consumer: only with figures that bear it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.measurement import Interval
from pipetune.core.profile import ConsumerProfile
from pipetune.model.consumer_advice import (
    CallGains,
    layers_in_maps,
    several_scheduled,
    several_steps,
    steps_are_small,
)
from pipetune.testing.words import read


@pytest.mark.parametrize(
    ("bound", "real", "small"),
    [
        (0.001, 0.0012, True),
        (0.0049, 0.009, True),
        (0.001, 0.0021, False),  # the input takes more than half of a step
        (0.006, 0.006, False),
        (None, 0.001, False),
        (0.001, None, False),
    ],
)
def test_which_steps_are_small(bound: float | None, real: float | None, small: bool) -> None:
    assert steps_are_small(ConsumerProfile("keras-fit", real_seconds=real, bound_seconds=bound)) is small


def test_under_a_strategy_larger_steps_count_as_small() -> None:
    consumer = ConsumerProfile("keras-fit", real_seconds=0.012, bound_seconds=0.01)
    assert not steps_are_small(consumer) and steps_are_small(consumer, under_a_strategy=True)


def gains(eight: float, thirty_two: float, *, more: float) -> CallGains:
    """The low ends of the intervals: of 8 and 32 steps in a call over one, and of 32 over 8."""

    def interval(low: float) -> Interval:
        return Interval(median=low + 0.1, low=low, high=low + 0.2, pairs=6)

    seconds = {1: 0.0014, 8: 0.0011, 32: 0.001}
    return CallGains(seconds, {8: interval(eight), 32: interval(thirty_two)}, interval(more))


@pytest.mark.parametrize(
    ("eight", "thirty_two", "more", "advised"),
    [
        (1.09, 1.09, 1.0, None),
        (0.9, 1.09, 1.1, None),
        (1.2, 1.3, 1.02, 8),  # not surely more
        (1.2, 1.1, 0.9, 8),
        (1.2, 1.3, 1.03, 32),
        (1.05, 1.2, 1.01, 32),  # only that is shown to gain a tenth
    ],
)
def test_the_fewest_steps_in_a_call_that_more_do_not_surely_better(
    eight: float, thirty_two: float, more: float, advised: int | None
) -> None:
    measured = gains(eight, thirty_two, more=more)
    assert measured.advised == advised
    found = several_steps(measured, file="a.py", line=9)
    assert (found is None) is (advised is None)
    assert found is None or f"steps_per_execution={advised};" in found.hint


@pytest.mark.mission("C5.fit")
def test_both_numbers_are_told_with_their_intervals_and_what_is_around_a_call() -> None:
    found = several_steps(gains(1.3, 1.4, more=1.05), file="a.py", line=9)
    assert found is not None and (found.code, found.file, found.line) == ("steps-per-execution", "a.py", 9)
    assert "a step takes 1.4 ms, 1.1 ms where 8 are one call (1.40x, 1.30 to 1.50, 6 pairs) and 1 ms" in found.message
    assert "where 32 are one call (1.50x, 1.40 to 1.60, 6 pairs). The rest is what Keras does" in found.message
    under = several_steps(gains(1.3, 1.4, more=1.05), strategy="MirroredStrategy", file="a.py", line=9)
    assert under is not None and "what Keras and MirroredStrategy do around each call" in under.message


@pytest.mark.mission("C5.coordinator")
def test_what_a_coordinator_schedules_is_told_where_it_is_scheduled() -> None:
    assert several_scheduled(gains(1.0, 1.05, more=1.05), workers=2, file="a.py", line=9) is None
    found = several_scheduled(gains(1.3, 1.4, more=1.0), workers=2, file="a.py", line=9)
    assert found is not None and (found.code, found.file, found.line) == ("steps-per-schedule", "a.py", 9)
    assert "a step of each of 2 workers takes 1.4 ms, 1.1 ms where 8 are one call (1.40x, 1.30" in found.message
    assert "what the coordinator does around each call" in found.message and "for _ in tf.range(8)" in found.hint
    alone = several_scheduled(gains(1.3, 1.4, more=1.05), workers=1, by_fit=True, file="a.py", line=9)
    assert alone is not None and alone.code == "steps-per-execution" and "a step takes 1.4 ms" in alone.message
    assert "steps_per_execution=32;" in alone.hint


_DRAWING = "writes=random_flip/seed_generator_state python_random"

SILENT = [
    "range 9 | map! | batch 2",
    "range 9 | map! random | batch 2",
    "range 9 | map! writes=counter | batch 2",
    "range 9 | map! variable=seed_generator_state | batch 2",  # it is read and never changed
    f"range 9 | map {_DRAWING} cpu=1us | map! | batch 2",  # a small part of the input
    f"range 9 | filter! {_DRAWING} | batch 2",
]


@pytest.mark.parametrize("words", SILENT)
def test_no_layer_no_advice(words: str) -> None:
    described = read(words)
    assert list(layers_in_maps(described.pipeline, replace(described.profile, input_cpu_seconds=0.03))) == []


def test_a_keras_layer_in_a_map_is_named_with_what_it_takes() -> None:
    described = read(f"range 9 | map cpu=3ms {_DRAWING} | batch 2")
    (found,) = layers_in_maps(described.pipeline, replace(described.profile, input_cpu_seconds=0.010))
    assert (found.code, found.file, found.line) == ("keras-layer-in-map", "train.py", 2)
    assert "seed_generator_state" in found.message and "60%" in found.message
    assert list(layers_in_maps(described.pipeline, described.profile)) == []  # nobody measured the input
