"""A quantity has one value in a report: two would be two truths."""

from __future__ import annotations

from collections import defaultdict

import pytest

from pipetune.report.blocks import Bars, Facts, Table
from pipetune.report.page import page
from pipetune.report.step_times import step_times
from tests.report import sessions as samples
from tests.report.reading import sections, texts

NAMES = ("photos", "busy", "nothing", "likely", "interrupted", "input_only")
_OTHER_THING = {"available", "memory", "cores"}  # of the machine, and of the input: two things by one name


def named_values(session) -> dict[str, set[str]]:
    """Every label with the values that stand beside it in any part."""
    found = defaultdict(set)
    for one in sections(page(session)):
        for block in one.blocks:
            if isinstance(block, Facts):
                for fact in block.facts:
                    found[fact.label].add(fact.text)
            elif isinstance(block, Bars):
                for bar in block.bars:
                    found[f"step: {bar.label}"].add(bar.text)
            elif isinstance(block, Table) and one.id in ("throughput", "predictions"):
                head = [column.title for column in block.columns]
                column = head.index("Examples") if "Examples" in head else None
                column = head.index("Measured") if "Measured" in head else column
                for row in block.rows if column is not None else ():
                    if texts(row)[column]:
                        found[f"input throughput: {texts(row)[0]}"].add(texts(row)[column])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_label_has_two_values(name):
    twice = {label: values for label, values in named_values(samples.ALL[name]()).items() if len(values) > 1}
    assert set(twice) <= _OTHER_THING, twice


@pytest.mark.parametrize("name", NAMES)
def test_the_bars_and_the_sentence_are_of_one_wait(name):
    """The parts of the current step's bar that are no model are the share that the sentence names."""
    session = samples.ALL[name]()
    times = step_times(session)
    bars = [block for one in sections(page(session)) for block in one.blocks if isinstance(block, Bars)]
    if times.wait is None or not bars or bars[0].bars[0].label != "current":
        return
    current = bars[0].bars[0]
    total = sum(part.share for part in current.parts)
    waiting = sum(part.share for part in current.parts if part.kind != "model")
    assert waiting / total == pytest.approx(max(0.0, times.wait.median))
