"""`pipetune bench --accuracy` with a fake process: saved files, output and exit status."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy.report import print_figure
from benchmarks.accuracy.results import AccuracyFigure
from benchmarks.accuracy.suite import SUITE as ACCURACY
from benchmarks.claims import Claim
from tests.benchmarks.accuracy.test_results import CLAIM, VALUES, figure
from tests.benchmarks.fake_process import FakeBench
from tests.core.sessions import MACHINE

pytestmark = pytest.mark.slow


def fake(folder: Path, *, misses: str = "") -> FakeBench:
    figures = {name: figure(name) for name in VALUES}
    if misses:
        figures[misses] = replace(figures[misses], claims=(replace(CLAIM, met=False),))
    return FakeBench(folder, ACCURACY, figures, MACHINE)


def test_finished_figures_are_saved_and_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = fake(tmp_path)
    monkeypatch.setenv("DIES_AFTER", "2")
    assert bench.run() == (["attribution", "bottleneck"], 1)
    data = json.loads((tmp_path / "accuracy.json").read_text())
    assert data["bottleneck"] == VALUES["bottleneck"] and data["overhead"] is None
    assert data["machine"]["processor"] == "An Invented Processor"
    assert "Not measured." in (tmp_path / "accuracy.md").read_text()

    monkeypatch.delenv("DIES_AFTER")
    shown, status = bench.run()
    assert (len(shown), status) == (6, 0)
    assert bench.asked[1] == "prediction false_positives overhead sharing"
    assert "Not measured." not in (tmp_path / "accuracy.md").read_text()

    assert bench.run() == (shown, 0)  # all figures are measured: no process is started
    assert bench.run("overhead") == (["overhead"], 0)  # named figures are measured again
    bench.run(seed=1)  # results of another seed are not continued
    assert [len(line.split()) for line in bench.asked] == [6, 4, 1, 6]


def test_figures_can_be_measured_a_few_at_a_time(tmp_path: Path) -> None:
    bench = fake(tmp_path)
    for _ in range(3):
        bench.run(most=2)
    assert bench.asked == ["attribution bottleneck", "prediction false_positives", "overhead sharing"]


def test_missed_target_has_exit_code_1(tmp_path: Path) -> None:
    assert fake(tmp_path, misses="overhead").run()[1] == 1
    assert "missed" in (tmp_path / "accuracy.md").read_text()


def test_printed_figure_fits_80_columns_without_control_characters() -> None:
    stream = io.StringIO()
    what = "mean error of the attributed CPU time over every operator of every case"
    long = Claim(what, "4.1 % (3.2 % to 5.0 %)", "at most 10 % in the mean", False)
    shown = AccuracyFigure(VALUES["attribution"], (CLAIM, long), ("a \x1b[31m note",))
    print_figure("attribution", shown, stream=stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80 and "\x1b" not in text
    assert "missed" in text and "met" in text and "4.1 %" in text
