"""What a session comes to, from what its workers said and how they ended."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.measurement import Outcome, Rate, Trial
from pipetune.core.messages import TrialStarted, Verified
from pipetune.core.session import Rejection, Session
from pipetune.supervisor.conversation import Conversation, Ending

_TRACEBACK = "Traceback (most recent call last):"
_STATUS = {0: "done", 4: "no-dataset", 130: "interrupted"}


def concluded(session: Session, conversation: Conversation) -> Session:
    """The session with the end its worker came to."""
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
    """The line of a traceback that names the exception: the first behind its frames.

    TensorFlow's messages go on behind it for lines, and may quote another traceback (a blank line follows its
    first).
    """
    lines = traceback.strip().splitlines()
    starts = [number for number, line in enumerate(lines[:-1]) if line == _TRACEBACK and lines[number + 1]]
    behind = lines[starts[-1] + 1 :] if starts else lines
    return next((line for line in behind if line and not line[0].isspace()), "")


def carried_over(before: Session, after: Session, trial: TrialStarted, why: str) -> Session:
    """`after`, from a restarted worker, with the trials of the worker that died."""
    trials = [old for old in before.trials if old not in after.trials]
    noted = any(new.plan.key == trial.plan and new.outcome is Outcome.FAILED for new in after.trials)
    if trial.details and not noted:
        trials.append(Trial(trial.details, Outcome.FAILED, f"the process {why}"))
    return replace(after, trials=(*trials, *after.trials))


def with_verification(session: Session, verified: Verified) -> Session:
    """The session after its patch was run. A patch that failed is never emitted."""
    patch = session.patch
    if patch is None:
        return session
    if not verified.verified:
        failed = tuple(
            Rejection(key.partition("@")[0], key.partition("@")[2].partition("=")[0], verified.detail)
            for key in verified.failed_rewrites or patch.covered
        )
        gone = {(rejection.rule, rejection.node) for rejection in failed}
        kept = tuple(old for old in patch.not_covered if (old.rule, old.node) not in gone)
        patch = replace(patch, diff="", files=(), covered=(), not_covered=(*kept, *failed))
    patch = replace(patch, verified=verified.verified, verification=verified.detail)
    session = replace(session, patch=patch)
    if verified.peak_rss_mib is None or not verified.verified:
        return session
    tuned = session.tuned_dataset
    datasets = tuple(
        replace(
            dataset,
            rates={
                **dataset.rates,
                "tuned": replace(dataset.rates.get("tuned", Rate()), peak_rss_mib=verified.peak_rss_mib),
            },
        )
        if dataset is tuned
        else dataset
        for dataset in session.datasets
    )
    return replace(session, datasets=datasets)
