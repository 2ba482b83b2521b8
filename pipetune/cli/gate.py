"""The gate of `pipetune check`: the checks of a session, and where in the source to look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.comparison import GateCheck, GateResult
from pipetune.core.profile import Finding
from pipetune.core.session import Session
from pipetune.core.summary import location_of
from pipetune.report.places import places_of, shell
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
