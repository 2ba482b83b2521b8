"""A study of a live dataset, alone: nothing trains on it and nobody listens."""

from __future__ import annotations

from typing import Any

from pipetune.capture import consumption
from pipetune.core.command import Command
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.core.time_plan import TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.measure import machine
from pipetune.pipelines import live
from pipetune.stages.study import Study, Subject


def study_of(dataset: Any) -> Study:
    """The study, its trials forced: there is no training step to say whether they are worth it."""
    here = machine.read_machine()
    settings = Settings(force=True)
    use = consumption.Consumption(dataset, "dataset", "training", "a benchmark")
    subject = Subject(live.read(dataset), consumption.NoConsumer("The input is measured alone."), use)
    journal = Journal(Session(VERSION, Command()), TimePlan.of(settings), Listener())
    journal.update(datasets=subject.results())
    return Study(subject, settings, here, journal)
