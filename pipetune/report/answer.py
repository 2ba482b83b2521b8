"""The first part of a report: the outcome in a few words, how much faster training is or in plain words why it is not;
the steps before and after, the patch, whether it is safe, what to type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from posixpath import join

from pipetune.core.distribution import COORDINATOR, InputDistribution
from pipetune.core.edits import inserted_caches
from pipetune.core.measurement import Interval
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.results import validation_share
from pipetune.core.session import (
    LIKELY_FROM,
    WORTH_APPROVAL,
    Candidate,
    DatasetResult,
    OptionalRewrite,
    PatchResult,
    Session,
    SessionOutcome,
    asks_for_approval,
    best_offer,
    decisive_trials,
    found_rewrites,
    has_accepted_trial,
    offers_to_approve,
    outcome_of,
    undecided_trials,
    untried_rewrites,
)
from pipetune.report import words
from pipetune.report.blocks import Block, Claim, Commands, Forest, Listing, Sentence, ratio_axis
from pipetune.report.patch import apply_words, checks, diff, shown_patch, why_no_patch
from pipetune.report.places import Places, analyze_words, results_folder, script_words, shell
from pipetune.report.step_times import StepTimes, step_bars
from pipetune.report.words import Fact, Figure, interval

_VERDICT_SENTENCE = {
    Verdict.INPUT_BOUND: "The input holds training back.",
    Verdict.BALANCED: "The input costs training a little.",
    Verdict.UNDETERMINED: "The measurements do not tell whether the input holds training back.",
}

_BUSY_SHARE = 0.1
"""Of the cores of this process, used by other processes: from here on intervals are visibly wider."""


@dataclass(frozen=True)
class Headline:
    """What stands first.

    `kind` is one of faster, slower, unproven, withheld, input-only, likely, undecided, nothing, not-input-bound,
    undetermined, profiled, interrupted, failed, no-dataset, running; `big` is what stands in large type, `note` beside
    it.
    """

    kind: str
    big: str
    sentence: str
    details: tuple[str, ...] = ()
    note: str = ""
    speedup: Figure = field(default_factory=Figure)  # of training
    step: str = "step"  # what the time beside it is the time of


def headline(session: Session, places: Places) -> Headline:
    """Returns the outcome: first by the status of the run, then by what was confirmed."""
    result = session.main_dataset
    detail = places.foreign(session.status_detail, lines=True)
    if session.status == "no-dataset" or (result is None and session.status == "done"):
        return Headline("no-dataset", "No dataset", "The script consumed no tf.data dataset.", (detail,))
    found = _measured(session, result, places)
    below = "what was measured is below" if result else "nothing was measured"
    match session.status:
        case "failed":
            return _unfinished("failed", "Failed", f"The run failed; {below}.", found, detail)
        case "interrupted":
            return _unfinished("interrupted", "Interrupted", f"The run was interrupted; {below}.", found, "")
        case "running":
            return _unfinished("running", "Not finished", f"The run has not finished; {below}.", found, detail)
    validation = validation_sentence(session)
    if validation and found.kind in _NO_PLAN and not found.note:
        # What the patch does for validation, the only part that it has, and then why it has none for training.
        assert session.validation is not None
        big, note = _gain_by_validation(session.validation)
        details = (f"{found.big} for training. {found.sentence}", *found.details)
        found = replace(found, big=big, note=note, sentence=validation, details=details, step="training step")
    else:
        found = replace(found, details=(*found.details, validation))
    extra = (_emulated(session), step_note(result.handover if result else None), *found.details)
    return replace(found, details=tuple(filter(None, extra)))


def _emulated(session: Session) -> str:
    """That the steps are not the script's own, where `--step-time` was given; else ''."""
    given = session.command.options.step_time_seconds
    if not given:
        return ""
    return f"Each step only waits, for {1000 * given:g} ms (--step-time): the script's own steps did not run."


def step_note(found: InputDistribution | None) -> str:
    """What a step is in all figures, where a training step takes several elements; '' where it takes one."""
    if found is not None and found.how == COORDINATOR and found.workers > 1:
        return f"A step here is one of each of the {found.workers} workers: so many calls of what is scheduled."
    each = found.elements_per_step if found is not None else 1
    if each == 1:
        return ""
    return f"A step here is one element, for one replica: a training step takes {each} of them at a time."


_NO_PLAN = frozenset({"nothing", "undecided", "undetermined", "not-input-bound"})


def _gain_by_validation(result: DatasetResult) -> tuple[str, str]:
    """What a patch for validation alone gains, and of what: of training and validation together, if known."""
    assert result.input_speedup is not None
    after = validation_share(result.share, training=result.input_speedup.median) if result.share else None
    if result.share and after is not None and after < result.share:
        return words.ratio((1 - after) / (1 - result.share)), "faster epochs"
    return interval(result.input_speedup, words.ratio).short, "faster validation"


def validation_sentence(session: Session) -> str:
    """What the patch does for validation, measured apart from training; "" if it has no part for it."""
    result = session.validation
    if result is None or result.input_speedup is None or result.cost is None:
        return ""
    gain, share = result.input_speedup, result.share
    others = [one for one in session.datasets if one is not result and one.role == "validation" and one.share]
    what = f"Validation on {words.clean(result.pipeline.name)}" if others else "Validation"
    text = f"{what}: its input runs {interval(gain, words.ratio).text} as fast ({gain.pairs} pairs of passes)"
    patch, plan = session.patch, session.plan
    trains = patch is not None and plan is not None and bool(patch.covered_part(plan).rewrites)
    if share:
        speedup = session.training.speedup if trains and session.training is not None else None
        faster = speedup.median if speedup is not None else 1.0  # training is, by the same patch
        after = validation_share(share, training=gain.median / faster)
        if after < share:  # training may have gained more
            text += f" and takes {words.percent(after)} of the time for training and validation"
            text += f" instead of {words.percent(share)}"
    cached = result.plan is not None and bool(inserted_caches(result.plan.edits))
    first = ", from the second pass on: the first one fills the cache" if cached else ""
    alone = "" if trains else " The patch is for validation alone."
    names = words.joined([words.clean(one.pipeline.name) for one in others])
    too = words.percent(sum(one.share or 0.0 for one in others))
    left = f" Left as it was: {names}, with {too} of the time; the same may gain there." if others else ""
    return f"{text}{first}.{alone}{left}"


def busy_sentence(session: Session) -> str:
    """That other processes used enough of the machine to matter; "" if they did not."""
    load = session.load
    if load is None or load.others_share <= _BUSY_SHARE:
        return ""
    return f"busy machine: other processes used {words.percent(load.others_share)} of the {load.cores} cores"


def _unfinished(kind: str, big: str, sentence: str, found: Headline, detail: str) -> Headline:
    if found.speedup.known:  # confirmed before the end came
        return replace(found, details=(sentence, detail, *found.details))
    return Headline(kind, big, sentence, (detail,))


def _measured(session: Session, result: DatasetResult | None, places: Places) -> Headline:
    training = session.training
    if session.candidate is not None:
        found = _candidate(session.candidate, session.work, places)
        return _asking_for_approval(result, found, places, but="") if asks_for_approval(session) else found
    if session.patch is not None and session.patch.verified is False:
        return _withheld_patch(session, session.patch)
    if result is not None and result.plan is not None and result.plan.rewrites:
        if training and training.speedup:
            return _confirmed(session)
        why = words.clean(training.why) if training and training.why else "no training step could be measured"
        gain = interval(result.input_speedup, words.ratio)
        text = f"The input alone delivers {gain.text} the examples." if gain.known else "A plan was found."
        big = gain.short if gain.known else "Plan found"
        parts = (
            text,
            _first_epoch(session, result.input_speedup),
            f"{session.work.capitalize()} was not measured: {words.sentence(why)}",
        )
        text = " ".join(filter(None, parts))
        return Headline("input-only", big, text, note="faster input" if gain.known else "")
    found = _without_plan(session, result.diagnosis if result else None)
    return _asking_for_approval(result, found, places, but=found.sentence) if asks_for_approval(session) else found


def _asking_for_approval(result: DatasetResult | None, found: Headline, places: Places, *, but: str) -> Headline:
    """Returns what was measured to gain if the user allows it, in place of that nothing else is proven to."""
    best = best_offer(result)
    assert best is not None
    offer, gain = best[0], interval(best[1], words.ratio)
    text = f"{offer.rewrite.rule} needs your approval ({words.clean(offer.consent)}), and ran {gain.text} as fast."
    notes = (*offer.rewrite.notes[-1:], *filter(None, [offer.why]))
    details = [*map(places.sentence, notes), but or "Nothing else is proven faster."]
    return replace(found, big=gain.short, note="with your approval", sentence=text, details=tuple(details))


def _candidate(candidate: Candidate, work: str, places: Places) -> Headline:
    """Nothing is proven, but a plan may be faster: it is likely, or undecided."""
    gain = interval(candidate.gain, words.ratio)
    subject = work.capitalize() if candidate.unit == "training" else "The input alone"
    rules = words.joined(list(dict.fromkeys(one.rule for one in candidate.plan.rewrites)))
    span = f"{gain.span.replace(' to ', 'x to ')}x in 80 of 100 cases"
    chance = f"The chance of a gain above 3 % is {words.percent(candidate.probability)}."
    details = [places.sentence(candidate.why)]
    if not candidate.is_worth_a_patch:
        details.append("Its patch is not shown: most likely it gains nothing worth a change.")
    elif not candidate.diff:
        reasons = [places.sentence(one.why) for one in candidate.patch.not_covered] if candidate.patch else []
        details.append(" ".join(["The source cannot express the change.", *reasons[:1]]))
    if candidate.likely:
        text = f"{subject} probably runs {gain.short} as fast with {rules}, which is not proven: {span}. {chance}"
        return Headline("likely", f"Likely {gain.short}", text, tuple(details), note="not proven")
    if candidate.probability >= LIKELY_FROM:  # what is missing are windows
        pairs = candidate.gain.pairs
        source = f"the cost model and {words.count(pairs, 'pair')} of windows" if pairs else "the cost model alone"
        text = f"{subject} may run {gain.short} as fast with {rules}, by {source}: {span}."
    else:
        text = f"{subject} may run faster with {rules}, or may not: {span}. {chance}"
    return Headline("undecided", "Undecided", text, tuple(details))


def _confirmed(session: Session) -> Headline:
    training, work = session.training, session.work.capitalize()
    assert training is not None and training.speedup is not None
    speedup = interval(training.speedup, words.ratio)
    if training.speedup.low > 1:
        later = _first_epoch(session, training.speedup)
        return Headline("faster", speedup.short, later, note=f"faster {session.work}", speedup=speedup)
    if training.speedup.high < 1:
        return Headline("slower", speedup.short, f"{work} runs slower with the plan.", speedup=speedup)
    text = f"{work} is not proven faster: the interval includes 1.00x."
    return Headline("unproven", speedup.short, text, speedup=speedup)


def _first_epoch(session: Session, gain: Interval | None) -> str:
    """That the first epoch is slower, where what was measured has a cache of the plan, full; "" if it has none.

    Where the script is known to read its data a few times, also what all of them together gain.
    """
    plan, patch = session.plan, session.patch
    if plan is None:
        return ""
    measured = patch.covered_part(plan) if patch is not None and patch.verified else plan
    if not inserted_caches(measured.edits):
        return ""
    text = "From the second epoch on: the first one fills the cache."
    epochs = min((one.epochs_read for one in measured.rewrites if one.epochs_read is not None), default=None)
    if epochs is None or epochs < 1 or gain is None:
        return text
    whole = epochs / (1 + (epochs - 1) / gain.median)  # the first one as slow as before
    return f"{text} All {round(epochs, 1):g} epochs together: {words.ratio(whole)}."


def _withheld_patch(session: Session, patch: PatchResult) -> Headline:
    """A patch was written, and is not handed out: nothing is said to be faster."""
    why = words.sentence(words.clean(patch.verification))
    details = [f"Rewrites that the source cannot express are in {PLAN_FILE}."] if session.plan is not None else []
    return Headline("withheld", "No patch", f"The patched script was run, and is withheld. {why}", tuple(details))


def _without_plan(session: Session, diagnosis: Diagnosis | None) -> Headline:
    if diagnosis is None:
        return Headline("undetermined", "No verdict", "The run ended before the verdict.")
    share = diagnosis.most_saved_share
    most = "" if share is None else f" A better input can save at most {words.percent(share)} of a step."
    if diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        profile = session.main_dataset.profile if session.main_dataset is not None else None
        later = profile is not None and profile.cache_seconds is not None  # the first epoch may be another matter
        start = "From the second epoch on, the" if later else "The"
        text = f"{start} input is not what holds training back: the model is the limit.{most}"
        return Headline("not-input-bound", "Input is fine", text)
    tried, undecided, untried = len(decisive_trials(session)), undecided_trials(session), untried_rewrites(session)
    if has_accepted_trial(session):
        found = f" {words.sentence(words.clean(session.training.why))}" if session.training else ""
        text = f"A plan was faster in its trials, but fresh measurements did not confirm it.{found.rstrip()}{most}"
        return Headline("undetermined", "Not confirmed", text)
    if undecided or untried:
        left = words.joined(
            [f"{undecided} of {words.count(tried, 'trial')} undecided"] * bool(undecided)
            + [f"{words.count(untried, 'rewrite')} untried"] * bool(untried)
        )
        return Headline("undetermined", "Undecided", f"The time ended with {left}.{most}")
    if not tried and outcome_of(session) is not SessionOutcome.NONE:
        text = _VERDICT_SENTENCE[diagnosis.verdict] + most
        big = diagnosis.verdict.value.capitalize()
        return Headline("profiled", big, text, ("No trial was run, so nothing is recommended.",))
    if not found_rewrites(session):
        return Headline("nothing", "Nothing to try", f"No rewrite of pipetune can be applied to this pipeline.{most}")
    none = f"{words.count(tried, 'trial')}, and none is proven faster than the current pipeline."
    text = (none if tried else "No rewrite was expected to make training faster.") + most
    return Headline("nothing", "Nothing faster", text)


def next_steps(session: Session, places: Places) -> tuple[Fact, ...]:
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
    approvals = list(_commands_to_approve(session, places)) if script else []
    steps += [*approvals, *again] if asks_for_approval(session) else [*again, *approvals]
    if session.status == "failed" and folder:
        typed = analyze_words(session)
        log = "worker-0.log" if "--workers" in typed else "script.log"
        log = "chief.log" if "--parameter-servers" in typed else log
        steps.append(Fact(shell("less", join(folder, log)), "what the script printed"))
    if session.status == "interrupted" and script:
        steps.append(Fact(shell(*analyze_words(session, as_before=True), *script), "run it to the end"))
    return tuple(steps)


def _commands_to_approve(session: Session, places: Places) -> Iterator[Fact]:
    """The commands that allow what needs approval, one for each option.

    What was not measured in pairs comes with what it would change, if it is for validation, or beside a plan that has
    another rewrite of its rule.
    """
    planned = {one.rule for one in session.plan.rewrites} if session.plan is not None else set[str]()
    results = [one for one in session.datasets if one is session.main_dataset or one.role == "validation"]
    offers = [(offer, result) for result in results for offer in offers_to_approve(result)]
    offered = [(one, result) for one, result in offers if one.gain is None or one.gain.median >= WORTH_APPROVAL]
    for consent in dict.fromkeys(offer.consent for offer, _ in offered):
        allowed = shell(*analyze_words(session), *consent.split(), *script_words(session))
        offers_by_name, notes = dict[str, OptionalRewrite](), dict[str, None]()
        for offer, result in (one for one in offered if one[0].consent == consent):
            main = result is session.main_dataset
            name = offer.rewrite.rule if main else f"{offer.rewrite.rule} of {words.clean(result.pipeline.name)}"
            offers_by_name[name] = max(offers_by_name.get(name, offer), offer, key=_lowest_gain)
            if offer.gain is None and (not main or offer.rewrite.rule in planned):
                sentences = [*([] if main else [offer.why]), *offer.rewrite.notes[-1:]]
                notes |= dict.fromkeys(map(places.sentence, sentences))
        rules = [_with_gain(one) if name == one.rewrite.rule else name for name, one in offers_by_name.items()]
        text = f"measure what needs your approval, too: {words.joined(rules)}"
        yield Fact(allowed, " ".join([f"{text}.", *notes]) if notes else text)


def _lowest_gain(offer: OptionalRewrite) -> float:
    return offer.gain.low if offer.gain is not None else 0.0


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
    if commands := next_steps(session, places):
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
    elif not (outcome_of(session) in _SETTLED or session.validation or session.candidate or _is_withheld(patch)):
        yield Sentence(f"No patch: {why_no_patch(session)}.")
    if patch is not None and not _is_withheld(patch):
        out = (f"Not in the patch: {words.clean(one.rule)}. {places.sentence(one.why)}" for one in patch.not_covered)
        yield from (Sentence(text, quiet=True) for text in dict.fromkeys(out))


def _is_withheld(patch: PatchResult | None) -> bool:
    """Whether it was run and is not handed out, which the headline says."""
    return patch is not None and patch.verified is False
