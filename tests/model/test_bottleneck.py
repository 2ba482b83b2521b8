"""The thresholds of the verdict, and the sentences of the diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.machine import Machine
from pipetune.core.profile import ConsumerProfile, Diagnosis, Verdict
from pipetune.core.results import Interval, Pause
from pipetune.core.settings import Settings
from pipetune.model.bottleneck import diagnose, most_saved_share, verdict_of
from tests.words import parse

MACHINE = Machine(2.0, 8, 2, 1, 1, 1, "cpu", "Linux", "3.11", "2.21", "3", (), "cpu")
TEXT = "list_files shuffle=False | interleave cpu=1ms | map random cpu=6ms | shuffle 100 | batch 8 cpu=1ms"


def share(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 8)


@pytest.mark.parametrize(
    ("pause", "sentence"),
    [
        (Pause(300, 2.0), " It pauses for 2 s after every 300 elements; 64 prefetched elements bridge a pause."),
        (Pause(3000, 200.0), " It pauses for 200 s after every 3,000 elements."),
        (Pause(3000, 2.0), ""),  # 0.7 ms of a step of 100 ms
        (None, ""),
    ],
)
def test_diagnosis_describes_the_pauses_of_an_input_in_bursts(pause: Pause | None, sentence: str) -> None:
    assert diagnosed(pause=pause).bottleneck_sentence == diagnosed().bottleneck_sentence + sentence


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.00, 0.04, Verdict.NOT_INPUT_BOUND),
        (0.15, 0.30, Verdict.INPUT_BOUND),
        (0.01, 0.50, Verdict.UNDETERMINED),
        (0.05, 0.20, Verdict.BALANCED),
        (0.00, 0.05, Verdict.BALANCED),
    ],
)
def test_verdict_is_undetermined_only_where_it_decides_nothing(low: float, high: float, verdict: Verdict) -> None:
    assert verdict_of(share(low, high)) is verdict


def diagnosed(text: str = TEXT, *, step_seconds: float | None = None, **changes: Any) -> Diagnosis:
    """`changes`: of the consumer, or of the profile."""
    words, own = parse(text), {name: changes.pop(name) for name in ("operators", "pause") if name in changes}
    consumer = replace(ConsumerProfile("keras-fit", 0.100, 0.060, 0.050, share(0.35, 0.45)), **changes)
    profile = replace(words.profile, consumer=consumer, **own)
    return diagnose(words.pipeline, profile, MACHINE, Settings(step_time_seconds=step_seconds))


def test_diagnosis_names_operator_line_and_possible_savings() -> None:
    found = diagnosed()
    assert found.verdict is Verdict.INPUT_BOUND
    assert found.bottleneck == "n2"
    assert "map (train.py:3)" in found.bottleneck_sentence
    assert found.most_saved_share == pytest.approx(0.45)
    assert found.wait_seconds == pytest.approx(0.04)
    assert "40 %" in found.sentence
    assert found.input_rate_bound is not None
    assert found.sequential_segments and "n2" in found.sequential_segments[0]


UNMEASURED = {"wait_share": None, "bound_seconds": None, "why": "the loop runs inside a tf.function"}


@pytest.mark.parametrize(
    ("changes", "verdict", "says", "most_saved"),
    [
        (UNMEASURED, Verdict.UNDETERMINED, ["inside a tf.function"], None),
        # on a busy machine, medians of steps had given 40 % next to a wait of 0 % to 15 %
        ({"wait_share": share(0.0, 0.15)}, None, ["(0 % to 15 %)", "at most 15 % of a step"], 0.15),
        ({"wait_share": share(0.0, 0.02)}, Verdict.NOT_INPUT_BOUND, ["not hold training back"], 0.02),
    ],
)
def test_diagnosis_of_a_wait(
    changes: dict[str, Any], verdict: Verdict | None, says: list[str], most_saved: float | None
) -> None:
    found = diagnosed(**changes)
    assert verdict in (None, found.verdict) and all(words in found.sentence for words in says)
    assert found.most_saved_share == (most_saved and pytest.approx(most_saved))
    assert changes != UNMEASURED or found.wait_seconds is None


def test_faster_model_makes_segments_the_limit() -> None:
    assert diagnosed(step_seconds=0.2).sequential_segments == ()
    assert diagnosed(step_seconds=0.001).sequential_segments != ()


def test_possible_savings_are_never_negative() -> None:
    profile = replace(parse(TEXT).profile, consumer=ConsumerProfile("keras-fit", 0.05, 0.060, 0.050))
    assert most_saved_share(profile) == 0.0


def test_no_bottleneck_without_costs() -> None:
    found = diagnosed(operators=())
    assert found.bottleneck is None and found.bottleneck_sentence == "" and found.input_rate_bound is None


def test_parallel_and_core_bounds_are_distinguished() -> None:
    busy, threads = "from_tensors cpu=0us | map 16 cpu=6ms", "from_tensors cpu=0us | map 1 cpu=6ms | map 1 cpu=1ms"
    assert "all of the 2 cores" in diagnosed(busy).bottleneck_sentence
    assert "parallel calls are busy" in diagnosed(threads).bottleneck_sentence
