"""The figures: their interface, saved results, and errors that do not affect other figures."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.accuracy import __main__ as bench
from benchmarks.accuracy.__main__ import figure_module
from benchmarks.accuracy.results import FIGURES, AccuracyFigure
from benchmarks.claims import Claim
from benchmarks.resumable import ResumableResults
from pipetune.core.codec import decode
from pipetune.core.messages import FigureMeasured, LogLine, WorkerFinished
from pipetune.core.results import Interval
from pipetune.core.settings import Settings
from tests.benchmarks.jobs import messages_of, received
from tests.core.sessions import MACHINE


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_the_documented_interface(name: str) -> None:
    module = figure_module(name)
    assert set(inspect.signature(module.measure).parameters) == {"quick", "seed", "progress", "saved"}
    assert list(inspect.signature(module.claims).parameters)[1:] == ["quick"]


@dataclass(frozen=True)
class Invented:
    images: Interval
    notes: tuple[str, ...] = ("a note",)


def measure(*, quick: bool, seed: int, progress: object, saved: ResumableResults) -> Invented:
    assert quick and seed == 7
    assert callable(progress)
    progress("half way")
    saved.get(Interval, "half", lambda: Interval(0.01, 0.0, 0.02, 4))
    return Invented(Interval(0.01, 0.0, 0.02, 4))


def test_figure_is_sent_with_its_claims_and_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_arguments: object) -> None:
        raise RuntimeError("no windows")

    claims = lambda found, *, quick: [Claim("images", f"{found.images.median:.0%}")]  # noqa: E731
    ways = {"attribution": fail, "overhead": measure}
    figures = {name: SimpleNamespace(measure=way, claims=claims) for name, way in ways.items()}
    monkeypatch.setattr(bench, "read_machine", lambda: MACHINE)
    monkeypatch.setattr(bench, "figure_module", figures.__getitem__)
    settings = Settings(quick=True, seed=7)
    messages, code = messages_of(bench.measure, tmp_path, monkeypatch, settings=settings, arguments=tuple(figures))
    assert code == 1 and messages[-1] == WorkerFinished(1)
    (failed,) = [message.text for message in messages if isinstance(message, LogLine)]
    assert "no windows" in failed
    (sent,) = [message for message in messages if isinstance(message, FigureMeasured)]
    assert (sent.name, sent.machine) == ("overhead", MACHINE)
    figure = decode(AccuracyFigure, sent.figure)
    assert set(figure.values) == {"images"} and figure.date
    assert figure.claims == (Claim("images", "1%"),) and figure.notes == ("a note",)
    assert list(tmp_path.glob(".*.part.json")) == []  # the figure is whole


def test_saved_results_are_used_only_under_the_same_condition(tmp_path: Path) -> None:
    path = tmp_path / ".part.json"
    one, other = Claim("what", "1"), Claim("what", "2")
    saved = ResumableResults(path, condition="seed 1")
    assert saved.get(Claim, "one", lambda: one) == saved.get(Claim, "one", lambda: other) == one
    assert ResumableResults(path, condition="seed 1").get(Claim, "one", lambda: other) == one
    text = path.read_text()
    assert ResumableResults(path, condition="seed 2").get(Claim, "one", lambda: other) == other
    path.write_text(text[:-2])
    assert ResumableResults(path, condition="seed 1").get(Claim, "one", lambda: other) == other
    saved.delete()
    assert not path.exists()


@pytest.mark.exhaustive
@pytest.mark.tensorflow
def test_process_reports_the_machine(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    command = [sys.executable, "-m", "benchmarks.accuracy", str(tmp_path / "job.json")]
    run = lambda write_end: subprocess.run(command, pass_fds=(write_end,), check=False).returncode  # noqa: E731
    messages, code = received(tmp_path, run, settings=Settings(quick=True), arguments=("overhead",))
    assert code == 0
    (machine,) = [message.machine for message in messages if isinstance(message, FigureMeasured)]
    assert machine is not None and machine.cores_granted >= 1
    assert messages[-1] == WorkerFinished(0)
