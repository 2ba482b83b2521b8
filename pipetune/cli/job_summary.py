"""The gate as Markdown for the summary of a CI job ($GITHUB_STEP_SUMMARY)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipetune.cli.gate import Gate, text_lines
from pipetune.core.comparison import GateResult
from pipetune.report.places import WITHHELD, places_of
from pipetune.report.words import clean

MOST_LINES = 30
_MOST_WARNINGS = 3


def job_summary(gate: Gate) -> list[str]:
    """Returns at most `MOST_LINES` lines: the checks, the culprit, warnings and as much of the patch as fits.

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
