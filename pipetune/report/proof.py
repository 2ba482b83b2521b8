"""What was proven about the data: equality, and order and reproducibility."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.changes import SAFETY_WORDS

_CHECK_WORDS = {
    "values": "Values: both pipelines on the same records with the same draws",
    "randomness": "Randomness: as many distinct draws per batch and across epochs",
    "epochs": "Epochs: three whole epochs, what differs between them still differs",
    "spec": "Element spec and static shapes",
    "cardinality": "Cardinality, batch sizes, last batch",
    "options": "Options and determinism",
}


@dataclass(frozen=True)
class CheckRow:
    """One check; `outcome` is "equal", "different" or "not done"."""

    name: str
    outcome: str
    detail: str


@dataclass(frozen=True)
class Equality:
    """Whether the tuned pipeline yields what the original yields."""

    sentence: str
    equal: bool | None
    checks: tuple[CheckRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class OrderView:
    """Run-to-run reproducibility and epochs, before and after."""

    known: bool
    before: str
    after: str
    epochs: str
    sentence: str


def equality(result: DatasetResult) -> Equality:
    comparison = result.comparison
    if comparison is None:
        why = "there is no tuned pipeline to compare" if result.plan is None else "the comparison was not run"
        return Equality(f"Not compared: {why}.", None, (), ())
    done = comparison.equal
    judged = any(check.equal is not None for check in comparison.checks)
    extent = f"{words.count(comparison.elements, 'element')} over {words.count(comparison.epochs, 'epoch')}"
    if not judged:
        text = "No check could be done."
    elif done:
        text = f"The tuned pipeline yields the same data ({SAFETY_WORDS[comparison.safety]}): compared {extent}."
    else:
        text = f"The data differ: {words.clean(comparison.why)}."
    outcomes = {True: "equal", False: "different", None: "not done"}
    return Equality(
        sentence=text,
        equal=done if judged else None,
        checks=tuple(
            CheckRow(
                _CHECK_WORDS.get(check.name, words.clean(check.name)),
                outcomes[check.equal],
                words.clean(check.detail),
            )
            for check in comparison.checks
        ),
        notes=tuple(words.sentence(words.clean(note)) for note in comparison.notes),
    )


def order(result: DatasetResult) -> OrderView:
    value = result.order
    if value is None:
        return OrderView(False, "", "", "", "Order and draws were not examined.")
    answer = {True: "yes", False: "no"}
    before, after = answer[value.reproducible_before], answer[value.reproducible_after]
    epochs = "kept apart" if value.epochs_kept else "no longer apart"
    why = f" {words.sentence(words.clean(value.why))}" if value.why else ""
    return OrderView(
        known=True,
        before=before,
        after=after,
        epochs=epochs,
        sentence=f"Run-to-run reproducible: before {before}, after {after}; epochs {epochs}.{why}",
    )
