"""Whether the tuned pipeline yields the same data: every check, and what is random."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.operators import operator_facts
from pipetune.core.results import Comparison
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.blocks import Block, Checks, Sentence
from pipetune.report.edit_text import SAFETY_WORDS

_CHECK_WORDS = {
    "values": "values: both pipelines on the same records with the same draws",
    "randomness": "randomness: as many distinct draws per batch and across epochs",
    "epochs": "epochs: three whole epochs; what differs between them still differs",
    "spec": "element spec and static shapes",
    "cardinality": "cardinality, batch sizes, last batch",
    "options": "options and determinism",
}
_STATES = {True: "yes", False: "no", None: "unknown"}


def comparison_of(result: DatasetResult) -> Comparison | None:
    """The comparison of the plan to show: of the proven one, else of the candidate; None if there is none."""
    if result.comparison is None and result.candidate is not None:
        return result.candidate.comparison
    return result.comparison


def compared_extent(result: DatasetResult, comparison: Comparison) -> str:
    """How much was compared: "384 batches over 3 epochs"."""
    regrouping = [facts for node in result.pipeline if (facts := operator_facts(node.op)).batches]
    noun = "batch" if regrouping and regrouping[-1].makes_batches else "element"
    return f"{words.count(comparison.elements, noun)} over {words.count(comparison.epochs, 'epoch')}"


def equality_sentence(result: DatasetResult) -> str:
    comparison = comparison_of(result)
    if comparison is None:
        return "The data was not compared."
    extent = compared_extent(result, comparison)
    if all(check.equal is None for check in comparison.checks):
        return "No check could be done."
    if comparison.equal:
        return f"The tuned pipeline yields the same data ({SAFETY_WORDS[comparison.safety]}): compared {extent}."
    return f"The data differs: {words.clean(comparison.why)}."


def equality(result: DatasetResult) -> Iterator[Block]:
    """Every check, and what became of order and draws; nothing where there is no plan to compare."""
    if result.plan is None and result.candidate is None and result.comparison is None:
        return
    yield Sentence(equality_sentence(result))
    comparison = comparison_of(result)
    if comparison is not None and comparison.checks:
        yield Checks(
            "Checks",
            tuple(
                (
                    _STATES[check.equal],
                    _CHECK_WORDS.get(check.name, words.clean(check.name)),
                    words.clean(check.detail),
                )
                for check in comparison.checks
            ),
        )
    for note in comparison.notes if comparison is not None else ():
        yield Sentence(words.sentence(words.clean(note)), quiet=True)
    order = result.order
    if order is None:
        return
    before, after = (
        "the same in every run" if same else "different from run to run"
        for same in (order.reproducible_before, order.reproducible_after)
    )
    epochs = "Epochs stay apart." if order.epochs_kept else "Epochs no longer stay apart."
    why = f" {words.sentence(words.clean(order.why))}" if order.why else ""
    yield Sentence(f"Order and random draws: {before} before, {after} after. {epochs}{why}")
