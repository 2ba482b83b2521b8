"""The first part of a report: the outcome, the steps before and after, the patch, whether it is safe, what to type."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from pipetune.core.session import (
    WORTH_APPROVAL,
    OptionalRewrite,
    PatchResult,
    Session,
    SessionOutcome,
    asks_for_approval,
    offers_to_approve,
    outcome_of,
)
from pipetune.report import words
from pipetune.report.blocks import Block, Claim, Commands, Forest, Listing, Sentence, ratio_axis
from pipetune.report.headline import Headline
from pipetune.report.patch import apply_words, checks, diff, shown_patch, why_no_patch
from pipetune.report.places import Places, analyze_words, results_folder, script_words, shell
from pipetune.report.step_times import StepTimes, step_bars
from pipetune.report.words import Fact, interval


def next_steps(session: Session) -> tuple[Fact, ...]:
    """Commands, the most useful first, each with what it does. The label is the command."""
    folder = results_folder(session)
    script = script_words(session)
    steps: list[Fact] = []
    patch, command = session.patch, session.command
    if not (command.script or command.module or command.confidential):
        return tuple(_in_python(session))
    if patch and patch.diff and patch.verified is not False:
        words_after = apply_words(session, patch)
        undo = shell("pipetune", "apply", "--revert", *words_after)
        steps.append(Fact(shell("pipetune", "apply", *words_after), f"apply the patch (undo: {undo})"))
    planned = session.plan is not None and bool(session.plan.rewrites)
    if script and planned and not (patch and patch.diff and not patch.not_covered):
        run = shell("pipetune", "run", "--plan", join(folder, "plan.json"), *script)
        steps.append(Fact(run, "run with the whole plan, without changing the source"))
    ends_without_plan = script and session.status == "done" and not planned
    again = _again(session, script) if ends_without_plan else []
    candidate = session.candidate
    if candidate is not None and candidate.is_shown:
        assert candidate.patch is not None
        apply = shell("pipetune", "apply", *apply_words(session, candidate.patch))
        which = "the patch for training, not the one shown," if patch and patch.diff else "the patch"
        unproven = Fact(apply, f"apply {which} although it is not proven")
        again.insert(0 if candidate.likely else len(again), unproven)
    approvals = list(_asking(session)) if script else []
    steps += [*approvals, *again] if asks_for_approval(session) else [*again, *approvals]
    if session.status == "failed" and folder:
        typed = analyze_words(session)
        log = "worker-0.log" if "--workers" in typed else "script.log"
        log = "chief.log" if "--parameter-servers" in typed else log
        steps.append(Fact(shell("less", join(folder, log)), "what the script printed"))
    if session.status == "interrupted" and script:
        steps.append(Fact(shell(*analyze_words(session), *script), "run it to the end"))
    return tuple(steps)


def _asking(session: Session) -> Iterator[Fact]:
    """The commands that allow what needs approval, one for each option."""
    offers = offers_to_approve(session.main_dataset)
    offered = [offer for offer in offers if offer.gain is None or offer.gain.median >= WORTH_APPROVAL]
    for consent in dict.fromkeys(offer.consent for offer in offered):
        allowed = shell(*analyze_words(session), *consent.split(), *script_words(session))
        rules = dict.fromkeys(_with_gain(offer) for offer in offered if offer.consent == consent)
        yield Fact(allowed, f"measure what needs your approval, too: {words.joined(list(rules))}")


def _with_gain(offer: OptionalRewrite) -> str:
    """The rule of what needs approval, and what it gained where that was shown to be a gain: "cache (6.0x)"."""
    rule = offer.rewrite.rule
    shown = offer.gain is not None and offer.gain.low > 1
    return f"{rule} ({interval(offer.gain, words.ratio).short})" if shown else rule


def report_step(session: Session) -> Fact | None:
    """How to see the report, for who does not look at it yet."""
    folder = results_folder(session)
    if not folder or session.main_dataset is None:
        return None
    return Fact(shell("pipetune", "report", folder, "--open"), "see why, in the browser")


def _in_python(session: Session) -> Iterator[Fact]:
    """What to type after `tune` or `%%pipetune`, where no script was run."""
    main, patch = session.main_dataset, session.patch
    if main is not None and session.plan is not None and session.plan.rewrites:
        name = main.pipeline.name if main.pipeline.name.isidentifier() else "dataset"
        yield Fact(
            f"{name} = pipetune.apply_plan({name}, session.plan)",
            "train with the plan; session is what tune returned, or the name given to %%pipetune (else _pipetune)",
        )
    if patch is not None and patch.diff and not patch.of_cells:
        yield Fact(shell("pipetune", "apply", "session.json"), 'apply the patch, after session.save("session.json")')


def _again(session: Session, script: tuple[str, ...]) -> list[Fact]:
    """Another run that could tell more, where one could."""
    match outcome_of(session):
        case SessionOutcome.NOT_INPUT_BOUND:
            forced = shell(*analyze_words(session), "--force", *script)
            return [] if session.command.options.force else [Fact(forced, "try to make it faster all the same")]
        case SessionOutcome.UNDECIDED | SessionOutcome.LIKELY if session.candidate is not None:
            resume = shell("pipetune", "analyze", "--resume", results_folder(session) or "session.json")
            return [Fact(resume, "go on measuring")]
        case SessionOutcome.UNDECIDED:
            # Three times what it had, which narrows an interval to about three fifths.
            seconds = f"{3 * session.command.options.budget_seconds:.0f}"
            longer = shell(*analyze_words(session), "--budget", seconds, *script)
            return [Fact(longer, "give it more time to decide")]
        case SessionOutcome.UNTRIED:
            return [Fact(shell(*analyze_words(session), *script), "try the rewrites")]
        case _:
            return []


_SETTLED = frozenset({SessionOutcome.NOT_INPUT_BOUND, SessionOutcome.FAILED})  # why there is no patch is said already


def answer(session: Session, places: Places, headline: Headline, times: StepTimes) -> Iterator[Block]:
    """The blocks that stand above everything else."""
    forest = _forest(session, headline)
    yield Claim(headline.kind, headline.big, headline.note, headline.sentence, headline.speedup, forest, headline.step)
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
        out = (f"Not in the patch: {words.clean(one.rule)}. {places.sentence(one.why)}" for one in patch.not_covered)
        yield from (Sentence(text, quiet=True) for text in dict.fromkeys(out))


def _withheld(patch: PatchResult | None) -> bool:
    """Whether it was run and is not handed out, which the headline says."""
    return patch is not None and patch.verified is False
