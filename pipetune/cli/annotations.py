"""The gate as workflow commands of GitHub Actions, which become annotations at the lines of a pull request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from pipetune.cli.gate import Gate, text_line
from pipetune.core.comparison import SESSION, WARNINGS, GateResult
from pipetune.report.places import places_of
from pipetune.report.words import clean


def annotation_lines(gate: Gate) -> Iterator[str]:
    """Yields a workflow command for each check that did not pass and for each warning, and the other checks as text."""
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
