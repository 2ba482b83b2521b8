"""`pipetune check`: a gate for continuous integration, on an existing session, and where in the source to look.

It is shown as text, as annotations of GitHub Actions at the lines of a pull request, and as the summary of a job.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipetune.cli import command
from pipetune.cli.command import Answer, lines, session_file_of
from pipetune.core import comparison
from pipetune.core.codec import encode
from pipetune.core.comparison import SESSION, WARNINGS, GateCheck, GateResult
from pipetune.core.pipeline import location_of
from pipetune.core.profile import Finding
from pipetune.core.session import Session
from pipetune.core.session_file import load
from pipetune.report.places import WITHHELD, places_of, shell
from pipetune.report.words import block, clean, ratio
from pipetune.supervisor.results_folder import ResultsFolder, results_folder_of


@dataclass(frozen=True)
class Culprit:
    """The call that bounds the input; if that is not known, where training consumes it."""

    file: str | None  # as in the session; None if that is confidential
    line: int
    sentence: str  # what bounds the input; "" if that is not known


@dataclass(frozen=True)
class Gate:
    session: Session
    folder: str  # of the session, as given on the command line
    checks: tuple[GateCheck, ...]
    findings: tuple[Finding, ...]  # warnings about the script; with a baseline, only new ones
    strict: bool = False  # undetermined checks fail too

    def fails(self, check: GateCheck) -> bool:
        return check.result is GateResult.FAILED or (self.strict and check.result is GateResult.UNDETERMINED)

    @property
    def passed(self) -> bool:
        return not any(map(self.fails, self.checks))

    @property
    def culprit(self) -> Culprit | None:
        """The culprit; None if nothing was measured."""
        dataset = self.session.main_dataset
        if dataset is None or dataset.diagnosis is None:
            return None
        location = location_of(dataset.diagnosis.bottleneck or "", dataset.pipeline)
        file, line = (location.file, location.line) if location else (dataset.file, dataset.line)
        sentence = places_of(self.session).sentence(dataset.diagnosis.bottleneck_sentence)
        return Culprit(None if self.session.command.confidential else file, line, sentence)

    @property
    def remedy(self) -> str:
        """What the patch does, as the predicate of a sentence, and the command that applies it; "" without one."""
        patch, training = self.session.patch, self.session.training
        if patch is None or not patch.diff:
            return ""
        gain = training.speedup if training else None
        work = self.session.work
        known = f"was not measured in {work}"
        if gain is not None:
            known = f"makes {work} {ratio(gain.median)} as fast ({ratio(gain.low)} to {ratio(gain.high)})"
        return f"{known}: {shell('pipetune', 'apply', self.folder)}"


def _text_line(check: GateCheck) -> str:
    return f"{check.result.value:<12}  {check.name}: {clean(check.text)}"


def annotation_lines(gate: Gate) -> Iterator[str]:
    """Yields a workflow command of GitHub Actions for each check that did not pass and for each warning.

    The other checks are text.
    """
    culprit, places = gate.culprit, places_of(gate.session)
    for check in gate.checks:
        if check.result is GateResult.PASSED or check.name == WARNINGS:
            yield _text_line(check)
            continue
        message, place = [f"{check.name}: {check.text}"], {}
        if culprit is not None and check.name != SESSION:
            place = _place(gate, culprit.file, culprit.line)
            message += [culprit.sentence, f"The patch {gate.remedy}" if gate.remedy else ""]
        yield _command(gate.fails(check), place, check.name, *message)
    new = any(gate.fails(check) for check in gate.checks if check.name == WARNINGS)
    for finding in gate.findings:
        place = _place(gate, None if places.confidential else finding.file, finding.line)
        yield _command(new, place, finding.code, places.sentence(finding.message), places.sentence(finding.hint))


def _place(gate: Gate, file: str | None, line: int | None) -> dict[str, str]:
    if not file:
        return {}
    place = {"file": _file_in_repository(file, gate.session.command.directory)}
    return {**place, "line": str(line)} if line else place


def _file_in_repository(file: str, directory: str) -> str:
    """Returns a file as GitHub names it: relative to the checkout, here or where the session was measured."""
    for root in filter(None, (os.environ.get("GITHUB_WORKSPACE"), os.getcwd(), directory)):
        inside = os.path.relpath(file, root) if os.path.isabs(file) else file
        if not inside.startswith(".."):
            return inside
    return file


def _command(fails: bool, place: Mapping[str, str], title: str, *message: str) -> str:
    properties = {**place, "title": f"pipetune: {title}"}
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    text = clean("\n".join(filter(None, message)), lines=True)
    return f"::{'error' if fails else 'warning'} {listed}::{_command_data(text)}"


def _command_data(text: str) -> str:
    """Returns the text of a command with what would end it escaped; as `escapeData` of GitHub's @actions/core."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Returns the value of a property, in which colons and commas are escaped too."""
    return _command_data(text).replace(":", "%3A").replace(",", "%2C")


MOST_LINES = 30
_MOST_WARNINGS = 3


def job_summary(gate: Gate) -> list[str]:
    """Returns at most `MOST_LINES` lines of Markdown for $GITHUB_STEP_SUMMARY, with as much of the patch as fits.

    Foreign text is in fenced blocks only, where Markdown obeys none of it.
    """
    lines = [f"### pipetune: {'passed' if gate.passed else 'failed'}", "", *block("\n".join(_facts(gate)), "text")]
    patch = gate.session.patch
    diff = clean(patch.diff, lines=True).splitlines() if patch else []
    if diff:
        room = MOST_LINES - len(lines) - 3  # the blank line, and both ends of the block
        if len(diff) > room:
            diff = [*diff[: room - 1], f"... {len(diff) - room + 1} more lines"]
        lines += ["", *block("\n".join(diff), "diff")]
    return lines


def _facts(gate: Gate) -> Iterator[str]:
    places, culprit = places_of(gate.session), gate.culprit
    yield from map(_text_line, gate.checks)
    if culprit is not None and any(check.result is not GateResult.PASSED for check in gate.checks):
        file = WITHHELD if places.confidential else culprit.file
        if where := list(filter(None, (places.line(file, culprit.line), culprit.sentence))):
            yield _fact("where", *where)
    for finding in gate.findings[:_MOST_WARNINGS]:
        sentence = f"{finding.code}: {places.sentence(finding.message)}"
        yield _fact("warning", places.line(finding.file, finding.line), sentence)
    more = len(gate.findings) - _MOST_WARNINGS
    if more > 0:
        yield _fact("", f"{more} more in the report")
    if gate.remedy:
        yield _fact("patch", gate.remedy)


def _fact(name: str, *texts: str) -> str:
    return f"{name:<12}  {clean('  '.join(filter(None, texts)))}"


SUMMARY = "a CI gate on a session"

DESCRIPTION = """\
Checks a session; the exit status is 0 if it passed, 1 if it failed. A check
fails only if the whole confidence interval is on the wrong side of the limit, so
noise does not fail a build; with --strict, undetermined checks fail too. The
default check is --max-input-wait 5%."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument(
        "--max-input-wait",
        type=command.share,
        metavar="SHARE",
        help="maximum share of a step that training may wait for input: 5%% or 0.05",
    )
    parser.add_argument(
        "--min-speedup",
        type=command.factor,
        metavar="FACTOR",
        help="minimum speedup of the confirmed plan over the original script: 1.1",
    )
    parser.add_argument(
        "--baseline",
        metavar="SESSION",
        help="an earlier session of the same pipeline: fail on more input wait, new room for improvement, and new "
        "warnings",
    )
    parser.add_argument(
        "--tolerance",
        type=command.share,
        default=0.05,
        metavar="SHARE",
        help="how much worse than the baseline is tolerated (default 5%%)",
    )
    parser.add_argument("--any", action="store_true", help="accept a baseline of another pipeline")
    parser.add_argument("--strict", action="store_true", help="fail undetermined checks too")
    parser.add_argument(
        "--format",
        choices=("text", "json", "github", "markdown"),
        default="text",
        help="json: the same as --json; github: workflow commands, shown at the lines of a pull request; markdown: a "
        "summary of the job, at most 30 lines (default text)",
    )


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: a session cannot be read, or the baseline is of another pipeline.
    """
    if arguments.format == "json":
        arguments.json = True
    gate = _gate(arguments)
    paths = {"session": session_file_of(arguments.session)}
    if arguments.baseline:
        paths["baseline"] = session_file_of(arguments.baseline)
    texts: Iterable[str] = map(_text_line, gate.checks)
    if arguments.format == "github":
        texts = annotation_lines(gate)
    elif arguments.format == "markdown":
        texts = job_summary(gate)
    data = encode({"passed": gate.passed, "checks": gate.checks, "culprit": gate.culprit})
    assert isinstance(data, dict)
    return Answer(data, lines(*texts), paths, exit_code=0 if gate.passed else 1)


def _gate(arguments: argparse.Namespace) -> Gate:
    """Returns the checks of the session that were requested; raises as above."""
    session = load(arguments.session)
    findings = session.findings
    rows = [comparison.check_completed(session, later=_later_run(Path(arguments.session)))]
    wait_limit = arguments.max_input_wait
    if wait_limit is None and arguments.min_speedup is None and arguments.baseline is None:
        wait_limit = 0.05
    if wait_limit is not None:
        rows.append(comparison.check_input_wait(session, wait_limit))
    if arguments.min_speedup is not None:
        rows.append(comparison.check_speedup(session, arguments.min_speedup))
    if arguments.baseline is not None:
        baseline = load(arguments.baseline)
        if not arguments.any:
            comparison.require_same_pipeline(session, baseline)
        rows += comparison.compare_with_baseline(session, baseline, tolerance=arguments.tolerance)
        findings = comparison.new_findings(session, baseline)
    return Gate(session, arguments.session, tuple(rows), findings, strict=arguments.strict)


def _later_run(session: Path) -> str:
    """The last unfinished run newer than the one a results folder shows; "" if there is none, or a run was named."""
    folder = session if session.is_dir() else session.parent
    if results_folder_of(session) != folder.absolute():
        return ""
    run = ResultsFolder(folder).newer_unfinished_run()
    return str(run) if run else ""
