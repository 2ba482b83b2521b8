"""The gate of `pipetune check`: the checks of a session, and where in the source to look.

It is shown as text, as annotations of GitHub Actions at the lines of a pull request, and as the summary of a CI job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipetune.core.comparison import SESSION, WARNINGS, GateCheck, GateResult
from pipetune.core.profile import Finding
from pipetune.core.session import Session
from pipetune.core.summary import location_of
from pipetune.report.places import WITHHELD, places_of, shell
from pipetune.report.words import clean, ratio


@dataclass(frozen=True)
class Culprit:
    """The call that bounds the input; if that is not known, where training consumes it."""

    file: str | None  # as in the session; None if that is confidential
    line: int
    sentence: str  # what bounds the input; "" if that is not known


@dataclass(frozen=True)
class Gate:
    """The checks of a session."""

    session: Session
    folder: str  # of the session, as given on the command line
    checks: tuple[GateCheck, ...]
    findings: tuple[Finding, ...]  # warnings about the script; with a baseline, only new ones
    strict: bool = False  # undetermined checks fail too

    def fails(self, check: GateCheck) -> bool:
        """Whether this check fails the gate."""
        return check.result is GateResult.FAILED or (self.strict and check.result is GateResult.UNDETERMINED)

    @property
    def passed(self) -> bool:
        """Whether no check fails."""
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
        known = "was not measured in training"
        if gain is not None:
            known = f"makes training {ratio(gain.median)} as fast ({ratio(gain.low)} to {ratio(gain.high)})"
        return f"{known}: {shell('pipetune', 'apply', self.folder)}"


def text_lines(gate: Gate) -> Iterator[str]:
    """Yields a line for each check."""
    for check in gate.checks:
        yield text_line(check)


def text_line(check: GateCheck) -> str:
    """Returns a check as a line of text."""
    return f"{check.result.value:<12}  {check.name}: {clean(check.text)}"


def annotation_lines(gate: Gate) -> Iterator[str]:
    """Yields a workflow command of GitHub Actions for each check that did not pass and for each warning.

    The other checks are text.
    """
    culprit, places = gate.culprit, places_of(gate.session)
    for check in gate.checks:
        if check.result is GateResult.PASSED or check.name == WARNINGS:
            yield text_line(check)
            continue
        message, place = [f"{check.name}: {check.text}"], {}
        if culprit is not None and check.name != SESSION:
            place = _place(gate, culprit.file, culprit.line)
            message += [culprit.sentence, f"The patch {gate.remedy}" if gate.remedy else ""]
        yield _command(_level(gate.fails(check)), place, check.name, "\n".join(filter(None, message)))
    new = any(gate.fails(check) for check in gate.checks if check.name == WARNINGS)
    for finding in gate.findings:
        message = [places.sentence(finding.message), places.sentence(finding.hint)]
        place = _place(gate, None if places.confidential else finding.file, finding.line)
        yield _command(_level(new), place, finding.code, "\n".join(filter(None, message)))


def _level(fails: bool) -> str:
    return "error" if fails else "warning"


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


def _command(name: str, place: Mapping[str, str], title: str, message: str) -> str:
    properties = {**place, "title": f"pipetune: {title}"}
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {listed}::{_data(clean(message, lines=True))}"


def _data(text: str) -> str:
    """Returns the text of a command with what would end it escaped; as `escapeData` of GitHub's @actions/core."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Returns the value of a property, in which colons and commas are escaped too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


MOST_LINES = 30
_MOST_WARNINGS = 3


def job_summary(gate: Gate) -> list[str]:
    """Returns at most `MOST_LINES` lines of Markdown for $GITHUB_STEP_SUMMARY, with as much of the patch as fits.

    Foreign text is in fenced blocks only, where Markdown obeys none of it.
    """
    lines = [f"### pipetune: {'passed' if gate.passed else 'failed'}", "", *_block("text", list(_facts(gate)))]
    patch = gate.session.patch
    diff = clean(patch.diff, lines=True).splitlines() if patch else []
    if diff:
        room = MOST_LINES - len(lines) - len(_block("diff", [])) - 1
        if len(diff) > room:
            diff = [*diff[: room - 1], f"... {len(diff) - room + 1} more lines"]
        lines += ["", *_block("diff", diff)]
    return lines


def _facts(gate: Gate) -> Iterator[str]:
    places, culprit = places_of(gate.session), gate.culprit
    yield from text_lines(gate)
    if culprit is not None and any(check.result is not GateResult.PASSED for check in gate.checks):
        yield _fact("where", places.line(culprit.file or WITHHELD, culprit.line), culprit.sentence)
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


def _block(language: str, lines: list[str]) -> list[str]:
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]
