"""The first part of a report: the outcome, the steps before and after, the patch, and whether it is safe."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.session import PatchResult, Session, SessionOutcome, outcome_of
from pipetune.report import words
from pipetune.report.blocks import Block, Claim, Commands, Forest, Listing, Section, Sentence, ratio_axis
from pipetune.report.headline import Headline
from pipetune.report.next_steps import next_steps
from pipetune.report.patch import checks, diff, shown_patch, why_no_patch
from pipetune.report.places import Places
from pipetune.report.step_times import StepTimes, step_bars

_SETTLED = frozenset({SessionOutcome.NOT_INPUT_BOUND, SessionOutcome.FAILED})  # why there is no patch is said already


def answer(session: Session, places: Places, headline: Headline, times: StepTimes) -> Section:
    """The blocks that stand above everything else."""
    return Section("answer", "Answer", tuple(_blocks(session, places, headline, times)))


def _blocks(session: Session, places: Places, headline: Headline, times: StepTimes) -> Iterator[Block]:
    yield Claim(
        headline.kind,
        headline.big,
        headline.note,
        headline.sentence,
        headline.speedup,
        _forest(session, headline),
    )
    for detail in headline.details:
        if "\n" in detail.strip():
            yield Listing(detail.strip("\n"), "Error of the script")
        elif detail:
            yield Sentence(detail)
    if bars := step_bars(times):
        yield bars
    if times.wait_change:
        whose = f" The input is that of {times.whose}, the slowest." if times.whose else ""
        yield Sentence(times.wait_change + whose)
    elif session.main_dataset is not None and headline.kind != "input-only":
        yield Sentence(f"The wait for data was not measured: {words.sentence(times.why)}", quiet=True)
    yield from _patch(session, places)
    if commands := next_steps(session):
        yield Commands(commands)
    if found := checks(session):
        yield found


def _forest(session: Session, headline: Headline) -> Forest | None:
    """The interval of the speedup with its pairs, where both were measured last."""
    if not headline.speedup.known or headline.kind not in ("faster", "slower", "unproven"):
        return None
    last = [trial for trial in session.trials if trial.kind in ("verification", "confirmation") and trial.ratios]
    pairs = next((trial.ratios for trial in reversed(last) if trial.unit == "training"), ())
    return Forest(headline.speedup, ratio_axis([headline.speedup]), pairs, headline.kind)


def _patch(session: Session, places: Places) -> Iterator[Block]:
    shown, offered = diff(session, places), shown_patch(session)
    patch = session.patch
    if shown is not None and offered is not None:
        if offered is not patch:
            how = "" if offered.of_cells else " It is applied only with --unproven."
            yield Sentence(f"This change is not proven.{how}", quiet=True)
        yield shown
    elif patch is not None and patch.covered and places.confidential:
        yield Sentence("The patch is withheld: the session is confidential.")
    elif not (outcome_of(session) in _SETTLED or session.validation or session.candidate or _withheld(patch)):
        yield Sentence(f"No patch: {why_no_patch(session)}.")
    if patch is not None and not _withheld(patch):
        for rejection in patch.not_covered:
            yield Sentence(
                f"Not in the patch: {words.clean(rejection.rule)}. {places.sentence(rejection.why)}", quiet=True
            )


def _withheld(patch: PatchResult | None) -> bool:
    """Whether it was run and is not handed out, which the headline says."""
    return patch is not None and patch.verified is False
