"""Overheads of the runtime besides the operators: measured, and computed from measurements."""

from __future__ import annotations

import math

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.measure import epochs

US = 1e-6


def test_overheads_are_computed_from_differences() -> None:
    quickest = {"taken": 30 * US, "taken, ahead": 50 * US}
    wall = {"taken": 32 * US, "taken, ahead": 60 * US, "rows": 256 * 0.4 * US, "rows, ahead": 256 * 0.9 * US}
    wall |= {"rows, in turn": 256 * 0.5 * US, "rows, interleaved": 256 * 4.5 * US}
    # On two cores: microseconds per call, with cores that are a tenth slower when both are busy.
    for name, rows, alone, parallel, fused in (
        ("brief", 64, 20, 40, 24), ("short", 32, 60, 24, 16), ("long", 8, 460, 24, 16)
    ):  # fmt: skip
        wall[name] = rows * alone * US
        wall[f"{name}, parallel"] = rows * (alone * 1.1 + parallel) * US / 2
        wall[f"{name}, fused"] = rows * (alone * 1.1 + fused) * US / 2
    # CPU time: the whole overhead of a call around the short function, and a fourth of it around the brief one.
    cpu = {
        "brief": 64 * 30 * US,
        "short": 32 * 90 * US,
        "long": 8 * 500 * US,
        "long, parallel": 8 * (460 * 1.1 + 24) * US,
        "long, fused": 8 * 460 * 1.1 * US,
        "brief, parallel": 64 * (20 * 1.1 + 10) * US,
        "brief, fused": 64 * (20 * 1.1 + 6) * US,
        "short, parallel": 32 * (60 * 1.1 + 24) * US,
        "short, fused": 32 * 60 * 1.1 * US,
    }
    found = epochs._from(cpu, wall, quickest, 2)
    assert found.next_seconds == pytest.approx(30 * US)
    assert found.wake_seconds == pytest.approx(20 * US)
    assert found.notify_seconds == pytest.approx(28 * US)
    assert found.buffer_seconds == pytest.approx(0.7 * US)
    assert found.interleave_seconds == pytest.approx(4 * US)
    assert [cost.function_seconds for cost in found.calls] == pytest.approx([20 * US, 60 * US, 460 * US])
    assert [cost.parallel_seconds for cost in found.calls] == pytest.approx([40 * US, 24 * US, 24 * US])
    assert [cost.fused_seconds for cost in found.calls] == pytest.approx([24 * US, 16 * US, 16 * US])
    assert [cost.extra_seconds(fused=False)[1] for cost in found.calls] == pytest.approx([10 * US, 24 * US, 24 * US])
    assert [cost.extra_seconds(fused=True)[1] for cost in found.calls] == pytest.approx([6 * US, 0, 0])
    assert found.crowded_speed == pytest.approx(1 / 1.1)
    assert found.spin_seconds == pytest.approx(40 * US)
    assert epochs._from(cpu, wall, quickest, 1).crowded_speed == 1
    # Beside another process: parallel calls wait for a core, and take no more CPU time.
    beside = {name: seconds * (1.6 if "," in name else 1.2) for name, seconds in wall.items()}
    cpu |= {"brief": 64 * 20 * US, "short": 32 * 60 * US, "long": 8 * 460 * US}
    assert epochs._from(cpu, beside, quickest, 2).crowded_speed == pytest.approx(1 / 1.1)


def test_measured_overheads_are_finite_and_not_negative() -> None:
    found = epochs.measure_overheads(2, seconds=0.5, rounds=1)
    assert 0 < found.next_seconds < math.inf
    calls = [value for cost in found.calls for value in (cost.parallel_seconds, cost.fused_seconds)]
    waking = (found.wake_seconds, found.notify_seconds)
    for seconds in (*waking, found.buffer_seconds, found.interleave_seconds, found.spin_seconds, *calls):
        assert 0 <= seconds < math.inf
    assert 0 < found.crowded_speed <= 1
    assert epochs.measure_overheads(2, seconds=0.5, rounds=1) is found


def test_taking_an_element_of_many_components_costs_more() -> None:
    one = tf.TensorSpec([None, 8])
    epochs.measure_next(one)  # the first window of a process is slower
    seconds = [epochs.measure_next(spec) for spec in (one, {str(index): one for index in range(30)})]
    assert seconds[0] is not None and seconds[1] is not None and 0 < seconds[0] < seconds[1]
    ragged = epochs.measure_next((tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.string)))
    assert ragged is not None and ragged > 0
    assert epochs.measure_next(tf.OptionalSpec(one)) is None
