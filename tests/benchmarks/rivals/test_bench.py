"""`pipetune bench` with a fake process: saved files, output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.rivals.suite import SUITE
from pipetune.cli.main import main
from tests.benchmarks.fake_process import FakeBench
from tests.benchmarks.rivals.invented import examples, result
from tests.core.sessions import MACHINE

pytestmark = pytest.mark.slow

NAMES = ("table", "series", "digits")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    examples(tmp_path, monkeypatch, *NAMES)
    return FakeBench(tmp_path, SUITE, {name: result(name, 3.0) for name in NAMES}, MACHINE)


def test_finished_workloads_are_saved_and_not_measured_again(fake, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DIES_AFTER", "1")
    assert fake.run() == (["digits"], 1)
    data = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [workload["name"] for workload in data["workloads"]] == ["digits"]
    assert data["machine"]["processor"] == "An Invented Processor"
    assert "## digits" in (tmp_path / "benchmarks.md").read_text() and (tmp_path / "benchmarks.png").exists()

    monkeypatch.delenv("DIES_AFTER")
    for _ in range(2):  # all are measured then: no process is started
        assert fake.run() == (["digits", "series", "table"], 0)
    assert fake.asked == ["digits series table", "series table"]


def test_failed_workload_does_not_affect_others(fake, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FAILS", "series")
    assert fake.run() == (["digits", "table"], 1)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## digits" in text and "## series" not in text and "missing: series" in text


def test_quick_suite_has_its_own_workloads_and_files(fake: FakeBench, tmp_path: Path) -> None:
    assert fake.run(quick=True)[1] == 0
    assert fake.asked == ["table series"]
    assert (tmp_path / "benchmarks-quick.json").exists() and not (tmp_path / "benchmarks.json").exists()


@pytest.mark.parametrize(
    ("option", "kind", "known"),
    [([], "workload", "digits"), (["--decisions"], "case", "photos"), (["--accuracy"], "figure", "overhead")],
)
def test_unknown_name_is_usage_error(option, kind, known, tmp_path, capsys) -> None:
    assert main(["bench", *option, "--out", str(tmp_path), "speed"]) == 2
    said = capsys.readouterr().err
    assert f"no {kind} called 'speed'" in said and known in said


@pytest.mark.parametrize("option", [[], ["--decisions"]])
def test_without_a_clone_there_is_nothing_to_measure(option, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("pipetune.cli.bench.__file__", str(tmp_path / "pipetune" / "cli" / "bench.py"))
    assert main(["bench", *option]) == 2
    assert f"{tmp_path} is not a clone of the repository" in capsys.readouterr().err
