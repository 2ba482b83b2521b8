"""Step 4: the plan as a patch to the source, which is verified later; what is not verified is measured again here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipetune.core.edits import Plan
from pipetune.core.measurement import Rate
from pipetune.core.session import Candidate, PatchResult, TrainingResult
from pipetune.core.time_plan import INFORMATION_WITH_PATCH, Part
from pipetune.model.throughput import predict
from pipetune.rewrites.epoch_constancy import order_of
from pipetune.search.confirmation import Confirmation, confirm
from pipetune.stages.emission import diff_of, make_patch
from pipetune.stages.study import Study

if TYPE_CHECKING:
    from pipetune.stages.planning import PlanningResult


def prove_plan(study: Study, planned: PlanningResult) -> Plan | None:
    """Returns the plan of the search, stored in the session; None if there is none or measurements do not confirm it.

    A patch that covers the whole plan is verified and measured in separate processes; a session that ends here reports
    no number for it. A plan that source cannot express, or that will not be verified, is measured in this process.
    """
    plan = planned.result.chosen
    profile = study.runner.profile
    if plan is None and planned.result.candidate is not None:
        keep_candidate(study, planned.result.candidate)
    if plan is None or profile is None:
        return None
    elements = predict(study.runner.edited(plan), profile, study.cores).rate
    study.journal.update_dataset(
        plan=plan,
        tuned=study.runner.edited(plan),
        predicted=Rate(
            examples_per_second=elements * profile.examples_per_element if elements else None,
            peak_rss_mib=study.runner.predicted_bytes(plan) / 2**20,
        ),
        comparison=planned.result.comparison,
        order=order_of(study.subject.source.pipeline, plan),
    )
    patch = make_patch(study, plan) if study.journal.studies_training else None
    if patch is not None and study.patch_is_verified and {one.key for one in plan.rewrites} <= set(patch.covered):
        return plan
    proof = _confirmed(study, planned, plan)
    if proof.confirmed:
        return plan
    study.journal.update_dataset(plan=None, tuned=None, predicted=None)
    if patch is not None:
        study.journal.update(patch=None)
    candidate = proof.candidate(plan, planned.result.comparison)
    if candidate is not None:
        keep_candidate(study, candidate, patch=patch)
    return None


def keep_candidate(study: Study, candidate: Candidate, *, patch: PatchResult | None = None) -> None:
    """Stores a plan that is not proven in the session, with the patch that the user may apply all the same."""
    if patch is None and study.journal.studies_training:
        patch = diff_of(study, candidate.plan, will_be_run=False, tries_others=candidate.is_worth_a_patch)
    study.journal.update_dataset(candidate=replace(candidate, patch=patch))


def _confirmed(study: Study, planned: PlanningResult, plan: Plan) -> Confirmation:
    """Measures the plan again in this process; the measurements are in the session whether or not they confirm it."""
    journal, profile = study.journal, study.runner.profile
    assert profile is not None
    with journal.phase("confirmation", "measuring the plan again"):
        proof = confirm(
            plan,
            study.runner,
            baselines=planned.baselines,
            settings=study.settings,
            seconds=study.time_plan.left(Part.VERIFICATION),
            step_seconds=profile.consumer.real_seconds,
            bound_step_seconds=profile.consumer.bound_seconds,
            notify=journal.notify,
            beside_seconds=study.time_plan.of_sixty(INFORMATION_WITH_PATCH),
        )
        rates = {**journal.result.rates, **proof.rates}
        rates["defaults"] = replace(rates["defaults"], peak_rss_mib=profile.peak_rss_mib)
        journal.update_dataset(
            rates=rates,
            gains=proof.gains(plan, journal.result.gains),
            input_speedup=proof.input_speedup if proof.confirmed else None,
            input_speedup_over_autotune=proof.input_speedup_over_autotune if proof.confirmed else None,
        )
        trial = proof.trial(plan, kind="confirmation")
        known = {one.plan: one.predicted for one in planned.result.predictions}
        trials = (*planned.earlier, *planned.result.trials, replace(trial, predicted=known.get(plan.key)))
        why = () if proof.confirmed else (proof.why,)
        journal.add_notes(*why, trials=trials)
        if journal.studies_training:
            journal.update(training=_training(study, proof))
    return proof


def _training(study: Study, proof: Confirmation) -> TrainingResult | None:
    before = study.journal.session.training
    if proof.training is None:
        return before if study.runner.trains else TrainingResult(why=study.subject.consumer.description)
    if proof.confirmed:
        return proof.training
    return replace(proof.training, speedup=None, speedup_over_autotune=None, tuned_step_ms=None, why=proof.why)
