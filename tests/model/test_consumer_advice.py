"""Advice on the consumer: only with figures that bear it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.measurement import Interval
from pipetune.core.profile import ConsumerProfile
from pipetune.model.consumer_advice import layers_in_maps, several_steps, steps_are_small
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


def test_several_steps_in_a_call_are_advised_where_a_tenth_is_sure() -> None:
    def advice(low: float) -> object:
        gain = Interval(median=1.4, low=low, high=1.6, pairs=6)
        return several_steps(gain, one_seconds=0.0014, several_seconds=0.001, file="train.py", line=9)

    assert advice(1.09) is None
    found = several_steps(Interval(1.4, 1.3, 1.6, 6), one_seconds=0.0014, several_seconds=0.001, file="a.py", line=9)
    assert found is not None and (found.code, found.file, found.line) == ("steps-per-execution", "a.py", 9)
    assert "1.4 ms, and 1 ms" in found.message and "1.40x (1.30 to 1.60, 6 pairs)" in found.message
    assert "steps_per_execution=16" in found.hint


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
