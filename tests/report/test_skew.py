"""How far the inputs of several workers are apart: the figures, the sentence, and where they are shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pipetune.core import session_file
from pipetune.core.distribution import InputSkew, WorkerInput
from pipetune.core.session import Session
from pipetune.core.summary import summary
from pipetune.report.handover import skew
from pipetune.report.terminal import summary_text
from tests.core.sessions import session
from tests.core.test_session_file import schema, written

EVEN = WorkerInput(0, (0.010, 0.011, 0.012), 0.05)
LATE = WorkerInput(1, (0.022, 0.020, 0.021), 0.08)
NEAR = WorkerInput(1, (0.011, 0.013, 0.012), 0.05)
THIRD = WorkerInput(2, (0.012, 0.010, 0.011))
LOST = WorkerInput(2, why="the dataset is empty")


def with_skew(found: InputSkew) -> Session:
    made = session()
    return replace(made, datasets=(replace(made.datasets[0], skew=found), *made.datasets[1:]))


def test_alone_nothing_is_said() -> None:
    assert skew(None) == ""
    assert "skew" not in summary_text(session())
    assert summary(session())["datasets"][0]["skew"] is None  # type: ignore[index, call-overload]


@pytest.mark.parametrize("inputs", [(), (EVEN,), (EVEN, LOST)])
def test_one_input_has_no_skew(inputs: tuple[WorkerInput, ...]) -> None:
    found = InputSkew(inputs)
    assert (found.ratio, found.slowest, found.first_batch_spread_seconds, found.is_certain) == (None, None, None, False)


@pytest.mark.mission("E2.skew")
def test_the_slowest_is_compared_with_the_median() -> None:
    two, three = InputSkew((EVEN, LATE)), InputSkew((EVEN, LATE, THIRD))
    assert (two.ratio, three.ratio) == (pytest.approx(21 / 16), pytest.approx(21 / 11))
    assert two.slowest is three.slowest is LATE
    assert three.first_batch_spread_seconds == pytest.approx(0.03), "of those that were seen"


@pytest.mark.parametrize(("inputs", "certain"), [((EVEN, LATE), True), ((EVEN, NEAR), False), ((EVEN, THIRD), False)])
def test_it_is_certain_where_no_round_says_otherwise(inputs: tuple[WorkerInput, ...], certain: bool) -> None:
    assert InputSkew(inputs).is_certain is certain


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (
            (EVEN, LATE),
            "Input skew: each alone, the inputs of 2 workers take 11.0 ms to 21.0 ms a step, worker 1 1.31x the "
            "median, and every step waits for it; the last worker's first batch comes 30.0 ms after the first's.",
        ),
        (
            (EVEN, replace(NEAR, first_seconds=None)),
            "Input skew: each alone, the inputs of 2 workers take 11.0 ms to 12.0 ms a step, no further apart than "
            "the rounds of one worker.",
        ),
        ((EVEN, LOST), "The input of worker 2 was not measured: The dataset is empty."),
    ],
)
@pytest.mark.mission("E2.skew")
def test_what_is_said(inputs: tuple[WorkerInput, ...], said: str) -> None:
    assert skew(InputSkew(inputs)) == said


def test_the_terminal_says_it_and_the_session_keeps_it(tmp_path: Path) -> None:
    found = InputSkew((EVEN, LATE, LOST))
    made = with_skew(found)
    said = skew(found)
    assert said in " ".join(summary_text(made).split())
    data: Any = written(tmp_path, made)
    assert session_file.load(tmp_path) == made
    jsonschema.validate(data, schema("session"))
    kept = data["summary"]["datasets"][0]["skew"]
    assert (kept["slowest"], kept["certain"], kept["ratio"]) == (1, True, pytest.approx(21 / 16))
    assert kept["first_batch_ms"] == pytest.approx(30)
    assert [one["ms_per_step"] for one in kept["inputs"]] == [pytest.approx(11), pytest.approx(21), None]
    assert kept["inputs"][2]["why"] == LOST.why
