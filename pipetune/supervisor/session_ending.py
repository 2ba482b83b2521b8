"""Completes a session from what its workers reported and how they ended; of a cluster whose tasks each measured alone,
the input skew between them."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.core import session_file
from pipetune.core.cluster import ClusterTask
from pipetune.core.distribution import InputSkew, WorkerInput
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Rate
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import Candidate, DatasetResult, PatchResult, Rejection, Session
from pipetune.supervisor.monitoring import Interrupts
from pipetune.supervisor.worker_state import Ending, WorkerState, exception_line

if TYPE_CHECKING:
    from pipetune.search.confirmation import Confirmation
    from pipetune.supervisor.verification import ValidationProof, Verification


_ACCEPTED = 0.95  # chance that what a race has accepted truly gains
_GAIN_WITHHELD = "It was measured in combination with a plan that is not recommended."
_STATUS = {0: "done", 4: "no-dataset", 130: "interrupted"}


def with_ending(session: Session, conversation: WorkerState) -> Session:
    """Returns the session with status and side effects as its worker ended."""
    status = _STATUS.get(conversation.exit_code, "failed")
    suppressed = conversation.suppressed
    names = (*session.side_effects, *suppressed)
    side_effects = {name: max(session.side_effects.get(name, 0), suppressed.get(name, 0)) for name in names}
    detail, complete = _detail(session, conversation), session.complete and status == "done"
    return replace(session, status=status, status_detail=detail, complete=complete, side_effects=side_effects)


def _detail(session: Session, conversation: WorkerState) -> str:
    lost = conversation.lost_peer
    if lost is not None and conversation.ending is not Ending.INTERRUPTED:
        if lost.script_failed or lost.failure or lost.script_exited:
            return f"On {lost.name}: {_detail(session, lost)}"
        return f"{lost.name.capitalize()} {lost.exit_reason}. The other workers were stopped as well."
    if conversation.ending is Ending.INTERRUPTED:
        return "Interrupted. Everything measured until then was saved."
    if conversation.script_failed:
        return f"The script raised an exception: {exception_line(conversation.script_failed.traceback)}"
    if conversation.failure:
        return conversation.failure.message
    if conversation.script_exited and conversation.exit_code:
        exited = conversation.script_exited
        return f"The script ended with exit status {exited.code}. {exited.detail}".strip()
    if conversation.ending is not Ending.FINISHED:
        if not conversation.message_count:
            return f"The measuring process {conversation.exit_reason} before it sent any message."
        who = "The script" if not session.profiled_datasets else "The measuring process"
        return f"{who} {conversation.exit_reason}."
    return session.status_detail


def with_earlier_trials(before: Session, after: Session, tried: Plan, why: str) -> Session:
    """Returns `after`, from a restarted worker, with the trials of the worker that died.

    Args:
        before: the session of the worker that died.
        after: the session of the restarted worker.
        tried: the plan that was tried when the worker died; added as failed, unless `after` has it.
        why: how the worker died.
    """
    trials = [old for old in before.trials if old not in after.trials]
    noted = any(new.plan.key == tried.key and new.outcome is Outcome.FAILED for new in after.trials)
    if not noted:
        trials.append(Trial(tried, Outcome.FAILED, f"the process {why}"))
    return replace(after, trials=(*trials, *after.trials))


def with_verification(session: Session, found: Verification) -> Session:
    """Returns the session after its patch was run; a patch not confirmed is never emitted or reported as faster."""
    session = replace(session, patch=found.patch or session.patch)
    patch, dataset = session.patch, session.main_dataset
    if patch is None or not patch.diff or dataset is None or dataset.plan is None:
        return session
    proof = found.confirmation
    if proof is not None:
        trial = proof.trial(patch.covered_part(dataset.plan, "the patch"), kind="verification")
        session = replace(session, trials=(*session.trials, trial))
    if proof is None or not proof.confirmed:
        return _with_candidate(without_patch(session, found.reason), session, proof)
    checked = f"Run in a separate process: {found.comparison}. " if found.comparison else ""
    rates = {**dataset.rates, "tuned": found.rate or Rate(), **proof.rates}
    if dataset.profile is not None and dataset.profile.verified_buffers:
        rates = dataset.profile.with_own_first_batch(rates)
    rates["tuned"] = replace(rates["tuned"], peak_rss_mib=found.peak_rss_mib)
    if "defaults" in dataset.rates:
        rates["defaults"] = replace(rates["defaults"], peak_rss_mib=dataset.rates["defaults"].peak_rss_mib)
    patch = replace(patch, verified=True, verification=f"{checked}{proof.why}")
    session = replace(session, patch=patch, training=proof.training or session.training)
    return _with_result(
        session,
        session.main_dataset,
        rates=rates,
        gains=proof.gains(dataset.plan, dataset.gains),
        input_speedup=proof.input_speedup,
        input_speedup_over_autotune=proof.input_speedup_over_autotune,
    )


def with_validation(session: Session, found: Verification | None) -> Session:
    """Returns the session after the part of its patch for validation was run; without a proof it has no such part.

    If there is a patch for training, this follows `with_verification`. None was found if the user interrupted.
    """
    result = session.validation
    if result is None or result.patch is None or result.plan is None:
        return session
    proof, training = found.validation if found is not None else None, session.patch
    alone = found.validation_patch if found is not None else None
    if proof is not None and proof.confirmed and alone is not None:
        return _with_proven_validation(replace(session, patch=None), result, alone, proof)
    if training is not None and training.verified is False:
        why = "The patch for training, which it is a part of, was withheld."
    elif proof is not None and proof.confirmed:
        return _with_proven_validation(session, result, result.patch, proof)
    else:
        why = (proof.why if proof is not None else "") or "The run ended before it was measured."
    speedup = proof.speedup if proof is not None else None
    rewrites = result.patch.covered_part(result.plan).rewrites
    rejected = tuple(Rejection(one.rule, one.node, why, speedup) for one in rewrites)
    if not rejected:  # the patch changes validation as it does training
        session = replace(session, notes=(*session.notes, f"The gain for {result.pipeline.name} is not known: {why}"))
    rejected = (*result.rejected, *rejected)
    return _with_result(
        session, result, plan=None, tuned=None, comparison=None, order=None, patch=None, rejected=rejected
    )


def _with_proven_validation(
    session: Session, result: DatasetResult, own: PatchResult, proof: ValidationProof
) -> Session:
    """Returns the session with `own`, which holds its patch for training and the part for validation, as its patch."""
    assert result.cost is not None and result.cost.epoch_elements is not None
    name, elements = result.pipeline.name, result.cost.epoch_elements
    seconds = {"defaults": proof.written_seconds, "tuned": proof.patched_seconds}
    rates = {one: Rate(batches_per_second=elements / value) for one, value in seconds.items() if value}
    training = session.patch or PatchResult(process_mib=own.process_mib)
    sentence = f"{training.verification} Of {name}: {proof.checked}.".strip()
    texts: dict[str, Any] = {"diff": own.diff, "files": own.files, "digests": own.digests, "texts": own.texts}
    patch = replace(training, **texts, verified=True, verification=sentence)
    session = replace(session, patch=patch)
    own = replace(own, diff="", digests={}, texts={}, verified=True, verification=proof.checked)
    gains = {key: proof.speedup for key in own.covered if len(own.covered) == 1 and proof.speedup is not None}
    return _with_result(session, result, patch=own, rates=rates, gains=gains, input_speedup=proof.speedup)


def _with_candidate(session: Session, before: Session, proof: Confirmation | None) -> Session:
    """Returns the session with its plan as a candidate, if the measurement of its patch leaves a gain in sight.

    `before` is the same with the plan and its patch. There is no proof if the patch could not be run.
    """
    dataset, patch = before.main_dataset, before.patch
    if proof is None or dataset is None or dataset.plan is None or patch is None or session.plan is not None:
        return session
    candidate = proof.candidate(patch.covered_part(dataset.plan), dataset.comparison)
    if candidate is None:
        return session
    return _with_result(session, session.main_dataset, candidate=replace(candidate, patch=patch))


def interrupted_before_proof(session: Session) -> Session:
    """Returns the session of a run that was interrupted while its patch was measured: the plan is a candidate."""
    dataset, patch = session.main_dataset, session.patch
    if dataset is None or dataset.plan is None or patch is None or not patch.diff:
        return session
    trials = [one for one in session.trials if one.kind == "search" and one.outcome is Outcome.ACCEPTED and one.gain]
    why = "The run was interrupted before the patch was measured."
    after = without_patch(session, why, verified=None)
    if not trials or after.plan is not None:
        return after
    gain, unit = trials[-1].gain, trials[-1].unit
    assert gain is not None
    covered = patch.covered_part(dataset.plan)
    candidate = Candidate(covered, gain, _ACCEPTED, unit, why, dataset.comparison, patch)
    return _with_result(after, after.main_dataset, candidate=candidate)


def without_patch(session: Session, why: str, *, verified: bool | None = False) -> Session:
    """Returns the session without its patch and without any number that supported it.

    A plan that the patch covers only in part was measured separately, and stays.

    Args:
        session: holds the patch.
        why: the reason, a sentence for the report.
        verified: as in `PatchResult`; None if the patch was not measured at all.
    """
    patch, dataset = session.patch, session.main_dataset
    if patch is None or dataset is None:
        return session
    plan = dataset.plan
    covered = patch.covered_part(plan).rewrites if plan is not None else ()
    stays = plan is not None and len(covered) < len(plan.rewrites)
    rejected = tuple(Rejection(one.rule, one.node, why) for one in covered)
    rejected_places = {(one.rule, one.node) for one in rejected}
    left = tuple(one for one in patch.not_covered if (one.rule, one.node) not in rejected_places)
    patch = replace(
        patch, diff="", files=(), covered=(), not_covered=(*left, *rejected), verified=verified, verification=why
    )
    training = session.training
    if training is not None:
        training = replace(training, speedup=None, speedup_over_autotune=None, tuned_step_ms=None, why=why)
    session = replace(session, patch=patch, training=training)
    changes: dict[str, Any] = {} if stays else {"plan": None, "tuned": None, "predicted": None, "what_if": ()}
    return _with_result(
        session,
        session.main_dataset,
        rates={name: rate for name, rate in dataset.rates.items() if name != "tuned"},
        input_speedup=None,
        input_speedup_over_autotune=None,
        gains={},
        rejected=(*dataset.rejected, *(() if stays else rejected)),
        offered=tuple(replace(one, gain=None, why=_GAIN_WITHHELD if one.gain else one.why) for one in dataset.offered),
        **changes,
    )


def _with_result(session: Session, result: DatasetResult | None, **changes: Any) -> Session:
    datasets = (replace(one, **changes) if one is result else one for one in session.datasets)
    return replace(session, datasets=tuple(datasets))


WAIT_SECONDS = 120.0  # for the sessions of tasks that started with this one and still run
_POLL_SECONDS = 0.5  # by judgement: shorter loads a shared file system, longer delays the end
_ROUNDS = 3  # parts of a window: as many as the rounds in which an analysis in lockstep measures input skew
_NO_PEER_SESSIONS = (
    "The other tasks of the cluster wrote no session below this task's results folder, so the input skew "
    "between the workers is unknown. To measure it, use --out with a folder that all machines share."
)


def peer_names(place: ClusterTask) -> list[str]:
    """Returns the names of the other tasks that train, which are also the names of their folders."""
    names = [f"worker-{number}" for number in range(place.workers - place.has_chief)]
    return names if place.has_chief else names[1:]


def with_input_skew(
    session: Session, folder: Path, place: ClusterTask, interrupts: Interrupts, *, wait_seconds: float = WAIT_SECONDS
) -> Session:
    """Returns the chief's session with the input skew between the workers.

    Args:
        session: of the chief.
        folder: the chief's results folder, which contains those of the other tasks.
        place: the chief's position in the cluster.
        interrupts: an interrupt ends the wait.
        wait_seconds: how long to wait for tasks that have started. A task without a folder here writes its results to
            another place, and is not waited for.
    """
    tuned = session.main_dataset
    if tuned is None or place.workers < 2:
        return session
    names = peer_names(place)
    found = _sessions([folder / name for name in names], interrupts, end=time.monotonic() + wait_seconds)
    if not any(found):
        return replace(session, notes=(*session.notes, _NO_PEER_SESSIONS))
    inputs = [worker_input(0, session)]
    for index, (name, one) in enumerate(zip(names, found, strict=True), start=1):
        why = f"it wrote no session to the subfolder {name}"
        inputs.append(worker_input(index, one) if one is not None else WorkerInput(index, why=why))
    with_skew = replace(tuned, skew=InputSkew(tuple(inputs)))
    return replace(session, datasets=tuple(with_skew if one is tuned else one for one in session.datasets))


def worker_input(worker: int, session: Session) -> WorkerInput:
    """Returns the input times of one worker from its session; its task consumed the input alone."""
    tuned = session.main_dataset
    if tuned is None or tuned.profile is None:
        return WorkerInput(worker, why=session.status_detail or "its session has no dataset")
    profile = tuned.profile
    whole = profile.consumer.input_seconds
    rounds = _part_means(profile.intervals) or ([whole] if whole else [])
    return WorkerInput(worker, tuple(rounds), profile.first_element_seconds)


def _part_means(intervals: Sequence[float]) -> list[float]:
    """The mean of each of `_ROUNDS` parts of a window, as many as `compare_inputs` measures; [] if it is too short."""
    size = len(intervals) // _ROUNDS
    parts = [intervals[number * size : (number + 1) * size] for number in range(_ROUNDS)] if size else []
    return [sum(part) / len(part) for part in parts]


def _sessions(folders: Sequence[Path], interrupts: Interrupts, *, end: float) -> list[Session | None]:
    while True:
        found = [_finished_session(folder) for folder in folders]
        awaited = any(one is None and folder.is_dir() for one, folder in zip(found, folders, strict=True))
        left = min(_POLL_SECONDS, end - time.monotonic())
        if not awaited or left <= 0 or interrupts.count:
            return found
        select.select([interrupts.descriptor], [], [], left)


def _finished_session(folder: Path) -> Session | None:
    try:
        found = session_file.load(folder)
    except PipetuneError:
        return None
    return None if found.status == "running" else found
