"""accuracy.json: its figures and their interface, schema and round trip; how they are measured, printed, continued."""

from __future__ import annotations

import inspect
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from benchmarks.accuracy import __main__ as bench
from benchmarks.accuracy.__main__ import figure_module
from benchmarks.accuracy.report import markdown_text, print_figure
from benchmarks.accuracy.results import FIGURES, Accuracy, AccuracyFigure
from benchmarks.accuracy.suite import SUITE
from benchmarks.claims import Claim
from benchmarks.figures import load, save
from benchmarks.resumable import ResumableResults
from pipetune.core.codec import decode
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Interval
from pipetune.core.messages import FigureMeasured, LogLine, WorkerFinished
from pipetune.core.settings import Settings
from tests.benchmarks.fake_process import FakeBench
from tests.benchmarks.jobs import messages_of
from tests.core.schemas import schema
from tests.core.sessions import MACHINE

INTERVAL = {"median": 0.004, "low": 0.001, "high": 0.007, "pairs": 40, "method": "t, 95 %"}
VALUES: dict[str, dict[str, object]] = {
    "attribution": {"cases": 24, "mean_error": 0.04, "max_error": 0.09},
    "bottleneck": {"cases": 6, "named": 6},
    "prediction": {"plans": 40, "mean_abs_error": 0.08, "best_in_first_three": 0.9},
    "false_positives": {
        "simulated": {"sessions": 2000, "accepted": 20},
        "real": {"comparisons": 100, "positives": 1, "low": 0.0003, "high": 0.054},
    },
    "overhead": {"images": INTERVAL, "text": INTERVAL},
    "sharing": {"runs": 6, "mean_abs_error": 0.07, "max_abs_error": 0.12},
}
CLAIM = Claim("mean error", "4 %", "at most 10 %", True)


def figure(name: str) -> AccuracyFigure:
    return AccuracyFigure(VALUES[name], (CLAIM,), ("A note.",), 3.0, "2026-01-01 00:00")


def measured(*names: str) -> Accuracy:
    return Accuracy("0.1.0", MACHINE, "2026-01-01 00:00", figures={name: figure(name) for name in names})


@pytest.mark.parametrize("names", [(), ("overhead",), FIGURES])
def test_saved_accuracy_validates_and_round_trips(names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    save(measured(*names), path)
    data = json.loads(path.read_text())
    jsonschema.validate(data, schema("accuracy"))
    assert list(data)[2:10] == ["machine", "date", *FIGURES]
    assert [name for name in FIGURES if data[name] is not None] == list(names)
    assert load(Accuracy, path) == measured(*names)


def test_schema_rejects_missing_key() -> None:
    for name in FIGURES:
        data = measured(*FIGURES).data()
        del data[name][next(iter(VALUES[name]))]  # type: ignore[index, union-attr, call-overload, arg-type]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data, schema("accuracy"))


def test_missing_file_loads_as_none_and_damaged_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    assert load(Accuracy, path) is None
    for text, why in (('{"schema": 1, "pipetune": "0.1.0", "quick": 3}', "is damaged"), ("{", "is not valid JSON")):
        path.write_text(text)
        with pytest.raises(PipetuneError, match=why):
            load(Accuracy, path)


def test_figures_from_another_machine_keep_that_machine() -> None:
    other = replace(MACHINE, processor="Another Processor", memory_available_bytes=1)
    known = measured("attribution", "overhead").with_figure("sharing", figure("sharing"), other)
    assert known.machine == other
    machines = {name: figure.machine for name, figure in known.figures.items()}
    assert machines == {"attribution": MACHINE, "overhead": MACHINE, "sharing": None}
    back = known.with_figure("bottleneck", figure("bottleneck"), replace(MACHINE, load_average=3.0))
    assert [name for name, figure in back.figures.items() if figure.machine] == ["sharing"]


def test_markdown_names_other_machine_of_each_figure() -> None:
    other = replace(MACHINE, processor="Another Processor")
    text = markdown_text(measured("attribution", "overhead").with_figure("sharing", figure("sharing"), other))
    assert text.count("On another machine: ") == 2
    assert text.index("Another Processor") < text.index("## ") < text.index(MACHINE.processor)


# -- `pipetune bench --accuracy` with a fake process


def fake(folder: Path, *, misses: str = "") -> FakeBench:
    figures = {name: figure(name) for name in VALUES}
    if misses:
        figures[misses] = replace(figures[misses], claims=(replace(CLAIM, met=False),))
    return FakeBench(folder, SUITE, figures, MACHINE)


@pytest.mark.slow
def test_figures_can_be_measured_a_few_at_a_time_and_named_ones_again(tmp_path: Path) -> None:
    bench = fake(tmp_path)
    assert bench.run(most=2) == (["attribution", "bottleneck"], 0)
    data = json.loads((tmp_path / "accuracy.json").read_text())
    assert data["bottleneck"] == VALUES["bottleneck"] and data["overhead"] is None
    assert "Not measured." in (tmp_path / "accuracy.md").read_text()
    for _ in range(2):
        bench.run(most=2)
    assert "Not measured." not in (tmp_path / "accuracy.md").read_text()
    assert bench.run("overhead") == (["overhead"], 0)
    bench.run(seed=1)  # results of another seed are not continued
    parts = ["attribution bottleneck", "prediction false_positives", "overhead sharing"]
    assert bench.asked == [*parts, "overhead", " ".join(parts)]


@pytest.mark.slow
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


def test_figure_is_sent_with_its_claims_and_failure_is_reported(tmp_path, monkeypatch) -> None:
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
