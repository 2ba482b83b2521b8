"""accuracy.json: the documented keys, what is written is read again, and validates."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from pipetune.core import accuracy
from pipetune.core.accuracy import FIGURES, Accuracy, Claim, Figure
from pipetune.core.errors import PipetuneError
from pipetune.report.accuracy import markdown_text
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


def measured(*names: str) -> Accuracy:
    figures = {name: Figure(VALUES[name], (CLAIM,), ("A note.",), 3.0, "2026-01-01 00:00") for name in names}
    return Accuracy("0.1.0", MACHINE, "2026-01-01 00:00", figures=figures)


def schema() -> dict[str, object]:
    found: dict[str, object] = json.loads(
        resources.files("pipetune.schemas").joinpath("accuracy.schema.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("names", [(), ("overhead",), FIGURES])
def test_what_is_written_is_read_again_and_validates(names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    accuracy.save(measured(*names), path)
    data = json.loads(path.read_text())
    jsonschema.validate(data, schema())
    assert list(data)[2:10] == ["machine", "date", *FIGURES]
    assert [name for name in FIGURES if data[name] is not None] == list(names)
    assert accuracy.load(path) == measured(*names)


@pytest.mark.parametrize("name", FIGURES)
def test_the_schema_misses_a_key_that_is_not_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    accuracy.save(measured(name), path)
    data = json.loads(path.read_text())
    del data[name][next(iter(VALUES[name]))]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_a_figure_takes_the_place_of_an_earlier_one() -> None:
    later = Figure(VALUES["bottleneck"], (replace(CLAIM, met=False),), date="2026-01-02 00:00")
    found = measured("bottleneck", "overhead").with_figure("bottleneck", later)
    assert found.figures["bottleneck"] == later and not later.met
    assert found.figures["overhead"].met
    assert found.date == "2026-01-02 00:00"


def test_no_file_is_nothing_measured_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    assert accuracy.load(path) is None
    path.write_text('{"schema": 1, "pipetune": "0.1.0", "quick": 3}')
    with pytest.raises(PipetuneError, match="is damaged"):
        accuracy.load(path)
    path.write_text("{")
    with pytest.raises(PipetuneError, match="holds no JSON"):
        accuracy.load(path)


def test_what_was_measured_on_another_machine_keeps_that_ones_name() -> None:
    other = replace(MACHINE, processor="Another Processor", memory_available_bytes=1)
    known = measured("attribution", "overhead").on(other).with_figure("sharing", measured("sharing").figures["sharing"])
    assert known.machine == other
    assert {name: figure.machine for name, figure in known.figures.items()} == {
        "attribution": MACHINE,
        "overhead": MACHINE,
        "sharing": None,
    }
    back = known.on(replace(MACHINE, load_average=3.0))
    assert [name for name, figure in back.figures.items() if figure.machine] == ["sharing"]


def test_the_markdown_names_the_other_machine_where_it_was_used() -> None:
    text = markdown_text(measured("attribution", "overhead").on(replace(MACHINE, processor="Another Processor")))
    assert text.count("On another machine: ") == 2
    assert text.index("Another Processor") < text.index("## ") < text.index(MACHINE.processor)
