"""Completes a session from what its workers reported and how they ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipetune.core.edits import Plan
from pipetune.core.measurement import Outcome, Rate, Trial
from pipetune.core.messages import TrialStarted
from pipetune.core.session import Rejection, Session
from pipetune.supervisor.conversation import Conversation, Ending

if TYPE_CHECKING:
    from pipetune.supervisor.verification import Verification

_BESIDE = "It was measured beside a plan that is not recommended."
_TRACEBACK = "Traceback (most recent call last):"
_STATUS = {0: "done", 4: "no-dataset", 130: "interrupted"}


def concluded(session: Session, conversation: Conversation) -> Session:
    """The session with status and side effects as its worker ended."""
    status = _STATUS.get(conversation.exit_code, "failed")
    suppressed = conversation.suppressed
    side_effects = {
        name: max(session.side_effects.get(name, 0), suppressed.get(name, 0))
        for name in (*session.side_effects, *suppressed)
    }
    return replace(
        session,
        status=status,
        status_detail=_detail(session, conversation),
        complete=session.complete and status == "done",
        side_effects=side_effects,
    )


def _detail(session: Session, conversation: Conversation) -> str:
    lost = conversation.lost
    if lost is not None and conversation.ending is not Ending.INTERRUPTED:
        if lost.script_failed or lost.failed or lost.script_exited:
            return f"On {lost.name}: {_detail(session, lost)}"
        return f"{lost.name.capitalize()} {lost.why}. The other workers were ended with it."
    if conversation.ending is Ending.INTERRUPTED:
        return "Interrupted. What was measured until then is here."
    if conversation.script_failed:
        return f"The script raised: {last_line(conversation.script_failed.traceback)}"
    if conversation.failed:
        return conversation.failed.message
    if conversation.script_exited and conversation.exit_code:
        said = conversation.script_exited
        return f"The script ended with exit status {said.code}. {said.detail}".strip()
    if conversation.ending is not Ending.FINISHED:
        if not conversation.heard:
            return f"The process that should measure {conversation.why} before it said a word."
        who = "The script" if not session.studied else "The process that measures"
        return f"{who} {conversation.why}."
    return session.status_detail


def last_line(traceback: str) -> str:
    """The line of a traceback that names the exception: the first one after the frames.

    TensorFlow's messages continue for several lines after it, and may quote another traceback (whose header is followed
    by a blank line).
    """
    lines = traceback.strip().splitlines()
    starts = [number for number, line in enumerate(lines[:-1]) if line == _TRACEBACK and lines[number + 1]]
    behind = lines[starts[-1] + 1 :] if starts else lines
    return next((line for line in behind if line and not line[0].isspace()), "")


def carried_over(before: Session, after: Session, trial: TrialStarted, why: str) -> Session:
    """`after`, from a restarted worker, with the trials of the worker that died.

    Args:
        before: the session of the worker that died.
        after: the session of the restarted worker.
        trial: the trial during which the worker died; added as failed, unless `after` has it.
        why: how the worker died.
    """
    trials = [old for old in before.trials if old not in after.trials]
    noted = any(new.plan.key == trial.plan and new.outcome is Outcome.FAILED for new in after.trials)
    if trial.details and not noted:
        trials.append(Trial(trial.details, Outcome.FAILED, f"the process {why}"))
    return replace(after, trials=(*trials, *after.trials))


def with_verification(session: Session, found: Verification) -> Session:
    """The session after its patch was run. A patch that is not confirmed is never emitted or reported as faster."""
    session = replace(session, patch=found.patch or session.patch)
    patch, dataset = session.patch, session.tuned_dataset
    if patch is None or dataset is None or dataset.plan is None:
        return session
    proof = found.proof
    if proof is not None:
        covered = tuple(one for one in dataset.plan.rewrites if one.key in patch.covered)
        trial = proof.trial(Plan("the patch", covered), kind="verification")
        session = replace(session, trials=(*session.trials, trial))
    if proof is None or not proof.confirmed:
        return withheld(session, found.why)
    checked = f"Run in a process of its own: {found.checked}. " if found.checked else ""
    rates = {**dataset.rates, "tuned": found.rate or Rate(), **proof.rates}
    rates["tuned"] = replace(rates["tuned"], peak_rss_mib=found.peak_rss_mib)
    if "defaults" in dataset.rates:
        rates["defaults"] = replace(rates["defaults"], peak_rss_mib=dataset.rates["defaults"].peak_rss_mib)
    session = replace(
        session,
        patch=replace(patch, verified=True, verification=f"{checked}{proof.why}"),
        training=proof.training or session.training,
    )
    return _with_dataset(
        session,
        rates=rates,
        input_speedup=proof.input_speedup,
        input_speedup_over_autotune=proof.input_speedup_over_autotune,
    )


def withheld(session: Session, why: str, *, verified: bool | None = False) -> Session:
    """The session without its patch and without any number that supported it.

    A plan that the patch covers only in part was measured separately, and stays.

    Args:
        session: holds the patch.
        why: the reason, a sentence for the report.
        verified: as in `PatchResult`; None if the patch was not measured at all.
    """
    patch, dataset = session.patch, session.tuned_dataset
    if patch is None or dataset is None:
        return session
    plan = dataset.plan
    covered = [one for one in plan.rewrites if one.key in patch.covered] if plan is not None else []
    stays = plan is not None and len(covered) < len(plan.rewrites)
    rejected = tuple(Rejection(one.rule, one.node, why) for one in covered)
    gone = {(one.rule, one.node) for one in rejected}
    left = tuple(one for one in patch.not_covered if (one.rule, one.node) not in gone)
    patch = replace(
        patch, diff="", files=(), covered=(), not_covered=(*left, *rejected), verified=verified, verification=why
    )
    training = session.training
    if training is not None:
        training = replace(training, speedup=None, speedup_over_autotune=None, tuned_step_ms=None, why=why)
    form = session.distributed
    if form is not None and form.module and not stays:
        form = replace(form, advice=(*form.advice, "It holds rewrites that the patch was withheld for."))
    session = replace(session, patch=patch, training=training, distributed=form)
    changes: dict[str, Any] = {} if stays else {"plan": None, "tuned": None, "predicted": None, "what_if": ()}
    return _with_dataset(
        session,
        rates={name: rate for name, rate in dataset.rates.items() if name != "tuned"},
        input_speedup=None,
        input_speedup_over_autotune=None,
        gains={},
        rejected=(*dataset.rejected, *(() if stays else rejected)),
        offered=tuple(replace(one, gain=None, why=_BESIDE if one.gain else one.why) for one in dataset.offered),
        **changes,
    )


def _with_dataset(session: Session, **changes: Any) -> Session:
    """The session with these fields of its tuned dataset replaced."""
    tuned = session.tuned_dataset
    datasets = (replace(one, **changes) if one is tuned else one for one in session.datasets)
    return replace(session, datasets=tuple(datasets))
