"""The segment model: closed forms, TensorFlow's own optimizations, caches, cores, overheads; the knee of a curve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core import edits
from pipetune.core.edits import Insert, Move, SetArgument, apply_edits
from pipetune.core.element_counts import element_bytes
from pipetune.core.functions import FunctionSplit, FunctionVariant, SplitPosition
from pipetune.core.machine import CallCost, Overheads
from pipetune.core.pipeline import AUTOTUNE, Pipeline, Value
from pipetune.core.profile import Profile, with_part_costs
from pipetune.core.storage import FileUse, Sweep, SweepLevel, SweepReader
from pipetune.model.throughput import Bound, ThroughputPrediction, predict, predict_examples, sequential_segments
from tests.words import DescribedPipeline, parse

MANY = 64.0
OFF: dict[str, Value] = {"experimental_optimization.apply_default_optimizations": False}


def prediction(
    text: str, *, cores: float = MANY, defaults_on: bool = False, options: dict[str, Value] = OFF
) -> ThroughputPrediction:
    words = parse(text, options={} if defaults_on else options)
    return predict(words.pipeline, words.profile, cores)


def microseconds(pipeline: Pipeline, profile: Profile, cores: float) -> float:
    """The predicted time of an element without TensorFlow's default optimizations."""
    return 1e6 * predict(replace(pipeline, options=OFF), profile, cores).seconds


def with_operator(profile: Profile, node: str, **values: Any) -> Profile:
    """The profile with other measurements of one operator."""
    operators = tuple(replace(one, **values) if one.node == node else one for one in profile.operators)
    return replace(profile, operators=operators)


# tf.data (Murray et al., VLDB 2021), section 3.2: reading an element takes 5 ms, transforming it 2 ms,
# batching ten of them 1 ms.
PAPER = "range cpu=0us | interleave {reads} cycle_length=2 cpu=5ms | map {maps} cpu=2ms | batch 10 cpu=1ms"


@pytest.mark.mission("A1.sum-maximum")
@pytest.mark.parametrize(("text", "milliseconds", "bound"), [
    (PAPER.format(reads="None", maps="None"), 71, Bound.SEGMENT),
    (PAPER.format(reads="2", maps="2") + " | prefetch 1", 25, Bound.PARALLEL),
], ids=["sequential: the sum", "parallel: the maximum"])  # fmt: skip
def test_pipeline_of_paper(text: str, milliseconds: float, bound: Bound) -> None:
    found = prediction(text)
    assert (1000 * found.seconds, found.bound) == (pytest.approx(milliseconds), bound)
    assert found.nodes == ("n1",) if bound is Bound.PARALLEL else found.bottleneck == "n1"


@settings(max_examples=30)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_sequential_time_is_sum_and_pipelined_time_is_maximum(costs: list[int], data: st.DataObject) -> None:
    serial = "from_tensors cpu=0us | " + " | ".join(f"map cpu={cost}ms" for cost in costs)
    assert 1000 * prediction(serial).seconds == pytest.approx(sum(costs))
    cut = "from_tensors cpu=0us | " + " | prefetch 1 | ".join(f"map cpu={cost}ms" for cost in costs)
    assert 1000 * prediction(cut).seconds == pytest.approx(max(costs))
    cores = data.draw(st.integers(1, 4))
    bounded = 1000 * prediction(cut, cores=cores).seconds
    assert bounded == pytest.approx(max(max(costs), sum(costs) / cores), rel=1e-3)


def test_waiting_uses_threads_but_no_cores() -> None:
    words = parse("from_tensors cpu=0us | interleave 8 cycle_length=8 cpu=1ms", options=OFF)
    found = predict(words.pipeline, with_operator(words.profile, "n1", wall_seconds=0.080), 2)
    assert 1000 * found.seconds == pytest.approx(10)  # 80 ms in 8 threads, although there are only 2 cores
    assert found.bound is Bound.PARALLEL


@pytest.mark.parametrize(
    ("word", "milliseconds"), [("", 2), ("random", 8), ("python", 8), ("table", 8), ("synchronous=True", 8)]
)
def test_default_passes_parallelize_stateless_maps_alone(word: str, milliseconds: float) -> None:
    text = f"from_tensors cpu=0us | map {word} cpu=8ms"
    assert 1000 * prediction(text, cores=4, defaults_on=True).seconds == pytest.approx(milliseconds)
    assert 1000 * prediction(text, cores=4).seconds == pytest.approx(8)
    without: dict[str, Value] = {"experimental_optimization.map_parallelization": False}
    assert 1000 * prediction(text, cores=4, options=without).seconds == pytest.approx(8)


def test_default_passes_fuse_map_and_batch() -> None:
    text = "from_tensors cpu=0us | map 4 cpu=1ms | batch 10 cpu=6ms"
    assert 1000 * prediction(text).seconds == pytest.approx(6)
    fused = prediction(text, defaults_on=True)
    assert 1000 * fused.seconds == pytest.approx((10 + 6) / 4)
    assert fused.nodes == ("n1", "n2")
    # a prefetch between them prevents fusion
    apart = "from_tensors cpu=0us | map 4 cpu=1ms | prefetch 1 | batch 10 cpu=6ms"
    assert 1000 * prediction(apart, defaults_on=True).seconds == pytest.approx(6, rel=1e-2)


def test_serial_map_fused_with_batch_waits_for_upstream_operators() -> None:
    # measured: two Python maps that each sleep 4 ms and a batch of 8 take 8.4 ms per element, not 4 ms
    text = "range cpu=0us | map python cpu=4ms | map python cpu=4ms | batch 8 cpu=0us"
    found = prediction(text, defaults_on=True)
    assert 1000 * found.seconds == pytest.approx(8 * 8, rel=1e-2)
    assert sequential_segments(found) == (("n0", "n1", "n2", "n3"),)
    # operators downstream of the batch run concurrently
    followed = prediction(f"{text} | map python cpu=30ms", defaults_on=True)
    assert 1000 * followed.seconds == pytest.approx(8 * 8, rel=1e-2)


def test_operators_upstream_of_cache_cost_nothing_in_later_epochs() -> None:
    found = prediction("from_tensors | map cpu=50ms | cache cpu=1ms | map cpu=3ms")
    assert 1000 * found.seconds == pytest.approx(4)
    beside = prediction("a = range 10 | map cpu=7ms\nb = range 10 | map cpu=90ms | cache cpu=0us\nzip a b cpu=0us")
    assert 1000 * beside.seconds == pytest.approx(7, rel=1e-2)


def test_edits_are_predicted_from_profile_of_original() -> None:
    words = parse("from_tensors cpu=0us | map random cpu=6ms | map random cpu=4ms")
    parallel = apply_edits(words.pipeline, [SetArgument("n1", "num_parallel_calls", AUTOTUNE)])
    assert microseconds(parallel, words.profile, 4) == pytest.approx(4000)
    cut = apply_edits(words.pipeline, [Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2})])
    assert microseconds(cut, words.profile, 4) == pytest.approx(6000)


def test_limiting_segments_are_sorted_by_time() -> None:
    text = "from_tensors cpu=0us | map cpu=1ms | prefetch 1 | map cpu=9ms | prefetch 1 | map cpu=6ms"
    assert [nodes[-1] for nodes in sequential_segments(prediction(text, cores=8))] == ["n3", "n5"]
    # 2 cores limit the step to 8 ms: the segment of 6 ms is not a limit
    assert [nodes[-1] for nodes in sequential_segments(prediction(text, cores=2))] == ["n3"]
    # nor is any segment that is faster than the model
    assert sequential_segments(prediction(text, cores=8), consumer_rate=100) == ()
    assert sequential_segments(prediction(text, cores=1)) == ()


def with_files(words: DescribedPipeline, **more: Any) -> Profile:
    sweep = Sweep(SweepReader.FILES, (SweepLevel(1),), ceiling=more.pop("ceiling", 50e6))
    return replace(words.profile, files=FileUse(sweeps=(sweep,), **more))


def test_storage_sweep_in_profile_limits_rate() -> None:
    words = parse("from_tensor_slices cpu=0us | interleave cycle_length=4 bytes=100k cpu=0us | batch 10 cpu=1ms")
    found = predict(words.pipeline, with_files(words, bytes_per_element=2e6), 8)
    assert (found.bound, found.nodes) == (Bound.STORAGE, ("n1",))
    assert 1000 * found.seconds == pytest.approx(40)
    # sweeps of the source itself do not give the limit of the storage
    source = replace(words.profile, files=FileUse(sweeps=(Sweep(SweepReader.SOURCE, (), ceiling=1.0),)))
    assert predict(words.pipeline, source, 8).bound is not Bound.STORAGE
    # storage is not a limit for data from a cache
    cached = apply_edits(words.pipeline, [Insert("n1", "cache", "cache@n1", {"filename": ""})])
    assert predict(cached, with_files(words, bytes_per_element=2e6), 8).bound is not Bound.STORAGE


def test_map_that_reads_files_is_limited_by_storage() -> None:
    words = parse("from_tensor_slices cpu=0us | map reads_file cpu=1ms bytes=600k")
    found = predict(words.pipeline, with_files(words, bytes_per_element=1e5, ceiling=1e6), 8)
    assert (found.bound, found.nodes) == (Bound.STORAGE, ("n1",))
    assert 1000 * found.seconds == pytest.approx(100)


# -- overheads of the runtime and the machine


def with_overheads(text: str, *, cores: float = 2, defaults_on: bool = True, **values: Any) -> ThroughputPrediction:
    words = parse(text, options={} if defaults_on else OFF)
    return predict(words.pipeline, replace(words.profile, overheads=Overheads(**values)), cores)


def test_consumer_is_the_limit_for_cheap_elements() -> None:
    text = "range cpu=1us | batch 4 cpu=2us"
    apart = with_overheads(text, next_seconds=30e-6)
    assert apart.bound is Bound.CONSUMER and apart.bottleneck is None and apart.nodes == ()
    assert 1e6 * apart.seconds == pytest.approx(30)
    # without TensorFlow's own prefetch one thread does everything
    together = with_overheads(text, defaults_on=False, next_seconds=30e-6)
    assert 1e6 * together.seconds == pytest.approx(36)
    assert together.nodes == ("n0", "n1") and together.bottleneck == "n0"


CALLS = (CallCost(20e-6, 40e-6, 25e-6), CallCost(70e-6, 20e-6, 5e-6))
WAKING = {"wake_seconds": 20e-6}
FILLED = "range cpu=1us | prefetch 2 | batch 100 cpu=50us"
COPIED = "range cpu=1us | batch 100 num_parallel_calls=2 cpu=50us"
TWO_CALLS, ONE_CALL = "range cpu=0us | map 2 random cpu={}us", "range cpu=0us | map random cpu={}us"


@pytest.mark.parametrize(("text", "values", "microseconds"), [
    ("range cpu=100us | prefetch 2 | map random cpu=1us", {"cores": 8, **WAKING}, 120),  # at most once per element
    (FILLED, {"buffer_seconds": 1e-6}, 200),  # added on both sides
    (COPIED, {"buffer_seconds": 1e-6}, 130),  # which copies what another thread has made
    (ONE_CALL.format(100), {"calls": CALLS}, 100),  # only a parallel call costs more
    (TWO_CALLS.format(1000), {"crowded_speed": 0.8}, 500 / 0.8),  # busy cores are slower
    (TWO_CALLS.format(1000), {"cores": 4, "crowded_speed": 0.8}, 500 * 3.2 / 3),
    (ONE_CALL.format(1000), {"crowded_speed": 0.8}, 1000),
])  # fmt: skip
def test_overheads(text: str, values: dict[str, Any], microseconds: float) -> None:
    near = 0.01 if values.get("cores") == 4 else None
    assert 1e6 * with_overheads(text, **values).seconds == pytest.approx(microseconds, rel=near)


def test_threads_that_are_always_running_need_not_be_woken() -> None:
    cheap = with_overheads("range cpu=1us | prefetch 2 | map random cpu=1us | batch 100 cpu=0us", **WAKING)
    assert 1e6 * cheap.seconds < 4 * 100


def test_the_consumer_wakes_a_thread_that_is_faster_than_it() -> None:
    text, costs = "range cpu=1us | batch 4 cpu={}us", {"next_seconds": 20e-6, "notify_seconds": 30e-6}
    fast = with_overheads(text.format(2), **costs)
    assert (1e6 * fast.seconds, fast.bound) == (pytest.approx(50), Bound.CONSUMER)
    slow = with_overheads(text.format(26), **costs)
    assert 1e6 * slow.seconds == pytest.approx(30)  # the consumer waits for it
    alone = with_overheads(text.format(2), **costs, defaults_on=False)
    assert 1e6 * alone.seconds == pytest.approx(26)


def test_parallel_interleave_has_no_call_overhead_and_one_consuming_thread() -> None:
    rows = "range cpu=0us | interleave {}cycle_length=4 cpu=10us | batch 100 cpu=50us"
    ideal = with_overheads(rows.format("4 "), cores=4)
    assert (1e6 * ideal.seconds, ideal.bound) == (pytest.approx(262.5), Bound.CORES)
    assert with_overheads(rows.format("4 "), cores=4, calls=CALLS).seconds == ideal.seconds
    found = with_overheads(rows.format("4 "), cores=4, calls=CALLS, interleave_seconds=4e-6)
    assert (1e6 * found.seconds, found.nodes) == (pytest.approx(650), ("n1",))  # 10 / 4 to read it, 4 to hand it on
    assert 1e6 * found.cpu_seconds == pytest.approx(1450)
    costly = with_overheads(rows.format("4 ").replace("50us", "300us"), cores=4, interleave_seconds=4e-6)
    assert (1e6 * costly.seconds, costly.nodes) == (pytest.approx(700), ("n2",))  # 4 to take it, and the batch
    serial = with_overheads(rows.format(""), cores=4, calls=CALLS, interleave_seconds=4e-6)
    assert 1e6 * serial.seconds == pytest.approx(1050)


@pytest.mark.parametrize("deterministic", [True, False])
def test_experimental_parallel_interleave_has_a_thread_for_each_reader(deterministic: bool) -> None:
    text = f"range cpu=0us | parallel_interleave deterministic={deterministic} cycle_length=4 cpu=8ms"
    assert 1e3 * prediction(text).seconds == pytest.approx(2)


def test_what_tensorflow_removes_costs_nothing() -> None:
    text = "range cpu=1us | map {} cpu=0us | batch 100 cpu=10us"
    removed, kept = (with_overheads(text.format(one), calls=CALLS).seconds for one in ("passes=0", "passes=0 random"))
    assert removed == with_overheads("range cpu=1us | batch 100 cpu=10us", calls=CALLS).seconds
    assert with_overheads(text.format("passes=0 2"), calls=CALLS).seconds == removed < kept


def test_waking_a_thread_leaves_cores_free() -> None:
    """10 of 40 us per call are CPU time: two maps use less CPU time on two cores than their threads' wall time."""
    waking = (CallCost(100e-6, 40e-6, 40e-6, 10e-6, 10e-6),)
    found = with_overheads(f"{TWO_CALLS.format(100)} | shuffle 9 cpu=0us | map 2 random cpu=100us", calls=waking)
    assert (1e6 * found.seconds, found.bound) == (pytest.approx((100 + 10 + 100 + 10) / 2), Bound.CORES)
    one = with_overheads(TWO_CALLS.format(100), calls=waking)
    assert (1e6 * one.seconds, one.bound) == (pytest.approx((100 + 40) / 2), Bound.PARALLEL)
    assert 1e6 * one.cpu_seconds == pytest.approx(110)


@pytest.mark.parametrize(("function", "parallel", "fused"), [(5, 40, 25), (45, 30, 15), (900, 20, 5)])
def test_calls_of_short_functions_cost_more(function: float, parallel: float, fused: float) -> None:
    text = TWO_CALLS.format(function)
    assert 1e6 * with_overheads(text, calls=CALLS).seconds == pytest.approx((function + parallel) / 2)
    batched = with_overheads(f"{text} | batch 10 cpu=0us", calls=CALLS)
    assert 1e6 * batched.seconds == pytest.approx(10 * (function + fused) / 2)
    apart = with_overheads(f"{text} | shuffle 9 cpu=0us | batch 10 cpu=0us", calls=CALLS)
    assert 1e6 * apart.seconds == pytest.approx(10 * (function + parallel) / 2)


def test_shuffle_costs_by_the_bytes_that_maps_upstream_write_into_its_buffer() -> None:
    text = "range cpu=0us bytes=8 | map random cpu=50us bytes=3200 | shuffle 99 cpu=11us bytes=3200 | batch 100 cpu=0us"
    words = parse(text)
    moved = apply_edits(words.pipeline, [Move("n2", "n0")])  # 8 of 3,200 bytes
    cached = apply_edits(words.pipeline, [Insert("n1", "cache", "cache@n1", {"filename": ""})])
    seconds = [microseconds(one, words.profile, 2) / 100 for one in (words.pipeline, moved, cached)]
    assert seconds == pytest.approx([50 + 11, 50 + 1 + 10 * 8 / 3200, 1 + 1])  # a cache passes elements on in 1 us
    written = parse(text.replace("| shuffle", "| cache cpu=0us | shuffle"))  # the shuffle was measured downstream of it
    assert microseconds(written.pipeline, written.profile, 2) / 100 == pytest.approx(11)


def test_spinning_threads_are_not_counted_as_work() -> None:
    words = parse("range cpu=0us | map 2 random cpu=130us")
    measured = with_operator(words.profile, "n1", wall_seconds=100e-6, waiting_seconds=0.0)

    def seconds(spin: float) -> float:
        profile = replace(measured, overheads=Overheads(spin_seconds=spin))
        return 1e6 * predict(words.pipeline, profile, 2).seconds

    assert seconds(40e-6) == pytest.approx(50)
    assert seconds(10e-6) == pytest.approx(60)  # the rest is work of another thread
    assert seconds(0.0) == pytest.approx(65)


def test_cpu_time_is_limited_by_wall_time_without_waiting_times() -> None:
    words = parse("range cpu=0us | map 2 random cpu=130us")
    whole = replace(words.profile, input_cpu_seconds=130e-6, input_wall_seconds=110e-6)
    assert 1e6 * predict(words.pipeline, whole, 2).seconds == pytest.approx(65)  # without overheads of the machine
    known = replace(whole, overheads=Overheads(next_seconds=10e-6))
    assert 1e6 * predict(words.pipeline, known, 2).seconds == pytest.approx(55)  # 100 us, and 10 us of the consumer
    # the sums are then those of the operators
    other = with_operator(known, "n0", wall_seconds=1e-6, waiting_seconds=0.0)
    assert 1e6 * predict(words.pipeline, other, 2).seconds == pytest.approx(70)  # all 130 us


CROPPED = FunctionVariant.DECODE_AND_CROP
ROWS = "from_tensor_slices gathers elements=900 cpu=5us bytes=4k | shuffle 9 cpu=2us | batch 100 cpu=90us"


@pytest.mark.parametrize(("text", "change", "why", "measured", "before", "after"), [
    ("range cpu=0us | map rows=exact cpu=20us | shuffle 9 cpu=1us | batch 100 cpu=50us",
     [Move("n1", "n3"), edits.ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "d")],
     "on batches was not measured", ("n1", {"on_batch_seconds": 300e-6}), 2150, 450),
    (ROWS, [edits.ReplaceSource("n0", "n2", "d")],
     "on batches was not measured", ("n0", {"on_batch_seconds": 60e-6}), 790, 60),
    ("range cpu=0us | map crop=yes cpu=800us | batch 2 cpu=40us", [edits.ReplaceFunction("n1", CROPPED, "d")],
     f"{CROPPED} was not measured", ("n1", {"variant_shares": {CROPPED: 0.75}}), 1640, 1240),
], ids=["on batches", "gathered rows", "decode and crop"])  # fmt: skip
def test_another_function_has_its_measured_cost(text, change, why, measured, before, after) -> None:
    words = parse(text)
    edited = apply_edits(words.pipeline, change)
    assert why in predict_examples(edited, words.profile, 1).why
    profile = with_operator(words.profile, measured[0], **measured[1])
    assert microseconds(words.pipeline, profile, 1) == pytest.approx(before)
    assert microseconds(edited, profile, 1) == pytest.approx(after)


def test_gathered_elements_are_indices() -> None:
    words = parse(ROWS)
    edited = apply_edits(words.pipeline, [edits.ReplaceSource("n0", "n2", "d")])
    profile = with_operator(words.profile, "n0", on_batch_seconds=60e-6)
    assert element_bytes(edited, profile, "n1") == 8 and element_bytes(edited, profile, "n2") == 800
    assert (element_bytes(words.pipeline, profile, "n1") or 0) > 8


def test_elements_are_as_large_as_what_a_shuffle_behind_them_was_measured_to_pass_on() -> None:
    words = parse("from_tensor_slices elements=900 bytes=4k | map cpu=2us | shuffle 9 bytes=70k | batch 10")
    assert element_bytes(words.pipeline, with_operator(words.profile, "n1", bytes_out=None), "n1") == 70_000


def test_shard_moved_upstream_of_map_saves_calls_of_map() -> None:
    words = parse("range cpu=0us | map cpu=100us | prefetch 2 | shard 4 index=1 cpu=0us | batch 10 cpu=0us")
    counted = {"n0": 40.0, "n1": 40.0, "n2": 40.0}  # per batch: one of four elements is this worker's
    operators = tuple(replace(one, visits=counted.get(one.node, one.visits)) for one in words.profile.operators)
    profile = replace(words.profile, operators=operators)
    early = apply_edits(words.pipeline, [Move("n3", "n0")])
    assert microseconds(words.pipeline, profile, 1) == pytest.approx(4000, rel=1e-2)
    assert microseconds(early, profile, 1) == pytest.approx(1000, rel=1e-2)


def test_fused_maps_save_the_overhead_of_one_call() -> None:
    words = parse("range cpu=0us | map 2 cpu=30us | map 2 fused=n1 cpu=10us | batch 10 cpu=0us")
    calls = (CallCost(10e-6, 5e-6, 5e-6), CallCost(40e-6, 5e-6, 5e-6))
    profile = replace(words.profile, overheads=Overheads(calls=calls))
    fused = edits.ReplaceFunction("n2", FunctionVariant.FUSED, "d", ("n1",))
    together = apply_edits(words.pipeline, [fused, edits.Remove("n1")])
    assert microseconds(words.pipeline, profile, 1) == pytest.approx(10 * (30 + 10 + 10))
    assert microseconds(together, profile, 1) == pytest.approx(10 * (30 + 10 + 5))


def test_parts_of_split_function_have_their_shares_of_cost() -> None:
    words = parse("range cpu=0us | map random draws=1k head=75% cpu=800us | batch 2 cpu=40us")
    cut = FunctionSplit(SplitPosition.BEFORE_DRAWS, element_bytes=1e3)
    split = edits.SplitFunction("n1", cut)
    apart = apply_edits(words.pipeline, [split])
    cached = apply_edits(apart, [Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})])
    assert microseconds(apart, words.profile, 1) == pytest.approx(1640)
    assert microseconds(cached, words.profile, 1) == pytest.approx(440, abs=3)
    priced = with_part_costs(words.profile, apart)
    parts = [priced.operator(name) for name in ("head@n1", "n1")]
    assert [one.cpu_seconds for one in parts if one is not None] == pytest.approx([600e-6, 200e-6])
    bare = with_operator(words.profile, "n1", head_share=None)
    assert "the cost of map was not measured" in predict_examples(apart, bare, 1).why


@pytest.mark.parametrize("head", [FunctionVariant.ON_BATCHES, FunctionVariant.PARSING])
def test_both_parts_on_batches_have_their_measured_total_cost(head: FunctionVariant) -> None:
    words = parse("range cpu=0us | map rows=parts cpu=800us | batch 2 cpu=40us")
    function = words.pipeline["n1"].function
    assert function is not None and function.on_batches is not None and function.on_batches.cut is not None
    split = edits.SplitFunction("n1", function.on_batches.cut)
    first = edits.ReplaceFunction(split.head, head, "head")
    rest = edits.ReplaceFunction("n1", FunctionVariant.VECTORIZED, "tail")
    edited = apply_edits(words.pipeline, [split, Move("n1", "n2"), rest, Move(split.head, "n2"), first])
    assert [node.id for node in edited] == ["n0", "n2", "head@n1", "n1"]
    profile = with_operator(words.profile, "n1", on_batch_seconds=100e-6)
    assert microseconds(edited, profile, 1) == pytest.approx(40 + 100) and not predict_examples(edited, profile, 1).why
    assert "on batches was not measured" in predict_examples(edited, words.profile, 1).why


def test_python_operators_give_fallback_rate_but_no_prediction() -> None:
    """Two maps in one thread: a buffer between them is estimated to help, one after both is not."""
    words = parse("range | map python cpu=1ms | map python cpu=1ms")
    buffers = [Insert(above, "prefetch", "new", {"buffer_size": 2}) for above in ("n1", "n2")]
    guesses = [predict_examples(apply_edits(words.pipeline, [one]), words.profile, 2) for one in buffers]
    assert all(found.examples_per_second is None and "runs Python code" in found.why for found in guesses)
    assert [found.fallback_rate for found in guesses] == [pytest.approx(1000, rel=0.02), pytest.approx(500, rel=0.02)]
