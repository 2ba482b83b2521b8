"""`pipetune bench --accuracy` with a fake process: saved files, output and exit status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from pipetune.core.accuracy import AccuracyFigure, Claim
from pipetune.core.errors import PipetuneError
from pipetune.report.accuracy import print_figure
from pipetune.report.progress import Progress
from pipetune.supervisor.benching import AccuracyRequest, measure_accuracy
from tests.core.test_accuracy import CLAIM, VALUES

pytestmark = pytest.mark.slow

FAKE = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from pipetune.core.accuracy import Claim, AccuracyFigure
from pipetune.core.messages import *
from pipetune.core.command import Command
from pipetune.core.session import Session
from tests.core.sessions import MACHINE
from tests.core.test_accuracy import CLAIM, VALUES
job = read_job(Path(sys.argv[1]))
send = MessageWriter(job.message_descriptor).send
assert job.mode is Mode.BENCH
with open(os.path.join(job.out, "asked"), "a") as stream:
    stream.write(" ".join(job.arguments) + "\\n")
send(SessionSaved(Session("0.1.0", Command(), machine=MACHINE)))
dies_after = int(os.environ.get("DIES_AFTER", 9))
for position, name in enumerate(job.arguments):
    if position == dies_after:
        os._exit(1)
    send(Progress("bench", name + ": beginning"))
    met = os.environ.get("MISSES") != name
    claim = Claim("error", "4 %", "below 5 %", met)
    send(FigureMeasured(name, AccuracyFigure(VALUES[name], (claim,), date="2026-01-01")))
send(WorkerFinished(0))
"""


@pytest.fixture
def fake(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "fake.py"
    path.write_text(FAKE.format(root=str(Path(__file__).resolve().parents[2])))
    return (sys.executable, str(path))


def run(command: tuple[str, ...], request: AccuracyRequest) -> tuple[list[str], int]:
    shown: list[str] = []
    with Progress(io.StringIO()) as screen:
        _, status = measure_accuracy(request, screen=screen, show=lambda name, _: shown.append(name), command=command)
    return shown, status


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def test_finished_figures_are_saved_and_not_measured_again(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES_AFTER", "2")
    shown, status = run(fake, AccuracyRequest((), tmp_path))
    assert (shown, status) == (["attribution", "bottleneck"], 1)
    data = json.loads((tmp_path / "accuracy.json").read_text())
    assert data["bottleneck"] == VALUES["bottleneck"] and data["overhead"] is None
    assert data["machine"]["processor"] == "An Invented Processor"
    assert "Not measured." in (tmp_path / "accuracy.md").read_text()

    monkeypatch.delenv("DIES_AFTER")
    shown, status = run(fake, AccuracyRequest((), tmp_path))
    assert (len(shown), status) == (6, 0)
    assert asked(tmp_path)[1] == "prediction false_positives overhead sharing"
    assert "Not measured." not in (tmp_path / "accuracy.md").read_text()

    assert run(fake, AccuracyRequest((), tmp_path)) == (shown, 0)  # all figures are measured: no process is started
    assert run(fake, AccuracyRequest(("overhead",), tmp_path)) == (["overhead"], 0)  # named figures are measured again
    run(fake, AccuracyRequest((), tmp_path, seed=1))  # results of another seed are not continued
    assert [len(line.split()) for line in asked(tmp_path)] == [6, 4, 1, 6]


def test_missed_target_has_exit_code_1(fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISSES", "overhead")
    assert run(fake, AccuracyRequest((), tmp_path))[1] == 1
    assert "missed" in (tmp_path / "accuracy.md").read_text()


def test_unknown_figure_is_usage_error(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="no figure called 'speed'") as caught:
        run((), AccuracyRequest(("speed",), tmp_path))
    assert caught.value.exit_code == 2


def test_printed_figure_fits_80_columns_without_control_characters() -> None:
    stream = io.StringIO()
    long = Claim(
        "mean error of the attributed CPU time over every operator of every case", "4.1 % (3.2 % to 5.0 %)",
        "at most 10 % in the mean", False,
    )  # fmt: skip
    print_figure(
        "attribution", AccuracyFigure(VALUES["attribution"], (CLAIM, long), ("a \x1b[31m note",)), stream=stream
    )
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in stream.getvalue()
    assert "missed" in stream.getvalue() and "met" in stream.getvalue() and "4.1 %" in stream.getvalue()
