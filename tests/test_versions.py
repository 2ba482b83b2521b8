"""What `make test-versions` chooses and writes; the environments themselves are not made here."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core import requirements
from tests import versions
from tests.versions import ALL, Combination, Result

PROJECT = tomllib.loads((versions.ROOT / "pyproject.toml").read_text())["project"]
OLD, NEW = Combination("2.18", "3.11"), Combination("2.21", "3.13")
PASSED = Result("2.18.1", "3.11.7", "545 passed, 2 skipped", "proven", "2026-11-26", "dbf1d1a")
FAILED = replace(PASSED, tensorflow="2.21.0", python="3.13.0", tests="544 passed, 1 failed")


def release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_tried_are_the_versions_that_pipetune_says_it_supports() -> None:
    tensorflows = [release(one.tensorflow) for one in ALL]
    assert min(tensorflows) == requirements.OLDEST_TENSORFLOW
    assert max(tensorflows) == requirements.NEWEST_TESTED_TENSORFLOW
    pythons = {one.python for one in ALL}
    prefix = "Programming Language :: Python :: 3."
    assert {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith(prefix)} == pythons
    oldest = ".".join(map(str, requirements.OLDEST_PYTHON))
    assert oldest == min(pythons, key=release) and PROJECT["requires-python"] == f">={oldest}"


def test_tensorflow_is_no_dependency_but_an_extra() -> None:
    assert not [name for name in PROJECT["dependencies"] if "tensorflow" in name]
    oldest = ".".join(map(str, requirements.OLDEST_TENSORFLOW))
    assert PROJECT["optional-dependencies"]["tensorflow"] == [f"tensorflow>={oldest}"]
    assert "pipetune[tensorflow]" in PROJECT["optional-dependencies"]["dev"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], list(ALL)),
        (["2.18"], [one for one in ALL if one.tensorflow == "2.18"]),
        (["2.21/3.13", "2.18/3.11"], [OLD, NEW]),
        (["2.18/3.11", "2.18"], [one for one in ALL if one.tensorflow == "2.18"]),
    ],
)
def test_selection(words: list[str], chosen: list[Combination]) -> None:
    assert versions.selected(words) == chosen and chosen


@pytest.mark.parametrize("word", ["2.17", "2.1", "3.11", "2.18/3.13"])
def test_unknown_version_is_an_error(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        versions.main([word])
    assert leaving.value.code == 2
    assert f"There is no {word}; there are 2.18/3.11, " in capsys.readouterr().err


def test_what_passed_with_this_commit_is_not_run_again() -> None:
    def remaining(commit: str, *results: Result) -> list[Combination]:
        return versions.remaining([OLD, NEW], results, commit)

    assert remaining("dbf1d1a", PASSED, FAILED) == [NEW]
    assert remaining("another", PASSED, FAILED) == [OLD, NEW]
    assert remaining("dbf1d1a+", replace(PASSED, commit="dbf1d1a+")) == [OLD, NEW]  # these changes may be others


@pytest.mark.parametrize(
    ("tests", "analysis", "passed"),
    [
        ("545 passed", "none", True),
        ("545 passed, 3 skipped", "undecided", True),
        ("544 passed, 1 failed", "proven", False),
        ("failed: exit code 4", "proven", False),
        ("545 passed", "failed", False),
    ],
)
def test_passed(tests: str, analysis: str, passed: bool) -> None:
    assert replace(PASSED, tests=tests, analysis=analysis).passed is passed


def test_kept_results_are_a_table_of_today() -> None:
    text = versions.RESULTS.read_text()
    assert text == versions._INTRODUCTION + versions.table(versions.read_table(text))


def test_counts_of_a_test_run() -> None:
    suite = '<testsuites><testsuite name="pytest" errors="{}" failures="{}" skipped="{}" tests="9"/></testsuites>'
    assert versions.counted(suite.format(0, 0, 0)) == "9 passed"
    assert versions.counted(suite.format(1, 2, 3)) == "3 passed, 3 skipped, 3 failed"
    assert versions.counted(suite.format(9, 0, 0)) == "0 passed, 9 failed"


def test_analysis_needs_an_outcome_a_session_and_a_report(tmp_path: Path) -> None:
    answer = json.dumps({"outcome": "proven"})
    assert versions.outcome(0, answer, tmp_path) == "failed: exit code 0, no session.json, no report.html"
    (tmp_path / "session.json").touch()
    (tmp_path / "report.html").touch()
    assert versions.outcome(0, answer, tmp_path) == "proven"
    assert versions.outcome(3, answer, tmp_path) == "failed: exit code 3"
    assert versions.outcome(0, "{}", tmp_path) == "failed: no outcome"


def test_results_are_kept_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "versions.md"
    kept.write_text(versions.table([PASSED]))
    tried: list[str] = []

    def attempt(python: Path, _analyze_with: object, commit: str) -> Result:
        assert len(versions.read_table(kept.read_text())) == 1 + len(tried)
        tried.append(str(python))
        return replace(FAILED, python=f"{python}.0", commit=commit)

    monkeypatch.setattr(versions, "RESULTS", kept)
    monkeypatch.setattr(versions, "_commit", lambda: "dbf1d1a")
    monkeypatch.setattr(versions, "_try", attempt)
    monkeypatch.setattr(versions, "environment", lambda one, _interpreter, _folder: one.python)
    monkeypatch.setattr(versions, "find_python", lambda version: None if version == "3.12" else version)
    assert versions.main(["2.18/3.11", "2.21"]) == 1
    assert tried == ["3.11", "3.13"]
    assert "2.21/3.12: there is no python3.12 on the PATH" in capsys.readouterr().out
    assert [one.combination for one in versions.read_table(kept.read_text())] == [
        OLD,
        Combination("2.21", "3.11"),
        NEW,
    ]
    assert versions.main(["2.18/3.11"]) == 0 and len(tried) == 2
