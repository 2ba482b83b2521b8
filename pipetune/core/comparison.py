"""The result of comparing the data of two pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.edits import Safety


@dataclass(frozen=True)
class Check:
    """One check: "values", "randomness", "epochs", "generated inputs", "last batches", "spec", "cardinality"..."""

    name: str
    equal: bool | None  # None: the check could not be done; `detail` says why
    detail: str = ""
    late: bool = False  # time ran out first; with more time the check could be done


@dataclass(frozen=True)
class Comparison:
    """All checks of one plan against the original pipeline."""

    safety: Safety
    checks: tuple[Check, ...]
    elements: int  # compared
    epochs: int  # compared
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every check that could be done passed, and at least one was done."""
        done = [check for check in self.checks if check.equal is not None]
        return bool(done) and all(check.equal for check in done)

    @property
    def proven(self) -> bool:
        """Whether values and whole epochs were compared and every required check passed."""
        wanted = {"values", "epochs"} | {check.name for check in self.checks if check.name in _DONE_WHERE_ASKED_FOR}
        return self.equal and wanted <= {check.name for check in self.checks if check.equal}

    @property
    def undecided(self) -> bool:
        """Whether no difference was found and more time could still prove equality."""
        return not self.proven and not self.why and any(check.late for check in self.checks)

    @property
    def why(self) -> str:
        """The first difference found, as "check: detail"; "" if there is none."""
        return next((f"{check.name}: {check.detail}" for check in self.checks if check.equal is False), "")


_DONE_WHERE_ASKED_FOR = frozenset({"randomness", "generated inputs", "last batches"})
"""Checks that not every plan needs; if they are in the list of checks, they must have passed."""
