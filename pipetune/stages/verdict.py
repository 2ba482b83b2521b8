"""Step 2: whether the input limits training, reported before any trial together with bugs in the script."""

from __future__ import annotations

from pipetune.core.profile import Diagnosis, Profile, Verdict
from pipetune.model.bottleneck import diagnose
from pipetune.source.facts import dropped_results
from pipetune.stages.study import Study
from pipetune.tf.pipelines import findings, resuming
from pipetune.tf.script import capture


def give_verdict(study: Study, profile: Profile) -> Diagnosis:
    """Returns the diagnosis, stores it in the session and reports it to the listener."""
    journal, subject = study.journal, study.subject
    diagnosis = diagnose(subject.source.pipeline, profile, study.machine, study.settings)
    found = findings.find(subject.source, subject.use, subject.others, profile=profile)
    if journal.studies_training:
        found += resuming.findings(subject.resuming, subject.source.pipeline)
        found += dropped_results(capture.call_sites())
    journal.update(findings=tuple(dict.fromkeys((*journal.session.findings, *found))))
    journal.dataset(diagnosis=diagnosis)
    if journal.studies_training:
        journal.verdict(diagnosis)
    return diagnosis


def worth_trials(study: Study, diagnosis: Diagnosis) -> bool:
    """Whether to run trials: not if disabled, nor (unless forced) if a faster input cannot speed up training."""
    if not study.settings.trials:
        return False
    return study.settings.force or diagnosis.verdict is not Verdict.NOT_INPUT_BOUND
