"""The one bar: three parts that are the step, in the words the definition gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.profile import ConsumerProfile
from pipetune.report.html import html
from pipetune.report.step_bar import step_bar
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


def test_an_input_measured_alone_has_no_bar_and_says_why():
    bar = bar_of(ConsumerProfile("none", input_seconds=0.1, why="The dataset is consumed inside a tf.function."))
    assert not bar.parts and not bar.sentence
    assert "tf.function" in bar.why


def test_the_page_draws_the_bar():
    page = html(samples.photos())
    assert "model 70.2" in page and "overlap lost 27.9" in page
    assert page.count('<rect class="fill fill-lost"') == 1
