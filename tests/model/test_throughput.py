"""The segment model: closed-form examples, TensorFlow's own optimisations, what a cache and a core count
do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Move, Remove, ReplaceFunction, ReplaceSource, SetArgument, SplitFunction
from pipetune.core.functions import Cut, CutKind, FunctionForm
from pipetune.core.overheads import CallCost, Overheads
from pipetune.core.parts import with_parts
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.profile import CutCosts, Profile
from pipetune.core.storage import FileUse, Level, Reader, Sweep
from pipetune.model.memory import element_bytes
from pipetune.model.throughput import (
    Bound,
    Prediction,
    foresee,
    predict,
    predict_rate,
    sequential_segments,
    training_rate,
)
from pipetune.testing.words import Words, read

MANY = 64.0


def prediction(text: str, *, cores: float = MANY, defaults_on: bool = False) -> Prediction:
    words = read(text)
    return predict(words.pipeline, words.profile, cores, defaults_on=defaults_on)


# tf.data (Murray et al., VLDB 2021), section 3.2: reading an element takes 5 ms, transforming it 2 ms,
# batching ten of them 1 ms.
PAPER = "range cpu=0us | interleave {reads} cycle_length=2 cpu=5ms | map {maps} cpu=2ms | batch 10 cpu=1ms"


@pytest.mark.mission("A1.sum-maximum")
def test_the_papers_sequential_pipeline_takes_the_sum() -> None:
    found = prediction(PAPER.format(reads="None", maps="None"))
    assert 1000 * found.seconds == pytest.approx(71)
    assert found.bound is Bound.SEGMENT
    assert found.bottleneck == "n1"


@pytest.mark.mission("A1.sum-maximum")
def test_the_papers_parallel_pipeline_takes_the_maximum() -> None:
    found = prediction(PAPER.format(reads="2", maps="2") + " | prefetch 1")
    assert 1000 * found.seconds == pytest.approx(25)
    assert found.bound is Bound.PARALLEL
    assert found.nodes == ("n1",)


def test_a_prefetch_in_between_makes_the_maximum_of_the_sum() -> None:
    serial = "from_tensor_slices cpu=0us | map cpu=3ms | {}map cpu=5ms"
    assert 1000 * prediction(serial.format("")).seconds == pytest.approx(8)
    cut = prediction(serial.format("prefetch 2 | "))
    assert 1000 * cut.seconds == pytest.approx(5)
    assert cut.nodes == ("n3",)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_sequential_is_the_sum_and_pipelined_the_maximum(costs: list[int], data: st.DataObject) -> None:
    serial = "from_tensors cpu=0us | " + " | ".join(f"map cpu={cost}ms" for cost in costs)
    assert 1000 * prediction(serial).seconds == pytest.approx(sum(costs))
    cut = "from_tensors cpu=0us | " + " | prefetch 1 | ".join(f"map cpu={cost}ms" for cost in costs)
    assert 1000 * prediction(cut).seconds == pytest.approx(max(costs))
    cores = data.draw(st.integers(1, 4))
    bounded = 1000 * prediction(cut, cores=cores).seconds
    assert bounded == pytest.approx(max(max(costs), sum(costs) / cores), rel=1e-3)


def test_cores_bound_what_threads_would_allow() -> None:
    found = prediction("from_tensors | map 16 cpu=10ms", cores=2)
    assert 1000 * found.seconds == pytest.approx(5, rel=1e-2)
    assert found.bound is Bound.CORES
    assert found.bottleneck == "n1"


def test_waiting_needs_threads_but_no_cores() -> None:
    words = read("from_tensors cpu=0us | interleave 8 cycle_length=8 cpu=1ms")
    sleeping = tuple(
        type(one)(**{**vars(one), "wall_seconds": 0.080 if one.node == "n1" else 0.0})
        for one in words.profile.operators
    )
    profile = type(words.profile)(**{**vars(words.profile), "operators": sleeping})
    found = predict(words.pipeline, profile, 2, defaults_on=False)
    assert 1000 * found.seconds == pytest.approx(10)  # 80 ms in 8 threads, although there are 2 cores
    assert found.bound is Bound.PARALLEL


def test_parallel_calls_of_an_interleave_end_at_its_cycle_length() -> None:
    found = prediction("from_tensors cpu=0us | interleave AUTOTUNE cycle_length=4 cpu=8ms")
    assert 1000 * found.seconds == pytest.approx(2)


def test_tensorflows_defaults_make_a_stateless_map_parallel() -> None:
    text = "from_tensors cpu=0us | map cpu=8ms"
    assert 1000 * prediction(text, cores=4).seconds == pytest.approx(8)
    assert 1000 * prediction(text, cores=4, defaults_on=True).seconds == pytest.approx(2)


@pytest.mark.parametrize("word", ["random", "python", "variable", "table", "print"])
def test_they_leave_a_map_with_state_serial(word: str) -> None:
    found = prediction(f"from_tensors cpu=0us | map {word} cpu=8ms", cores=4, defaults_on=True)
    assert 1000 * found.seconds == pytest.approx(8)


def test_they_fuse_a_batch_into_the_map_before_it() -> None:
    text = "from_tensors cpu=0us | map 4 cpu=1ms | batch 10 cpu=6ms"
    assert 1000 * prediction(text).seconds == pytest.approx(6)
    fused = prediction(text, defaults_on=True)
    assert 1000 * fused.seconds == pytest.approx((10 + 6) / 4)
    assert fused.nodes == ("n1", "n2")
    # a prefetch between them keeps them apart
    apart = "from_tensors cpu=0us | map 4 cpu=1ms | prefetch 1 | batch 10 cpu=6ms"
    assert 1000 * prediction(apart, defaults_on=True).seconds == pytest.approx(6, rel=1e-2)


def test_a_serial_map_fused_with_its_batch_waits_for_what_stands_above_it() -> None:
    # measured: two Python maps that sleep 4 ms each and a batch of 8 take 8.4 ms per element, not 4
    text = "range cpu=0us | map python cpu=4ms | map python cpu=4ms | batch 8 cpu=0us"
    found = prediction(text, defaults_on=True)
    assert 1000 * found.seconds == pytest.approx(8 * 8, rel=1e-2)
    assert sequential_segments(found) == (("n0", "n1", "n2", "n3"),)
    # what follows the batch runs beside it
    followed = prediction(f"{text} | map python cpu=30ms", defaults_on=True)
    assert 1000 * followed.seconds == pytest.approx(8 * 8, rel=1e-2)


def test_options_say_whether_the_defaults_are_on() -> None:
    off = {"experimental_optimization.apply_default_optimizations": False}
    words = read("from_tensors cpu=0us | map cpu=8ms", options=off)
    assert 1000 / predict_rate(words.pipeline, words.profile, 4) == pytest.approx(8)
    assert 1000 / predict_rate(words.pipeline, words.profile, 4, defaults_on=True) == pytest.approx(2)


def test_what_stands_above_a_cache_costs_nothing_in_later_epochs() -> None:
    found = prediction("from_tensors | map cpu=50ms | cache cpu=1ms | map cpu=3ms")
    assert 1000 * found.seconds == pytest.approx(4)
    branches = "a = range 10 | map cpu=7ms\nb = range 10 | map cpu=90ms | cache cpu=0us\n"
    beside = prediction(branches + "zip a b cpu=0us")
    assert 1000 * beside.seconds == pytest.approx(7, rel=1e-2)


def test_edits_are_predicted_from_the_profile_of_the_original() -> None:
    words = read("from_tensors cpu=0us | map random cpu=6ms | map random cpu=4ms")
    parallel = apply_edits(words.pipeline, [SetArgument("n1", "num_parallel_calls", AUTOTUNE)])
    assert 1000 / predict_rate(parallel, words.profile, 4) == pytest.approx(4)
    cut = apply_edits(words.pipeline, [Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2})])
    assert 1000 / predict_rate(cut, words.profile, 4) == pytest.approx(6)


def test_storage_bounds_where_it_is_known() -> None:
    words = read("TFRecordDataset bytes=100k cpu=0us | map 8 cpu=1ms | batch 10 cpu=0us")
    found = predict(words.pipeline, words.profile, 8, storage_bytes_per_second=50e6)
    assert found.bound is Bound.STORAGE
    assert 1000 * found.seconds == pytest.approx(20)


def test_segments_that_bind_come_slowest_first_and_others_not_at_all() -> None:
    text = "from_tensors cpu=0us | map cpu=1ms | prefetch 1 | map cpu=9ms | prefetch 1 | map cpu=6ms"
    assert [nodes[-1] for nodes in sequential_segments(prediction(text, cores=8))] == ["n3", "n5"]
    # on 2 cores nothing is to be had beyond 8 ms: the 6 ms segment does not bind
    assert [nodes[-1] for nodes in sequential_segments(prediction(text, cores=2))] == ["n3"]
    # nor does any that is faster than the model
    assert sequential_segments(prediction(text, cores=8), consumer_rate=100) == ()
    assert sequential_segments(prediction(text, cores=1)) == ()


@pytest.mark.mission("A1.sum-maximum")
def test_training_takes_turns_or_overlaps() -> None:
    assert training_rate(20, 30, pipelined=False) == pytest.approx(12)
    assert training_rate(20, 30, pipelined=True) == 20
    assert training_rate(float("inf"), 30, pipelined=False) == pytest.approx(30)


def with_files(words: Words, **more: Any) -> Profile:
    sweep = Sweep(Reader.FILES, (Level(1),), ceiling=more.pop("ceiling", 50e6))
    return replace(words.profile, files=FileUse(sweeps=(sweep,), **more))


def test_storage_measured_with_the_profile_bounds_without_being_asked() -> None:
    words = read("from_tensor_slices cpu=0us | interleave cycle_length=4 bytes=100k cpu=0us | batch 10 cpu=1ms")
    found = predict(words.pipeline, with_files(words, bytes_per_element=2e6), 8)
    assert (found.bound, found.nodes) == (Bound.STORAGE, ("n1",))
    assert 1000 * found.seconds == pytest.approx(40)
    # the source itself, at one read or many, does not say what storage could do
    source = replace(words.profile, files=FileUse(sweeps=(Sweep(Reader.SOURCE, (), ceiling=1.0),)))
    assert predict(words.pipeline, source, 8).bound is not Bound.STORAGE
    # nor does it bind what is read from a cache
    cached = apply_edits(words.pipeline, [Insert("n1", "cache", "cache@n1", {"filename": ""})])
    assert predict(cached, with_files(words, bytes_per_element=2e6), 8).bound is not Bound.STORAGE


def test_a_map_that_reads_files_reads_from_storage_too() -> None:
    words = read("from_tensor_slices cpu=0us | map reads_file cpu=1ms bytes=600k")
    found = predict(words.pipeline, with_files(words, bytes_per_element=1e5, ceiling=1e6), 8)
    assert (found.bound, found.nodes) == (Bound.STORAGE, ("n1",))
    assert 1000 * found.seconds == pytest.approx(100)


# -- what the runtime and the machine take


def with_overheads(text: str, *, cores: float = 2, defaults_on: bool = True, **values: Any) -> Prediction:
    words = read(text)
    profile = replace(words.profile, overheads=Overheads(**values))
    return predict(words.pipeline, profile, cores, defaults_on=defaults_on)


def test_taking_elements_in_python_binds_where_they_are_cheap() -> None:
    text = "range cpu=1us | batch 4 cpu=2us"
    apart = with_overheads(text, next_seconds=30e-6)
    assert apart.bound is Bound.CONSUMER and apart.bottleneck is None and apart.nodes == ()
    assert 1e6 * apart.seconds == pytest.approx(30)
    # without TensorFlow's own prefetch the same thread does all of it
    together = with_overheads(text, defaults_on=False, next_seconds=30e-6)
    assert 1e6 * together.seconds == pytest.approx(36)
    assert together.nodes == ("n0", "n1") and together.bottleneck == "n0"


def test_waking_the_other_side_of_a_buffer_takes_time_once_per_element_at_most() -> None:
    text = "range cpu=100us | prefetch 2 | map random cpu=1us"
    found = with_overheads(text, cores=8, wake_seconds=20e-6)
    assert 1e6 * found.seconds == pytest.approx(120)
    cheap = with_overheads("range cpu=1us | prefetch 2 | map random cpu=1us | batch 100 cpu=0us", wake_seconds=20e-6)
    assert 1e6 * cheap.seconds < 4 * 100  # what runs on and on wakes nobody


def test_handing_elements_over_takes_time_on_either_side_of_a_buffer() -> None:
    rows = "range cpu=1us | prefetch 2 | batch 100 cpu=50us"
    assert 1e6 * with_overheads(rows).seconds == pytest.approx(100)
    assert 1e6 * with_overheads(rows, buffer_seconds=1e-6).seconds == pytest.approx(200)


CALLS = (CallCost(20e-6, 40e-6, 25e-6), CallCost(70e-6, 20e-6, 5e-6))


def test_a_parallel_interleave_starts_no_calls_and_its_elements_are_taken_in_one_thread() -> None:
    rows = "range cpu=0us | interleave {}cycle_length=4 cpu=10us | batch 100 cpu=50us"
    ideal = with_overheads(rows.format("4 "), cores=4)
    assert (1e6 * ideal.seconds, ideal.bound) == (pytest.approx(262.5), Bound.CORES)
    assert with_overheads(rows.format("4 "), cores=4, calls=CALLS).seconds == ideal.seconds
    found = with_overheads(rows.format("4 "), cores=4, calls=CALLS, interleave_seconds=4e-6)
    assert (1e6 * found.seconds, found.nodes) == (pytest.approx(450), ("n2",))  # however many readers there are
    assert 1e6 * found.cpu_seconds == pytest.approx(1450)
    serial = with_overheads(rows.format(""), cores=4, calls=CALLS, interleave_seconds=4e-6)
    assert 1e6 * serial.seconds == pytest.approx(1050)


def test_a_parallel_call_costs_more_than_a_serial_one() -> None:
    found = with_overheads("range cpu=0us | map 2 random cpu=100us", calls=CALLS)
    assert 1e6 * found.seconds == pytest.approx(60)
    assert with_overheads("range cpu=0us | map random cpu=100us", calls=CALLS).seconds == pytest.approx(100e-6)


def test_while_a_thread_is_woken_the_processors_are_free() -> None:
    """Of 40 us a call 10 are work: two maps together take less of two cores than their threads' time."""
    waking = (CallCost(100e-6, 40e-6, 40e-6, 10e-6, 10e-6),)
    text = "range cpu=0us | map 2 random cpu=100us | shuffle 9 cpu=0us | map 2 random cpu=100us"
    found = with_overheads(text, calls=waking)
    assert (1e6 * found.seconds, found.bound) == (pytest.approx((100 + 10 + 100 + 10) / 2), Bound.CORES)
    one = with_overheads("range cpu=0us | map 2 random cpu=100us", calls=waking)
    assert (1e6 * one.seconds, one.bound) == (pytest.approx((100 + 40) / 2), Bound.PARALLEL)
    assert 1e6 * one.cpu_seconds == pytest.approx(110)


@pytest.mark.parametrize(
    ("function", "parallel", "fused"), [(5, 40, 25), (20, 40, 25), (45, 30, 15), (70, 20, 5), (900, 20, 5)]
)
def test_calls_of_short_functions_cost_more(function: float, parallel: float, fused: float) -> None:
    text = f"range cpu=0us | map 2 random cpu={function}us"
    assert 1e6 * with_overheads(text, calls=CALLS).seconds == pytest.approx((function + parallel) / 2)
    batched = with_overheads(f"{text} | batch 10 cpu=0us", calls=CALLS)
    assert 1e6 * batched.seconds == pytest.approx(10 * (function + fused) / 2)
    apart = with_overheads(f"{text} | shuffle 9 cpu=0us | batch 10 cpu=0us", calls=CALLS)
    assert 1e6 * apart.seconds == pytest.approx(10 * (function + parallel) / 2)


def test_busy_cores_are_slower() -> None:
    text = "range cpu=0us | map 2 random cpu=1ms"
    assert 1e3 * with_overheads(text, crowded_speed=0.8).seconds == pytest.approx(0.5 / 0.8)
    assert 1e3 * with_overheads(text, cores=4, crowded_speed=0.8).seconds == pytest.approx(0.5 * 3.2 / 3, rel=0.01)
    assert 1e3 * with_overheads("range cpu=0us | map random cpu=1ms", crowded_speed=0.8).seconds == pytest.approx(1)


def test_threads_that_look_for_work_do_none() -> None:
    words = read("range cpu=0us | map 2 random cpu=130us")
    measured = tuple(
        replace(one, wall_seconds=100e-6, waiting_seconds=0.0) if one.node == "n1" else one
        for one in words.profile.operators
    )

    def seconds(spin: float) -> float:
        profile = replace(words.profile, operators=measured, overheads=Overheads(spin_seconds=spin))
        return 1e6 * predict(words.pipeline, profile, 2).seconds

    assert seconds(40e-6) == pytest.approx(50)
    assert seconds(10e-6) == pytest.approx(60)  # more than that is another thread's work
    assert seconds(0.0) == pytest.approx(65)


def test_before_waiting_is_told_apart_no_more_work_is_done_than_time_passes() -> None:
    words = read("range cpu=0us | map 2 random cpu=130us")
    whole = replace(words.profile, input_cpu_seconds=130e-6, input_wall_seconds=110e-6)
    assert 1e6 * predict(words.pipeline, whole, 2).seconds == pytest.approx(65)  # nothing is known of the machine
    known = replace(whole, overheads=Overheads(next_seconds=10e-6))
    assert 1e6 * predict(words.pipeline, known, 2).seconds == pytest.approx(55)  # 100 us, and 10 of the consumer's


def test_a_function_called_on_batches_costs_what_it_was_measured_to_cost_there() -> None:
    words = read("range cpu=0us | map rows=exact cpu=20us | shuffle 9 cpu=1us | batch 100 cpu=50us")
    edits = (Move("n1", "n3"), ReplaceFunction("n1", FunctionForm.ON_BATCHES, "d"))
    edited = apply_edits(words.pipeline, edits)
    assert "on batches was not measured" in foresee(edited, words.profile, 1).why
    priced = tuple(
        replace(one, on_batch_seconds=300e-6) if one.node == "n1" else one for one in words.profile.operators
    )
    profile = replace(words.profile, operators=priced)
    assert 1e6 * predict(words.pipeline, profile, 1, defaults_on=False).seconds == pytest.approx(2150)
    assert 1e6 * predict(edited, profile, 1, defaults_on=False).seconds == pytest.approx(450)


def test_gathered_rows_cost_what_it_was_measured_to_number_them_hand_them_on_and_gather_them() -> None:
    words = read("from_tensor_slices gathers elements=900 cpu=5us bytes=4k | shuffle 9 cpu=2us | batch 100 cpu=90us")
    edited = apply_edits(words.pipeline, [ReplaceSource("n0", "n2", "d")])
    assert "on batches was not measured" in foresee(edited, words.profile, 1).why
    priced = tuple(
        replace(one, on_batch_seconds=60e-6) if one.node == "n0" else one for one in words.profile.operators
    )
    profile = replace(words.profile, operators=priced)
    assert 1e6 * predict(words.pipeline, profile, 1, defaults_on=False).seconds == pytest.approx(790)
    assert 1e6 * predict(edited, profile, 1, defaults_on=False).seconds == pytest.approx(60)
    assert element_bytes(edited, "n1", profile) == 8 and element_bytes(edited, "n2", profile) == 800
    assert element_bytes(words.pipeline, "n1", profile) > 8


def test_a_shard_moved_above_a_map_spares_what_the_map_did_for_others() -> None:
    words = read("range cpu=0us | map cpu=100us | prefetch 2 | shard 4 index=1 cpu=0us | batch 10 cpu=0us")
    counted = {"n0": 40.0, "n1": 40.0, "n2": 40.0}  # per batch: one of four is this worker's
    operators = tuple(replace(one, visits=counted.get(one.node, one.visits)) for one in words.profile.operators)
    profile = replace(words.profile, operators=operators)
    early = apply_edits(words.pipeline, [Move("n3", "n0")])
    assert 1e6 * predict(words.pipeline, profile, 1, defaults_on=False).seconds == pytest.approx(4000, rel=1e-2)
    assert 1e6 * predict(early, profile, 1, defaults_on=False).seconds == pytest.approx(1000, rel=1e-2)


def test_maps_made_one_cost_what_they_cost_and_one_call_less() -> None:
    words = read("range cpu=0us | map 2 cpu=30us | map 2 fused=n1 cpu=10us | batch 10 cpu=0us")
    calls = (CallCost(10e-6, 5e-6, 5e-6), CallCost(40e-6, 5e-6, 5e-6))
    profile = replace(words.profile, overheads=Overheads(calls=calls))
    edits = (ReplaceFunction("n2", FunctionForm.FUSED, "d", ("n1",)), Remove("n1"))
    together = apply_edits(words.pipeline, edits)
    assert 1e6 * predict(words.pipeline, profile, 1, defaults_on=False).seconds == pytest.approx(10 * (30 + 10 + 10))
    assert 1e6 * predict(together, profile, 1, defaults_on=False).seconds == pytest.approx(10 * (30 + 10 + 5))


def test_a_function_that_decodes_less_of_its_images_costs_its_share() -> None:
    form = FunctionForm.DECODE_AND_CROP
    words = read("range cpu=0us | map crop=yes cpu=800us | batch 2 cpu=40us")
    edited = apply_edits(words.pipeline, [ReplaceFunction("n1", form, "d")])
    assert f"{form} was not measured" in foresee(edited, words.profile, 1).why
    priced = tuple(replace(one, cropping_share=0.75) if one.node == "n1" else one for one in words.profile.operators)
    profile = replace(words.profile, operators=priced)
    assert 1e6 * predict(words.pipeline, profile, 1, defaults_on=False).seconds == pytest.approx(1640)
    assert 1e6 * predict(edited, profile, 1, defaults_on=False).seconds == pytest.approx(1240)


def test_the_parts_of_a_function_cost_their_shares() -> None:
    words = read("range cpu=0us | map random cuts=draws:1k head=75% cpu=800us | batch 2 cpu=40us")
    cut = Cut(CutKind.BEFORE_DRAWS, element_bytes=1e3)
    split = SplitFunction("n1", cut)
    apart = apply_edits(words.pipeline, [split])
    cached = apply_edits(apart, [Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})])
    assert 1e6 * predict(apart, words.profile, 1, defaults_on=False).seconds == pytest.approx(1640)
    assert 1e6 * predict(cached, words.profile, 1, defaults_on=False).seconds == pytest.approx(440, abs=3)
    priced = with_parts(words.profile, apart)
    parts = [priced.operator(name) for name in ("head@n1", "n1")]
    assert [one.cpu_seconds for one in parts if one is not None] == pytest.approx([600e-6, 200e-6])
    bare = replace(words.profile, operators=tuple(replace(one, cuts=None) for one in words.profile.operators))
    assert "the cost of map was not measured" in foresee(apart, bare, 1).why


def test_both_parts_on_batches_cost_what_they_were_measured_to_together() -> None:
    words = read("range cpu=0us | map rows=parts cpu=800us | batch 2 cpu=40us")
    function = words.pipeline["n1"].function
    assert function is not None and function.on_batches is not None and function.on_batches.cut is not None
    split = SplitFunction("n1", function.on_batches.cut)
    first = ReplaceFunction(split.head, FunctionForm.ON_BATCHES, "head")
    rest = ReplaceFunction("n1", FunctionForm.VECTORIZED, "tail")
    edited = apply_edits(words.pipeline, [split, Move("n1", "n2"), rest, Move(split.head, "n2"), first])
    assert [node.id for node in edited] == ["n0", "n2", "head@n1", "n1"]
    timed = (replace(one, on_batch_seconds=100e-6) if one.node == "n1" else one for one in words.profile.operators)
    profile = replace(words.profile, operators=tuple(timed))
    assert 1e6 * predict(edited, profile, 1, defaults_on=False).seconds == pytest.approx(40 + 100)
    assert "on batches was not measured" in foresee(edited, words.profile, 1).why


def test_the_second_part_on_batches_costs_what_it_was_measured_to() -> None:
    words = read("range cpu=0us | map cuts=end:1k head=75% cpu=800us | batch 2 cpu=40us")
    assert words.pipeline["n1"].function is not None and words.pipeline["n1"].function.cuts
    edited = apply_edits(words.pipeline, [SplitFunction("n1", words.pipeline["n1"].function.cuts[0]), Move("n1", "n2")])
    costs = {CutKind.BEFORE_EACH_NUMBER.value: CutCosts(0.75, on_batch_seconds=100e-6)}
    operators = tuple(replace(one, cuts=costs) if one.node == "n1" else one for one in words.profile.operators)
    profile = replace(words.profile, operators=operators)
    assert 1e6 * predict(edited, profile, 1, defaults_on=False).seconds == pytest.approx(2 * 600 + 40 + 100)


def test_where_python_runs_it_is_a_guess_and_no_prediction() -> None:
    """Two maps in one thread: a buffer between them is guessed to pay, one behind both is not."""
    words = read("range | map python cpu=1ms | map python cpu=1ms")
    guesses = [
        foresee(apply_edits(words.pipeline, [Insert(above, "prefetch", "new", {"buffer_size": 2})]), words.profile, 2)
        for above in ("n1", "n2")
    ]
    assert all(found.examples_per_second is None and "runs Python code" in found.why for found in guesses)
    assert [found.guess for found in guesses] == [pytest.approx(1000, rel=0.02), pytest.approx(500, rel=0.02)]
