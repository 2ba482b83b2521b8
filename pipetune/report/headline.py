"""The first thing a reader sees: the training speedup, or in plain words why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipetune.core.edits import inserted_caches
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.session import (
    Candidate,
    DatasetResult,
    PatchResult,
    Session,
    decisive_trials,
    has_accepted_trial,
    undecided_trials,
    untried_rewrites,
)
from pipetune.report import words
from pipetune.report.handover import step_note
from pipetune.report.places import Places
from pipetune.report.values import Figure, figure, interval

_VERDICT_SENTENCE = {
    Verdict.INPUT_BOUND: "The input holds training back.",
    Verdict.BALANCED: "The input costs training a little.",
    Verdict.NOT_INPUT_BOUND: "The input is not what holds training back.",
    Verdict.UNDETERMINED: "The measurements do not tell whether the input holds training back.",
}


_NO_PATCH = "No patch was made."

_BUSY_SHARE = 0.1
"""Of the cores of this process, used by other processes: from here on intervals are visibly wider."""


@dataclass(frozen=True)
class VerdictView:
    """Whether the input holds training back, and the most a better one can save."""

    word: str
    sentence: str
    wait: Figure  # share of a step
    wait_per_step: Figure
    most_saved: Figure  # share of a step
    bottleneck: str
    why: str = ""


@dataclass(frozen=True)
class Headline:
    """What stands first.

    `kind` is one of faster, slower, unproven, withheld, input-only, nothing, not-input-bound, undetermined, profiled,
    interrupted, failed, no-dataset, running; `big` is what stands in large type.
    """

    kind: str
    speedup: Figure  # of training
    big: str
    sentence: str
    details: tuple[str, ...] = ()


def verdict(result: DatasetResult | None, places: Places) -> VerdictView:
    diagnosis = result.diagnosis if result else None
    if diagnosis is None:
        why = "no dataset was profiled" if result is None else "the run ended before the verdict"
        if result is not None and result.patch is not None:
            why = "it is compared by passes over its data alone"
        missing = Figure(why=why)
        return VerdictView("unknown", f"No verdict: {why}.", missing, missing, missing, "", why)
    why = "the wait was not measured"
    if result and result.profile and result.profile.consumer.why:
        why = words.clean(result.profile.consumer.why)
    return VerdictView(
        word=diagnosis.verdict.value,
        sentence=places.said(diagnosis.sentence) or _VERDICT_SENTENCE[diagnosis.verdict],
        wait=interval(diagnosis.wait_share, words.percent, why=why),
        wait_per_step=figure(diagnosis.wait_seconds, words.seconds, why=why),
        most_saved=figure(diagnosis.most_saved_share, words.percent, why=why),
        bottleneck=places.said(diagnosis.bottleneck_sentence),
    )


def headline(session: Session, places: Places) -> Headline:
    """What happened, decided from the status first, then from what was confirmed."""
    result = session.main_dataset
    detail = places.foreign(session.status_detail, lines=True)
    if session.status == "no-dataset" or (result is None and session.status == "done"):
        missing = Figure(why="no dataset was consumed")
        return Headline("no-dataset", missing, "No dataset", "The script consumed no tf.data dataset.", (detail,))
    found = _measured(session, result, places)
    below = "what was measured is below" if result else "nothing was measured"
    match session.status:
        case "failed":
            return _unfinished("failed", "Failed", f"The run failed; {below}.", found, detail)
        case "interrupted":
            return _unfinished("interrupted", "Interrupted", f"The run was interrupted; {below}.", found, "")
        case "running":
            return _unfinished("running", "Not finished", f"The run has not finished; {below}.", found, detail)
    validation = validation_words(session)
    details = tuple(one for one in found.details if one != _NO_PATCH or not validation)
    notes = tuple(filter(None, (step_note(result.handover if result else None), _busy_words(session))))
    return replace(found, details=(*notes, *details, *filter(None, [validation])))


def validation_words(session: Session) -> str:
    """What the patch does for validation, measured apart from training; "" if it has no part for it."""
    result = session.validation
    if result is None or result.input_speedup is None or result.cost is None:
        return ""
    gain, share, taken = result.input_speedup, result.share, result.cost.epoch_wall_seconds
    known = interval(gain, words.ratio)
    text = f"Validation, apart from training: its input runs {known.text} as fast ({gain.pairs} pairs of passes)"
    if share and taken:
        epoch, patched = taken * (1 - share) / share, taken / gain.median
        after = words.percent(patched / (epoch + patched))
        text += f" and takes {after} of an epoch instead of {words.percent(share)}, with training as written"
    alone = "" if session.plan is not None and session.plan.rewrites else " The patch is for validation alone."
    return f"{text}.{alone}"


def _busy_words(session: Session) -> str:
    """That other processes took enough of the machine to matter; "" if they did not."""
    load = session.load
    if load is None or load.others_share <= _BUSY_SHARE:
        return ""
    return (
        f"While it was measured, other processes used {words.percent(load.others_share)} of the {load.cores} cores. "
        "Ratios are computed without them where the windows tell how; intervals are wider than on an idle machine."
    )


def _unfinished(kind: str, big: str, sentence: str, found: Headline, detail: str) -> Headline:
    if found.speedup.known:  # confirmed before the end came
        return Headline(found.kind, found.speedup, found.big, found.sentence, (sentence, detail, *found.details))
    return Headline(kind, Figure(why="the run ended before confirmation"), big, sentence, (detail,))


def _measured(session: Session, result: DatasetResult | None, places: Places) -> Headline:
    training = session.training
    diagnosis = result.diagnosis if result else None
    if session.candidate is not None:
        return _candidate(session, session.candidate, places)
    if session.patch is not None and session.patch.verified is False:
        return _withheld(session, session.patch)
    if result is not None and result.plan is not None and result.plan.rewrites:
        if training and training.speedup:
            return _confirmed(session)
        why = words.clean(training.why) if training and training.why else "no training step could be measured"
        gain = interval(result.input_speedup, words.ratio, why="the input alone was not measured")
        text = f"The input alone delivers {gain.text} the examples." if gain.known else "A plan was found."
        big = gain.short if gain.known else "Plan found"
        return Headline("input-only", Figure(why=why), big, text)
    return _without_plan(session, diagnosis)


def _candidate(session: Session, candidate: Candidate, places: Places) -> Headline:
    """Nothing is proven, and a plan may be faster: likely so, or not decided."""
    gain = interval(candidate.gain, words.ratio)
    subject = "Training" if candidate.unit == "training" else "The input alone"
    rules = words.joined(list(dict.fromkeys(one.rule for one in candidate.plan.rewrites)))
    span = f"{gain.span.replace(' to ', 'x to ')}x in 80 of 100 cases"
    chance = f"The chance of a gain above 3 % is {words.percent(candidate.probability)}."
    if candidate.likely:
        kind, big, figure_ = "likely", f"Likely {gain.short}", Figure(f"likely {gain.short}", why="it is not proven")
        text = f"{subject} probably runs {gain.short} as fast with {rules}, which is not proven: {span}. {chance}"
    else:
        kind, big, figure_ = "undecided", "Undecided", Figure("undecided", why="nothing is proven")
        text = f"{subject} may run faster with {rules}, or may not: {span}. {chance}"
    details = [places.said(candidate.why)]
    if candidate.diff:
        details.append(
            "The data stays the same. candidate.patch holds the change; `pipetune apply --unproven` applies it."
        )
    else:
        details.append("The data stays the same. The source cannot express the change.")
    return Headline(kind, figure_, big, text, tuple(details))


def _confirmed(session: Session) -> Headline:
    training = session.training
    assert training is not None and training.speedup is not None
    speedup = interval(training.speedup, words.ratio)
    steps = ""
    if training.defaults_step_ms is not None and training.tuned_step_ms is not None:
        tuned = words.milliseconds(training.tuned_step_ms)
        written = words.milliseconds(training.defaults_step_ms)
        steps = f": a step takes {tuned} instead of {written}"
    if training.speedup.low > 1:
        since, details = "", tuple[str, ...]()
        if _fills_cache(session):
            since, details = " from the second epoch on", ("The first epoch gains nothing: it fills the cache.",)
        text = f"Training runs {speedup.short} as fast{since}{steps}."
        return Headline("faster", speedup, speedup.short, text, details)
    if training.speedup.high < 1:
        text = f"Training runs slower with the plan{steps}."
        return Headline("slower", speedup, speedup.short, text)
    text = "Training is not proven faster: the interval includes 1.00x"
    return Headline("unproven", speedup, speedup.short, f"{text}{steps}.")


def _fills_cache(session: Session) -> bool:
    """Whether what was measured has a cache that the script as written has not: windows read it full."""
    plan, patch = session.plan, session.patch
    if plan is None:
        return False
    measured = patch.covered_part(plan) if patch is not None and patch.verified else plan
    return bool(inserted_caches(measured.edits))


def _withheld(session: Session, patch: PatchResult) -> Headline:
    """A patch was written, and is not handed out: nothing is said to be faster."""
    why = words.sentence(words.clean(patch.verification))
    details = [f"Rewrites that the source cannot say are in {PLAN_FILE}."] if session.plan is not None else []
    missing = Figure(why="the patched script is not proven faster than the script as it is")
    text = f"The patched script was run, and is withheld. {why}"
    return Headline("withheld", missing, "No patch", text, tuple(details))


def _without_plan(session: Session, diagnosis: Diagnosis | None) -> Headline:
    most = _most_words(diagnosis)
    if diagnosis is None:
        why = "the run ended before the verdict"
        return Headline("undetermined", Figure(why=why), "No verdict", "The run ended before the verdict.")
    if diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        missing = Figure(why="the input is not what holds training back")
        text = f"Your input is not what holds training back.{most}"
        return Headline("not-input-bound", missing, "Nothing to gain", text, (_NO_PATCH,))
    tried, undecided, untried = len(decisive_trials(session)), undecided_trials(session), untried_rewrites(session)
    if has_accepted_trial(session):
        missing = Figure(why="the plan was not confirmed by fresh measurements")
        found = f" {words.clean(session.training.why)}" if session.training and session.training.why else ""
        found = found if found.endswith(".") or not found else f"{found}."
        text = f"What its trials showed of a plan was not confirmed by fresh measurements.{found}{most}"
        return Headline("undetermined", missing, "Not confirmed", text, (_NO_PATCH,))
    if undecided or untried:
        missing = Figure(why="nothing was decided in the time given")
        left = words.joined(
            [f"{undecided} of {words.count(tried, 'trial')} undecided"] * bool(undecided)
            + [f"{words.count(untried, 'rewrite')} untried"] * bool(untried)
        )
        text = f"The time for trials ended with {left}.{most}"
        return Headline("undetermined", missing, "Undetermined", text, (_NO_PATCH,))
    if not tried:
        missing = Figure(why="no trial was run")
        big = diagnosis.verdict.value.capitalize()
        text = _VERDICT_SENTENCE[diagnosis.verdict] + most
        return Headline("profiled", missing, big, text, ("No trial was run, so nothing is recommended.",))
    missing = Figure(why="no rewrite was proven faster")
    text = f"{words.count(tried, 'trial')}, and none is proven faster than the script as written.{most}"
    return Headline("nothing", missing, "Nothing faster", text, (_NO_PATCH,))


def _most_words(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None or diagnosis.most_saved_share is None:
        return ""
    return f" A better input can save at most {words.percent(diagnosis.most_saved_share)} of a step."
