"""The steps of an analysis, in order. Each step is one module of `stages/`."""

from __future__ import annotations

from pipetune.core.edits import Plan
from pipetune.core.errors import StepFailed
from pipetune.core.measurement import RunFailed
from pipetune.core.profile import Diagnosis, Profile
from pipetune.core.session import Session
from pipetune.core.time_plan import AFTER_NO_SECONDS, TimePlan
from pipetune.stages.advice import advise, compare_inputs, count_worker_shares
from pipetune.stages.confirmation import prove_plan
from pipetune.stages.dataset_costs import measure_dataset_costs, validation_costs_much
from pipetune.stages.distributed_form import write_distributed_form
from pipetune.stages.epochs import measure_epochs, record_steps
from pipetune.stages.files import measure_files, sweep_reads
from pipetune.stages.planning import find_plan, give_verdict, note_tfds_reads, predict_what_if, should_run_trials
from pipetune.stages.profiling import (
    profile_training,
    read_tensorflow_optimizations,
    refine_costs,
    time_device_copy,
    watch_memory,
)
from pipetune.stages.study import Study
from pipetune.stages.validation import tune_validation


def analyze(study: Study) -> Session:
    """Runs the complete analysis and returns the session, which is saved after every step.

    The steps are profile, verdict, trials, patch and the distributed form.

    Raises:
        RunFailed: the pipeline cannot be run at all; the session then has status "failed" and the reason.
        StepFailed: the user's own step raised; as above.
    """
    journal = study.journal
    journal.update(machine=study.machine, datasets=study.subject.results())
    try:
        plan = find_and_prove(study)
        if not study.awaits_verification:
            write_distributed_form(study, plan)
        if study.settings.dataset == "all":
            analyze_other_datasets(study)
        return journal.update(status="done", complete=True)
    except (RunFailed, StepFailed) as failure:
        journal.update(status="failed", status_detail=str(failure), complete=True)
        raise


def find_and_prove(study: Study) -> Plan | None:
    """Returns the proven plan of one dataset, or None; all measurements are stored in the session.

    Raises:
        RunFailed: the pipeline cannot be run.
        StepFailed: the user's own step raised.
    """
    try:
        profile = profile_training(study)
        diagnosis = give_verdict(study, profile)
        note_tfds_reads(study)
        tried = should_run_trials(study, diagnosis)
        refused = study.settings.trials and not tried
        if refused and not validation_costs_much(study, profile):
            study.time_plan.end_within(AFTER_NO_SECONDS)
        profile, diagnosis = refine_costs(study, profile, diagnosis)
        profile = time_device_copy(study, measure_files(study, profile))
        plan = prove_plan(study, find_plan(study, profile, diagnosis)) if tried else None
        tune_validation(study, plan)
        study.time_plan.end_validation()
        if refused:
            study.time_plan.end_within(AFTER_NO_SECONDS)
        if not study.awaits_verification:
            study.time_plan.decide()
            inform(study, study.runner.profile or profile, diagnosis, plan)
        return plan
    finally:
        study.store_load()
        study.runner.close()


def inform_after_verification(study: Study, plan: Plan | None) -> None:
    """Does what `analyze` leaves undone where a patch has to be verified first.

    Args:
        study: in a new process that holds the script at its first step. Its journal goes on with the session.
        plan: the plan that was proven; None if none was.
    """
    result = study.journal.result
    assert result.profile is not None and result.diagnosis is not None
    study.runner.profile = result.profile
    study.time_plan.decide()
    inform(study, result.profile, result.diagnosis, plan)
    write_distributed_form(study, plan)


def inform(study: Study, profile: Profile, diagnosis: Diagnosis, plan: Plan | None) -> None:
    """Measures what decides nothing, most of it in the time that is left, and stores it in the session.

    An error in it is noted, and loses nothing of what was found before.
    """
    try:
        if study.journal.result.cost is None:  # where validation is tuned, they decide that, and are known
            measure_dataset_costs(study, profile)
        read_tensorflow_optimizations(study)
        compare_inputs(study)
        record_steps(study, profile, plan)
        profile = watch_memory(study, profile)
        measure_epochs(study, profile)
        profile = sweep_reads(study, profile)
        count_worker_shares(study)
        advise(study, profile, diagnosis)
        predict_what_if(study, profile, diagnosis, plan)
    except Exception as error:
        study.note_error("The measurements after the decision, which only inform, ended with an error", error)


def analyze_other_datasets(study: Study) -> None:
    """Analyzes the other datasets of the script. Their plans go into plan.json; the patch is for training only."""
    for index in study.subject.others_worth_tuning():
        study.journal.select_dataset(index + 1, TimePlan.of(study.settings))
        try:
            find_and_prove(study.for_other(index))
        except RunFailed as failure:
            study.journal.add_notes(str(failure))
        except Exception as error:
            study.note_error("The analysis of another dataset ended with an error", error)
