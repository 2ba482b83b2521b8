"""The verdict and its thresholds, the cause that is named, a finite buffer, and what-if scenarios."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.edits import Insert, apply_edits
from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, Pause
from pipetune.core.profile import Cause, ConsumerProfile, Diagnosis, Verdict
from pipetune.core.results import Scenario
from pipetune.core.settings import Settings
from pipetune.core.storage import FileUse
from pipetune.model.bottleneck import (
    Explanation,
    buffered_step_seconds,
    diagnose,
    explain,
    most_saved_share,
    output_buffer,
    sufficient_buffer,
    verdict_of,
    what_if,
)
from tests.words import STATELESS, parse, pipeline

MACHINE = Machine(2.0, 8, 2, 1, 1, 1, "cpu", "Linux", "3.11", "2.21", "3", (), "cpu")
TEXT = "list_files shuffle=False | interleave cpu=1ms | map random cpu=6ms | shuffle 100 | batch 8 cpu=1ms"


def share(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 8)


@pytest.mark.parametrize(("pause", "sentence"), [
    (Pause(300, 2.0), " It pauses for 2 s after every 300 elements; 64 prefetched elements bridge a pause."),
    (Pause(3000, 200.0), " It pauses for 200 s after every 3,000 elements."),
    (Pause(3000, 2.0), ""),  # 0.7 ms of a step of 100 ms
])  # fmt: skip
def test_diagnosis_describes_the_pauses_of_an_input_in_bursts(pause: Pause, sentence: str) -> None:
    assert diagnosed(pause=pause).bottleneck_sentence == diagnosed().bottleneck_sentence + sentence


@pytest.mark.parametrize(("low", "high", "verdict"), [
    (0.00, 0.04, Verdict.NOT_INPUT_BOUND),
    (0.15, 0.30, Verdict.INPUT_BOUND),
    (0.01, 0.50, Verdict.UNDETERMINED),
    (0.05, 0.20, Verdict.BALANCED),
    (0.00, 0.05, Verdict.BALANCED),
])  # fmt: skip
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


@pytest.mark.parametrize(("changes", "verdict", "says", "most_saved"), [
    (UNMEASURED, Verdict.UNDETERMINED, ["inside a tf.function"], None),
    # on a busy machine, medians of steps had given 40 % next to a wait of 0 % to 15 %
    ({"wait_share": share(0.0, 0.15)}, None, ["(0 % to 15 %)", "at most 15 % of a step"], 0.15),
    ({"wait_share": share(0.0, 0.02)}, Verdict.NOT_INPUT_BOUND, ["not hold training back"], 0.02),
])  # fmt: skip
def test_diagnosis_of_a_wait(changes, verdict, says, most_saved) -> None:
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


@pytest.mark.parametrize(("line", "named"), [(7, "map of g (train.py:7)"), (6, "map (train.py:7)")])
def test_of_several_maps_on_a_line_the_function_says_which_is_meant(line: int, named: str) -> None:
    words = parse("from_tensors cpu=0us | map cpu=1ms | map cpu=6ms")
    nodes = [
        replace(one, location=replace(one.location, line=at), function=replace(STATELESS, name=name))
        for one, at, name in zip(words.pipeline, (1, line, 7), "sfg", strict=True)
    ]
    found = diagnose(replace(words.pipeline, nodes=tuple(nodes)), words.profile, MACHINE, Settings())
    assert named in found.bottleneck_sentence


LOADS = (0.050, *[0.0001] * 7)
BUFFERED = "range | map cpu=5ms | batch 1 | prefetch 1"


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


@pytest.mark.parametrize(("text", "step", "more", "cause", "sentence"), [
    (BUFFERED, (0.010, 0.002, 0.010), {}, Cause.OPERATOR, ""),
    (BUFFERED, (None, 0.0, 0.006), {}, Cause.OPERATOR, ""),  # only the input was measured
    ("range | map python cpu=5ms | batch 1", (0.010, 0.002, 0.010), {}, Cause.PYTHON, "Python"),
    # a step takes as long as the model, or the input is negligible beside a noisy step
    (BUFFERED, (0.0102, 0.010, 0.002), {}, Cause.CONSUMER, ""),
    (BUFFERED, (0.0182, 0.0170, 0.0006), {"bound_cpu_seconds": 0.031}, Cause.CONSUMER, ""),
    # the start of each epoch takes most of the wait, or less
    (BUFFERED, (0.013, 0.010, 0.0001), {"start_seconds": 0.0025}, Cause.START, "19 %"),
    (BUFFERED, (0.020, 0.010, 0.018), {"start_seconds": 0.002}, Cause.OPERATOR, ""),
    # the last prefetch is too small for bursts; not if it is large or autotuned, or the input is regular
    (BUFFERED, (0.0133, 0.008, 0.0063), {"intervals": LOADS}, Cause.BUFFER, "buffers 1; 8 would be enough"),
    (BUFFERED, (0.0133, 0.008, 0.0063), {"intervals": LOADS}, Cause.BUFFER, "50 ms"),
    (BUFFERED, (0.266, 0.16, 0.126), {"intervals": (0.9997, *[0.002] * 7)}, Cause.BUFFER, "up to 1 s for"),
    (f"{UNBUFFERED} | prefetch 16", (0.0133, 0.008, 0.0063), {"intervals": LOADS}, Cause.OPERATOR, ""),
    (f"{UNBUFFERED} | prefetch AUTOTUNE", (0.0133, 0.008, 0.0063), {"intervals": LOADS}, Cause.OPERATOR, ""),
    (BUFFERED, (0.0133, 0.008, 0.0063), {"intervals": (0.0063,) * 8}, Cause.OPERATOR, ""),
    (UNBUFFERED, (0.014, 0.008, 0.006), {"options": {"autotune.enabled": False}}, Cause.NO_PREFETCH, ""),
    # input and model share the cores; not if the model or the input hardly uses them
    (UNBUFFERED, (0.014, 0.008, 0.007), {"bound_cpu_seconds": 0.010}, Cause.PROCESSORS, "2 cores"),
    (UNBUFFERED, (1.4, 0.8, 0.7), {"bound_cpu_seconds": 1.0}, Cause.PROCESSORS, "need 1.63 s of CPU time"),
    (UNBUFFERED, (0.014, 0.008, 0.007), {"bound_cpu_seconds": 0.001}, Cause.OPERATOR, ""),
    (BUFFERED, (0.0300, 0.0170, 0.0030), {"bound_cpu_seconds": 0.031}, Cause.OPERATOR, ""),
])  # fmt: skip
def test_cause(text, step, more, cause, sentence) -> None:
    found = explained(text, *step, **more)
    assert found is not None and found.cause is cause and sentence in found.sentence
    nodes = {Cause.OPERATOR: "n1", Cause.PYTHON: "n1", Cause.BUFFER: "n3"}
    assert found.node == nodes.get(cause)


@pytest.mark.parametrize(("bound", "alone", "parts"), [
    (0.060, 0.090, (0.060, 0.030, 0.010)),  # of the wait: max(input, bound) - bound
    (0.060, 0.050, (0.060, 0.0, 0.040)),
    (0.120, 0.200, (0.100, 0.0, 0.0)),
])  # fmt: skip
def test_three_parts_of_a_step_of_100_ms(bound: float, alone: float, parts: tuple[float, float, float]) -> None:
    step = ConsumerProfile("step", 0.100, bound, alone)
    assert (step.model_seconds, step.input_wait_seconds, step.overlap_lost_seconds) == pytest.approx(parts)
    assert ConsumerProfile("none", input_seconds=alone).input_wait_seconds is None


# Per element: 8 ms of a map that runs on any number of cores, 1 ms of a serial map downstream.
TWO_MAPS = "range cpu=0us | map AUTOTUNE cpu=8ms | map random cpu=1ms | prefetch 2 cpu=0us"


def table(text: str = TWO_MAPS, *, cores: float = 2, **more: object) -> dict[str, Scenario]:
    words = parse(text)
    return {row.name: row for row in what_if(words.pipeline, words.profile, cores, **more)}  # type: ignore[arg-type]


STEP = {"step_seconds": 0.010}


@pytest.mark.parametrize(("options", "scenario", "expected"), [
    # cores help until a thread is the limit
    ({}, "as it is", {"input_rate": 2 / 9e-3, "bound": "cores", "node": "n1"}),
    ({}, "2 times the cores", {"input_rate": 4 / 9e-3}),
    ({}, "4 times the cores", {"input_rate": 8 / 9e-3}),
    ({"cores": 8}, "2 times the cores", {"input_rate": 1000, "node": "n2"}),
    # a faster model helps until the input is the limit
    (STEP, "as it is", {"training_rate": 100, "binds": "model"}),
    (STEP, "a training step 2 times as fast", {"training_rate": 200}),
    (STEP, "a training step 10 times as fast", {"training_rate": 2 / 9e-3, "binds": "input"}),
    # replicas share one input
    (STEP, "2 replicas on this host", {"training_rate": 100}),
    (STEP, "4 replicas on this host", {"training_rate": 2 / 9e-3 / 4, "binds": "input"}),
])  # fmt: skip
def test_scenario(options: dict[str, float], scenario: str, expected: dict[str, object]) -> None:
    row = table(**options)[scenario]  # type: ignore[arg-type]
    assert {name: getattr(row, name) for name in expected} == {
        name: pytest.approx(value) if isinstance(value, float | int) else value for name, value in expected.items()
    }


def test_storage_scenarios_require_known_bandwidth() -> None:
    text = "TFRecordDataset bytes=100k cpu=0us | map AUTOTUNE cpu=1ms | prefetch 2 cpu=0us"
    assert not any("storage" in name for name in table(text))
    rows = table(text, storage_bytes_per_second=50e6)
    assert rows["as it is"].input_rate == pytest.approx(500)
    assert rows["as it is"].bound == "storage"
    assert rows["storage 4 times as fast"].input_rate == pytest.approx(2000, rel=0.01)


def test_memory_scenario_uses_pipelines_that_need_more_memory() -> None:
    rows = table()
    assert rows["twice the memory"].input_rate == rows["as it is"].input_rate
    cache = Insert("n1", "cache", "cache@n1", {"filename": ""})
    rows = table(larger_memory_pipelines=[apply_edits(parse(TWO_MAPS).pipeline, [cache])])
    assert rows["twice the memory"].input_rate == pytest.approx(1000, rel=0.01)
    assert rows["twice the memory"].node == "n2"


@pytest.mark.parametrize(("text", "why"), [
    ("range | map python", "map runs Python code"),
    ("from_generator | batch 2", "from_generator runs Python code"),
    ("range | opaque | batch 2", "does not know the operator"),
])  # fmt: skip
def test_unpredictable_pipeline_has_reason(text: str, why: str) -> None:
    (row,) = table(text).values()
    assert why in row.why
    assert row.input_rate is None and row.training_rate is None
    assert not table(f"{text} | cache | map cpu=1ms")["as it is"].why  # it does not run in later epochs


def test_remote_storage_is_unpredictable_unless_cached() -> None:
    for text, known in (("TFRecordDataset | map cpu=1ms", False), ("TFRecordDataset | cache | map cpu=1ms", True)):
        words = parse(text)
        profile = replace(words.profile, files=FileUse(remote=("gs",), remote_files=3))
        row = what_if(words.pipeline, profile, 2)[0]
        assert (row.input_rate is not None) is known
        assert known or "remote storage (gs://)" in row.why


BURSTS = [0.050, *[0.0] * 7]  # eight elements at once, every 50 ms


@pytest.mark.parametrize(("times", "model", "buffer", "seconds"), [
    ([0.004], 0.010, 0, 0.014),  # without a buffer, input and model alternate
    # The slow element is started when its predecessor is taken: the model works on that one in the meantime.
    (BURSTS, 0.008, 1, (0.050 + 7 * 0.008) / 8),
    (BURSTS, 0.008, 4, (0.050 + 4 * 0.008) / 8),
    (BURSTS, 0.008, 8, 0.008),
    (BURSTS, 0.002, None, 0.050 / 8),  # no buffer helps an input whose average rate is too low
])  # fmt: skip
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


@pytest.mark.parametrize(("words", "options", "buffer"), [
    ("range | map | prefetch 1", {}, 1),
    ("range | map | prefetch AUTOTUNE", {}, None),
    ("range | prefetch 1 | map", {}, None),  # TensorFlow adds a prefetch at the end
    ("range | map", {}, None),
    ("range | map", {"experimental_optimization.inject_prefetch": False}, 0),
    ("range | map", {"autotune.enabled": False}, 0),
    ("range | map 2", {"autotune.enabled": False}, None),
    ("range | prefetch 2 | batch 4", {"autotune.enabled": False}, None),
])  # fmt: skip
def test_output_buffer_of_pipeline(words: str, options: dict[str, bool], buffer: int | None) -> None:
    assert output_buffer(pipeline(words, options=options)) == buffer
