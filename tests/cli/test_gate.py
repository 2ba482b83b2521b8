"""The formats of `pipetune check`: annotations of GitHub at the culprit's line, and the summary of a CI job."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.cli.check import MOST_LINES, Gate, annotation_lines, job_summary
from pipetune.core import session_file
from pipetune.core.comparison import check_completed, check_input_wait
from pipetune.core.profile import Finding
from pipetune.core.session import Session
from pipetune.core.session_file import redact
from tests.cli.results import Shell
from tests.core.sessions import SCRIPT, session
from tests.report.reading import with_main

WAIT = "30.0 % of a step (29.0 % to 31.0 %)"
FAILING = replace(session(spread=0.02), findings=())
PATCH = "The patch makes training 1.30x as fast (1.28x to 1.32x): pipetune apply reports/train"


def gate(
    value: Session = FAILING, *, limit: float = 0.05, strict: bool = False, findings: tuple[Finding, ...] = ()
) -> Gate:
    checks = (check_completed(value), check_input_wait(value, limit))
    return Gate(value, "reports/train", checks, findings or value.findings, strict=strict)


def escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\n", "%0A")


@pytest.mark.parametrize(
    ("limit", "strict", "level"), [("5.0 %", False, "error"), ("30.0 %", True, "error"), ("30.0 %", False, "warning")]
)
def test_check_that_does_not_pass_is_annotated_at_the_culprit(limit: str, strict: bool, level: str) -> None:
    completed, line = annotation_lines(gate(limit=float(limit[:-2]) / 100, strict=strict))
    assert completed == "passed        session: the analysis completed"
    message = escaped(f"input wait: {WAIT}, the limit is {limit}\n{PATCH}")
    assert line == f"::{level} file=train.py,line=5,title=pipetune%3A input wait::{message}"


def test_every_character_that_ends_a_command_is_escaped() -> None:
    finding = Finding("a:b,c", "100 % wrong\r\n::stop-commands::x", "Do: this, then.", "/a,b/c:d%\r\n.py", 9)
    (line,) = list(annotation_lines(gate(limit=0.4, findings=(finding,))))[2:]
    where = "file=/a%2Cb/c%3Ad%25%0D%0A.py,line=9,title=pipetune%3A a%3Ab%2Cc"
    assert line == f"::warning {where}::100 %25 wrong\\u000d ::stop-commands::x.%0ADo: this, then."


@pytest.mark.parametrize(  # without a workspace: relative to where the session was measured
    ("workspace", "file"), [("", "train.py"), ("/home/ada", "secret project/train.py"), ("/elsewhere", "train.py")]
)
def test_file_is_relative_to_the_checkout(monkeypatch: pytest.MonkeyPatch, workspace: str, file: str) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", workspace)
    assert f"::error file={file},line=5," in list(annotation_lines(gate()))[1]


@pytest.mark.parametrize("value", [redact(FAILING), replace(FAILING, datasets=())], ids=["confidential", "unmeasured"])
def test_annotation_without_a_known_file_has_no_place(value: Session) -> None:
    assert list(annotation_lines(gate(value)))[1].startswith("::error title=pipetune%3A input wait::")


def test_incomplete_session_is_no_fault_of_the_culprit() -> None:
    line = next(annotation_lines(gate(replace(FAILING, status="interrupted"))))
    assert line == "::error title=pipetune%3A session::session: the analysis did not complete (interrupted)"


def test_warnings_are_annotated_at_their_own_lines_and_with_a_baseline_only_new_ones(
    tmp_path: Path, pipetune: Shell
) -> None:
    def annotations(code: int, *words: str | Path) -> list[str]:
        done = pipetune("check --format github", tmp_path / "now", *words)
        assert done.code == code
        return [line for line in done.out.splitlines() if line.startswith("::")]

    known, new = session().findings[0], Finding("cached-augmentation", "Frozen", "", SCRIPT, 3)
    for name, findings in (("before", (known,)), ("now", (known, new))):
        session_file.save(replace(FAILING, findings=findings), tmp_path / name / "session.json")
    assert [line.split("::")[1] for line in annotations(0, "--max-input-wait", "50%")] == [
        "warning file=train.py,line=9,title=pipetune%3A validation-leak",
        "warning file=train.py,line=3,title=pipetune%3A cached-augmentation",
    ]
    (only,) = annotations(1, "--baseline", tmp_path / "before")
    assert only == "::error file=train.py,line=3,title=pipetune%3A cached-augmentation::Frozen."


def test_summary_has_checks_culprit_warnings_and_patch() -> None:
    finding = Finding("runs-out-of-data", f"stops in {SCRIPT}", "", SCRIPT, 12)
    assert job_summary(gate(findings=(finding,))) == [
        "### pipetune: failed",
        "",
        "```text",
        "passed        session: the analysis completed",
        f"failed        input wait: {WAIT}, the limit is 5.0 %",
        "where         train.py:5",
        "warning       train.py:12  runs-out-of-data: Stops in train.py.",
        "patch         makes training 1.30x as fast (1.28x to 1.32x): pipetune apply reports/train",
        "```",
        "",
        "```diff",
        "--- a/train.py",
        "+++ b/train.py",
        "```",
    ]
    assert not any(line.startswith("where") for line in job_summary(gate(limit=0.4)))


@pytest.mark.parametrize("length", [2, 15, 16, 17, 500])
def test_summary_is_at_most_thirty_lines_and_says_what_it_leaves_out(length: int) -> None:
    assert FAILING.patch is not None
    long = replace(FAILING.patch, diff="".join(f"+line {number}\n" for number in range(length)))
    findings = tuple(Finding(f"code-{number}", "Wrong.", "", SCRIPT, number) for number in range(9))
    lines = job_summary(gate(replace(FAILING, patch=long), findings=findings))
    assert len(lines) <= MOST_LINES
    assert "              6 more in the report" in lines
    shown = sum(line.startswith("+line") for line in lines)
    left_out = re.search(r"^\.\.\. (\d+) more lines$", "\n".join(lines), re.MULTILINE)
    assert shown + (int(left_out[1]) if left_out else 0) == length


def test_foreign_text_cannot_leave_its_block() -> None:
    finding = Finding("odd", "````\n# a heading", "", SCRIPT, 1)
    lines = job_summary(gate(findings=(finding,)))
    assert lines[2] == "`````text" and lines.count("`````") == 1
    assert not any(line.startswith("# ") for line in lines)


def test_confidential_summary_names_no_file() -> None:
    text = "\n".join(job_summary(gate(redact(FAILING))))
    assert "where         line 5" in text and "train.py" not in text and "diff" not in text


def test_summary_of_a_session_without_places_claims_none() -> None:
    nodes = tuple(replace(node, location=None) for node in FAILING.datasets[0].pipeline)
    built = with_main(with_main(FAILING, "pipeline", nodes=nodes), "diagnosis", bottleneck_sentence="map is slow.")
    assert "where         map is slow." in job_summary(gate(built))
    unknown = with_main(built, "diagnosis", bottleneck_sentence="")
    assert not any(line.startswith("where") for line in job_summary(gate(unknown)))


def test_exit_code_is_the_same_in_each_format(tmp_path: Path, pipetune: Shell) -> None:
    session_file.save(FAILING, tmp_path / "session.json")
    for format in ("github", "markdown", "json"):
        code, printed, _ = pipetune("check --max-input-wait 5% --format", format, tmp_path)
        assert code == 1 and WAIT in printed.replace("%25", "%")
    assert json.loads(printed)["culprit"] == {"file": SCRIPT, "line": 5, "sentence": ""}
