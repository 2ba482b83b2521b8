"""Studies a live dataset without a script: there is no listener, and usually no training."""

from __future__ import annotations

from typing import Any

from pipetune.capture import consumption
from pipetune.core.session import Session
from pipetune.core.settings import Command, Settings
from pipetune.core.time_plan import TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.measure import machine
from pipetune.model.bottleneck import diagnose
from pipetune.pipelines import live
from pipetune.rewrites.rule import RuleContext
from pipetune.stages import planning
from pipetune.stages.files import measure_files
from pipetune.stages.profiling import refine_costs, take_profile
from pipetune.stages.study import Study, Subject, rule_context

NO_CONSUMER = consumption.NoConsumer("The input is measured alone.")


def create_study(
    dataset: Any, *, consumer: consumption.Consumer = NO_CONSUMER, settings: Settings | None = None
) -> Study:
    """Returns the study of a dataset.

    Args:
        dataset: a `tf.data.Dataset`.
        consumer: what takes its elements.
        settings: default: trials are forced, since without a training step it is unknown whether they are worthwhile.
    """
    here, settings = machine.read_machine(), settings or Settings(force=True)
    use = consumption.Consumption(dataset, "dataset", "training", "a benchmark")
    subject = Subject(live.read(dataset), consumer, use)
    session = Session(VERSION, Command(), machine=here, datasets=subject.results())
    return Study(subject, settings, here, Journal(session, TimePlan.of(settings), Listener()))


def measure_facts(study: Study, *, refined: bool = True, files: bool = False) -> RuleContext:
    """Measures what rules need to know in the same way as an analysis.

    Args:
        study: the dataset.
        refined: whether to measure costs by prefix differencing.
        files: whether to measure the files that the pipeline reads.
    """
    profile = take_profile(study)
    diagnosis = diagnose(study.subject.source.pipeline, profile, study.machine, study.settings)
    if refined:
        profile, diagnosis = refine_costs(study, profile, diagnosis)
    if files:
        profile = measure_files(study, profile)
    return rule_context(study, planning.complete_profile(study, profile), diagnosis)
