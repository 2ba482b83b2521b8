"""The one bar: parts that are the step, in the words the definition gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.distribution import InputSkew, WorkerInput
from pipetune.core.profile import ConsumerProfile
from pipetune.report.html import html
from pipetune.report.step_bar import step_bar
from pipetune.report.timeline import timeline
from tests.report import sessions as samples


def bar_of(consumer: ConsumerProfile):
    (result, *_) = samples.photos().datasets
    return step_bar(replace(result, profile=replace(result.profile, consumer=consumer)))


@pytest.mark.mission("A1.shown")
def test_the_parts_fill_the_bar_and_say_what_they_are():
    bar = bar_of(ConsumerProfile("loop", 0.100, 0.060, 0.090))
    assert [part.label for part in bar.parts] == ["model", "input wait", "overlap lost"]
    assert [part.time.value for part in bar.parts] == pytest.approx([0.060, 0.030, 0.010])
    assert [part.start for part in bar.parts] == pytest.approx([0, 60, 90])
    assert sum(part.width for part in bar.parts) == pytest.approx(100)
    assert bar.sentence == "A step of 100 ms: model 60.0 ms, input wait 30.0 ms, overlap lost 10.0 ms."


def test_the_start_of_an_epoch_is_a_part_where_it_is_notable():
    bar = bar_of(ConsumerProfile("loop", 0.100, 0.060, 0.070, start_seconds=0.020))
    assert [part.label for part in bar.parts] == ["model", "input wait", "start of an epoch", "overlap lost"]
    assert [part.time.value for part in bar.parts] == pytest.approx([0.060, 0.010, 0.020, 0.010])
    assert sum(part.width for part in bar.parts) == pytest.approx(100)
    for seconds, parts in ((0.0004, [0.060, 0.010, 0.030]), (0.050, [0.060, 0.010, 0.030, 0.0])):
        bar = bar_of(ConsumerProfile("loop", 0.100, 0.060, 0.070, start_seconds=seconds))
        assert [part.time.value for part in bar.parts] == pytest.approx(parts)


def test_workers_in_step_wait_for_the_slowest_input():
    (result, *_) = samples.photos().datasets
    result = replace(result, profile=replace(result.profile, consumer=ConsumerProfile("loop", 0.100, 0.060, 0.020)))
    alone = step_bar(result)
    assert [part.time.value for part in alone.parts] == pytest.approx([0.060, 0.0, 0.040])

    def beside(*seconds: float):
        inputs = (WorkerInput(1, seconds), WorkerInput(0, (0.02, 0.021)))
        return replace(result, skew=InputSkew(inputs))

    bar = step_bar(beside(0.095, 0.095))
    assert [part.time.value for part in bar.parts] == pytest.approx([0.060, 0.035, 0.005])
    assert "the input of worker 1, the slowest" in bar.parts[1].definition
    found = timeline(beside(0.095, 0.095), None)
    assert found.input_alone.value == pytest.approx(0.095) and "worker 1" in found.notes[-1]
    # Not surely slower, or no slower than what the first one's profile says: nothing is known of others.
    for seconds in ((0.0205, 0.095), (0.019, 0.019)):
        assert step_bar(beside(*seconds)) == alone
        assert timeline(beside(*seconds), None) == timeline(result, None)


def test_an_input_measured_alone_has_no_bar_and_says_why():
    bar = bar_of(ConsumerProfile("none", input_seconds=0.1, why="The dataset is consumed inside a tf.function."))
    assert not bar.parts and not bar.sentence
    assert "tf.function" in bar.why


def test_the_page_draws_the_bar():
    page = html(samples.photos())
    assert "model 70.2" in page and "overlap lost 27.9" in page
    assert page.count('<rect class="fill fill-lost"') == 1
