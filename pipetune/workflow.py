"""The steps of an analysis, in order. Each step is one module of `stages/`."""

from __future__ import annotations

from pipetune.core.edits import Plan
from pipetune.core.errors import StepFailed
from pipetune.core.garbage import short_collections
from pipetune.core.measurement import RunFailed
from pipetune.core.session import Session
from pipetune.stages.accelerator import time_the_copy
from pipetune.stages.advice import advise
from pipetune.stages.costs import refine_costs
from pipetune.stages.course import take_course
from pipetune.stages.division import count_division
from pipetune.stages.emission import distribute
from pipetune.stages.files import measure_files
from pipetune.stages.memory import watch_memory
from pipetune.stages.outlook import look_ahead
from pipetune.stages.own_work import read_own_work
from pipetune.stages.planning import find_plan
from pipetune.stages.profiling import take_profile
from pipetune.stages.proving import prove_plan
from pipetune.stages.reading import tell_reading
from pipetune.stages.skew import compare_inputs
from pipetune.stages.study import Study
from pipetune.stages.verdict import give_verdict, worth_trials


def analyze(study: Study) -> Session:
    """Runs the whole analysis: profile, verdict, trials, patch, emission; saves the session after every step.

    Raises:
        RunFailed: the pipeline cannot be run at all; the session has status "failed" and the reason.
        StepFailed: the user's own step raised; likewise.
    """
    journal = study.journal
    journal.update(machine=study.machine, datasets=study.subject.results())
    try:
        with short_collections():
            distribute(study, find_and_prove(study))
            if study.settings.dataset == "all":
                analyze_others(study)
        return journal.update(status="done", complete=True)
    except (RunFailed, StepFailed) as failure:
        journal.update(status="failed", status_detail=str(failure), complete=True)
        raise


def find_and_prove(study: Study) -> Plan | None:
    """The proven plan of one dataset, or None; everything measured on the way is in the session."""
    try:
        profile = take_profile(study)
        diagnosis = give_verdict(study, profile)
        compare_inputs(study)
        tell_reading(study)
        profile, diagnosis = refine_costs(study, profile, diagnosis)
        read_own_work(study)
        profile = watch_memory(study, measure_files(study, profile))
        profile = time_the_copy(study, profile)
        tried = worth_trials(study, diagnosis)
        plan = prove_plan(study, find_plan(study, profile, diagnosis)) if tried else None
        # Steps that only inform wait until the plan is decided.
        take_course(study, profile)
        count_division(study)
        advise(study, profile, diagnosis)
        look_ahead(study, study.runner.profile or profile, diagnosis, plan)
        return plan
    finally:
        study.note_load()
        study.runner.restore()
        study.runner.forget()


def analyze_others(study: Study) -> None:
    """Analyzes the other datasets of the script. Their plans go into plan.json; the patch is for training only."""
    for index in range(len(study.subject.others)):
        study.journal.study_dataset(index + 1)
        try:
            find_and_prove(study.of_other(index))
        except RunFailed as failure:
            study.journal.update(notes=(*study.journal.session.notes, str(failure)))
