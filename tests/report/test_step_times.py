"""The time of a step and its parts: one value for each, in the words of the definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.distribution import InputSkew, WorkerInput
from pipetune.core.measurement import Interval
from pipetune.core.profile import ConsumerProfile
from pipetune.report.blocks import Bars
from pipetune.report.step_times import step_bars, step_times
from tests.report import sessions as samples
from tests.report.reading import blocks, told, with_main, with_part


def session_of(consumer: ConsumerProfile, wait: float | None = None, **more: object):
    share = None if wait is None else Interval(wait, wait, wait, 8)
    session = with_main(replace(samples.nothing(), training=None), "diagnosis", wait_share=share)
    return with_main(session, profile=replace(samples.photo_profile(), consumer=consumer), **more)


def parts(session) -> dict[str, float]:
    """Milliseconds of the current step's parts."""
    bars = step_bars(step_times(session))
    assert bars is not None
    step = step_times(session).current
    longest = max(sum(part.share for part in bar.parts) for bar in bars.bars)
    return {part.kind: pytest.approx(1e3 * step * part.share / longest, rel=1e-6) for part in bars.bars[0].parts}


@pytest.mark.mission("A1.shown")
def test_the_wait_is_what_the_step_takes_beyond_the_model():
    session = session_of(ConsumerProfile("loop", 0.100, 0.060, 0.090), wait=0.4)
    assert parts(session) == {"model": 60.0, "lost": 10.0, "wait": 30.0}
    assert step_times(session).wait_change == "Training waits for data 40 % (40 to 40 %) of each step."


def test_the_start_of_an_epoch_is_a_part_of_the_wait_where_it_is_notable():
    consumer = ConsumerProfile("loop", 0.100, 0.060, 0.070, start_seconds=0.020)
    assert parts(session_of(consumer, wait=0.4)) == {"model": 60.0, "lost": 10.0, "wait": 10.0, "start": 20.0}
    short = replace(consumer, start_seconds=0.0004)
    assert "start" not in parts(session_of(short, wait=0.4))


def test_the_confirmed_step_comes_before_that_of_the_profile():
    times = step_times(samples.photos())
    assert (times.current, times.tuned, times.autotune) == pytest.approx((0.0981, 0.0723, 0.0759))
    assert times.model == pytest.approx(0.0981 * (1 - 0.284))
    before = step_times(samples.interrupted())
    assert before.current == pytest.approx(0.0981) and before.tuned is None


def test_a_candidate_has_an_expected_step_and_no_tuned_one():
    (bars,) = blocks(samples.likely(), Bars, "answer")
    assert [bar.label for bar in bars.bars] == ["current", "not proven"]
    assert bars.bars[1].text == "74.9 ms"


def test_a_plan_that_was_not_confirmed_has_no_tuned_step():
    assert step_times(with_main(samples.photos(), plan=None)).tuned is None


def test_the_model_alone_can_be_a_part_of_no_step_that_is_shorter():
    fast = with_part(samples.photos(), "training", tuned_step_ms=50.0)
    tuned = next(bar for bar in blocks(fast, Bars, "answer")[0].bars if bar.label == "tuned")
    assert [part.kind for part in tuned.parts] == ["model"]
    assert step_times(fast).tuned_wait == 0.0


def test_workers_in_step_wait_for_the_slowest_input():
    consumer = ConsumerProfile("loop", 0.100, 0.060, 0.020)
    assert parts(session_of(consumer, wait=0.4)) == {"model": 60.0, "lost": 40.0}

    def beside(*seconds: float):
        inputs = (WorkerInput(1, seconds), WorkerInput(0, (0.02, 0.021)))
        return session_of(consumer, wait=0.4, skew=InputSkew(inputs))

    assert parts(beside(0.095, 0.095)) == {"model": 60.0, "lost": 5.0, "wait": 35.0}
    assert "The input is that of worker 1, the slowest." in told(beside(0.095, 0.095))
    # Not surely slower, or no slower than what the first one's profile says: nothing is known of others.
    for seconds in ((0.0205, 0.095), (0.019, 0.019)):
        assert step_times(beside(*seconds)) == step_times(session_of(consumer, wait=0.4))


def test_an_input_measured_alone_has_no_bar_and_says_why():
    session = session_of(ConsumerProfile("none", input_seconds=0.1, why="it is consumed inside a tf.function"))
    assert not blocks(session, Bars, "answer")
    assert "The wait for data was not measured: It is consumed inside a tf.function." in told(session)
