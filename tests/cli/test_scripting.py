"""`--json`: one object on standard output with the keys that docs/scripting.md documents, also if a command fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks.decisions.cases import Decisions
from pipetune.cli import rules
from pipetune.cli.main import COMMANDS, main
from pipetune.core import session_file
from pipetune.core.errors import PipetuneError
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult
from tests.benchmarks.accuracy.test_results import measured
from tests.benchmarks.rivals.invented import benchmarks
from tests.cli.results import Shell

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "scripting.md").read_text()
SESSION = "reports/train"
CODE = re.compile(r"`([^`]+)`")


def documented(heading: str) -> set[str]:
    """Returns the keys in the first column of the tables below a heading."""
    _, found, section = TEXT.partition(f"\n{heading}\n")
    assert found, heading
    rows = re.split(r"\n#+ ", section)[0].splitlines()
    return {key for row in rows if row.startswith("| `") for key in CODE.findall(row.split("|")[1])}


Printed = Callable[[str], tuple[int, dict[str, Any]]]


@pytest.fixture
def printed(pipetune: Shell) -> Printed:
    """Runs a command and returns its exit code and its object, the only thing on standard output."""

    def done(line: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = pipetune(line)
        return code, dict(json.loads(out))

    return done


def keys_of(answer: dict[str, Any]) -> set[str]:
    """Returns the keys of an object, without those that every object has."""
    common = {"command", "exit_code", "paths", "error"}
    return (answer.keys() - common) | {f"paths.{name}" for name in answer["paths"]}


@pytest.fixture
def folder(patched: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a script with a session in reports/train; nothing is measured."""
    Path("plan.json").write_text((Path("reports/train") / "plan.json").read_text())

    def analyze(request: AnalysisRequest, *, screen: object) -> AnalysisResult:
        one = session_file.load(SESSION)
        results = request.results.with_new_run()
        results.write_all(one)
        return AnalysisResult(one, 0, results)

    monkeypatch.setattr("pipetune.supervisor.analysis.analyze", analyze)
    monkeypatch.setattr("pipetune.supervisor.single_worker.read_machine", lambda device: session_file.load(SESSION))
    monkeypatch.setattr("pipetune.supervisor.single_worker.run_with_plan", lambda *_, **_options: 0)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    suites = {"benchmarks": benchmarks(), "accuracy": measured("overhead"), "decisions": Decisions("0.1.0")}
    monkeypatch.setattr("benchmarks.suites.bench", lambda suite, *_, **_options: (suites[suite.file], 0))
    for name in suites:
        Path("reports", f"{name}.json").write_text("")
    return patched.parent


CASES: list[tuple[str, str, set[str]]] = [  # the heading, a command line, and which documented keys it lacks
    ("analyze", "analyze --json train.py", {"paths.candidate"}),
    ("apply", "apply --json --check", set()),
    ("apply", f"apply --json --diff {SESSION}", set()),
    ("apply", f"apply --json {SESSION}", set()),
    ("check", f"check --json {SESSION} --baseline {SESSION}", set()),
    ("check", f"check --format json {SESSION}", {"paths.baseline"}),
    ("compare", f"compare --json {SESSION} {SESSION}", set()),
    ("run", "run --json --plan . train.py", set()),
    ("rules", "rules --json", set()),
    ("rules", "rules --json cache", set()),
    ("size", f"size --json {SESSION} --replicas 8", set()),
    ("bench", "bench --json", set()),
    ("bench --accuracy", "bench --accuracy --json", set()),
    ("bench --decisions", "bench --decisions --json", set()),
    ("doctor", "doctor --json", set()),
]


@pytest.mark.parametrize(("heading", "line", "absent"), CASES)
def test_printed_keys_are_the_documented_ones(
    folder: Path, printed: Printed, heading: str, line: str, absent: set[str]
) -> None:
    code, answer = printed(line)
    assert (answer["command"], answer["exit_code"], "error" in answer) == (line.split()[0], code, False)
    assert keys_of(answer) == documented(f"### `pipetune {heading}`") - absent
    assert all(Path(path).is_absolute() and Path(path).exists() for path in answer["paths"].values())


def test_every_command_is_documented() -> None:
    headings = {heading.split()[1] for heading in re.findall(r"^### `(pipetune \w+)", TEXT, re.MULTILINE)}
    assert headings == {command.__name__.rpartition(".")[2] for command in COMMANDS}
    assert {heading for heading, _, _ in CASES} | {"report"} == {
        heading.removeprefix("pipetune ") for heading in re.findall(r"^### `(.+)`$", TEXT, re.MULTILINE)
    }


@pytest.mark.parametrize(
    ("words", "report"),
    [("", ""), ("--format html", "reports/train/report.html"), ("--format csv --out a.csv", "a.csv")],
)
def test_report_prints_the_summary_and_names_what_it_wrote(
    folder: Path, printed: Printed, words: str, report: str
) -> None:
    code, answer = printed(f"report --json {SESSION} {words}")
    own = documented("### `pipetune report`") - (set() if report else {"paths.report"})
    of_analyze = {key for key in documented("### `pipetune analyze`") if not key.startswith("paths.")}
    assert code == 0 and keys_of(answer) == of_analyze | own
    assert answer["paths"].get("report", "") == (str(folder / report) if report else "")
    assert answer["outcome"] == "proven" and answer["format"] == (words.split()[1] if words else None)


def test_report_prints_no_second_text_beside_the_object(folder: Path, printed: Printed) -> None:
    code, answer = printed(f"report --json {SESSION} --format csv")
    assert code == 2 and "--out FILE" in answer["error"]["hint"]


def test_candidate_of_an_unproven_session_is_named(folder: Path, unproven: Path, printed: Printed) -> None:
    code, answer = printed("analyze --json train.py")
    assert (code, answer["outcome"]) == (0, "likely")
    assert keys_of(answer) == documented("### `pipetune analyze`") - {"paths.patch"}
    code, answer = printed(f"apply --json {SESSION}")
    assert (code, answer["state"], answer["written"], "error" in answer) == (1, "empty", [], False)
    assert answer["notes"][1].endswith("pipetune apply --unproven reports/train")


def test_states_of_a_patch(folder: Path, printed: Printed) -> None:
    script = str(folder / "train.py")
    found = []
    for words in ("--check", "", "--check", "", "--revert", "--check"):
        code, answer = printed(f"apply --json {words}")
        assert answer["paths"]["results"] == str(folder / "reports" / "train")
        assert answer["files"] == [{"path": script, "state": answer["state"]}]
        found.append((answer["action"], code, answer["state"], answer["written"]))
    assert found == [
        ("check", 1, "not applied", []),
        ("apply", 0, "applied", [script]),
        ("check", 0, "applied", []),
        ("apply", 0, "applied", []),
        ("revert", 0, "not applied", [script]),
        ("check", 1, "not applied", []),
    ]


@pytest.mark.parametrize(
    ("line", "kind", "code", "says"),
    [
        ("chek --json", "usage", 2, "Did you mean check?"),
        ("check --json", "usage", 2, "the following arguments are required: SESSION"),
        (f"check --json {SESSION} --fromat text", "usage", 2, "Did you mean --format?"),
        ("check --json nowhere", "usage", 2, "cannot be read"),
        ("analyze --budget x --json train.py", "usage", 2, "not a number of seconds"),
        ("analyze --json wrong.py", "script", 3, "SyntaxError: invalid syntax"),
        ("apply --json --revert", "failed", 1, "not applied"),
    ],
)
def test_errors_are_objects_with_the_same_exit_code(
    folder: Path, printed: Printed, line: str, kind: str, code: int, says: str
) -> None:
    (folder / "wrong.py").write_text("def (:\n")
    status, answer = printed(line)
    error = answer["error"]
    assert (status, answer["exit_code"], error["exit_code"], error["kind"]) == (code, code, code, kind)
    assert says in error["message"]
    assert {f"error.{name}" for name in error} == documented("## Errors") - {"exit_code"}
    assert answer.keys() == documented("## Every object")


@pytest.mark.parametrize(("code", "kind"), [(1, "failed"), (4, "no-dataset"), (5, "device"), (130, "interrupted")])
def test_kind_of_an_error_is_that_of_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, printed: Printed, code: int, kind: str
) -> None:
    assert re.search(rf"^\| {code} \| `{kind}` \|", TEXT, re.MULTILINE)
    error = KeyboardInterrupt() if code == 130 else PipetuneError("It did not work.", exit_code=code)
    monkeypatch.setattr(rules, "execute", Mock(side_effect=error))
    status, answer = printed("rules --json")
    assert (status, answer["error"]["kind"]) == (code, kind)


def test_mistake_in_pipetune_is_an_object_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rules, "execute", Mock(side_effect=ValueError("of pipetune")))
    with pytest.raises(ValueError, match="of pipetune"):
        main(["rules", "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["exit_code"], error["message"]) == ("failed", 1, "ValueError: of pipetune")


def test_run_of_a_script_that_fails_is_an_error_for_programs_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pipetune: Shell, printed: Printed
) -> None:
    monkeypatch.setattr("pipetune.supervisor.single_worker.run_with_plan", lambda *_, **_options: 3)
    code, answer = printed("run --json --plan . train.py")
    assert (code, answer["error"]["exit_code"]) == (3, 3)
    assert pipetune("run --plan . train.py") == (3, "", "")


def test_json_of_the_script_is_not_an_option_of_pipetune(folder: Path, pipetune: Shell) -> None:
    code, out, _ = pipetune("analyze --bugdet 3 train.py --json")
    assert (code, out) == (2, "")
