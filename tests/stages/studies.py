"""Studies of real datasets for tests: nothing is measured when they are made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipetune.capture.consumption import Consumer, Consumption, NoConsumer
from pipetune.core.machine import Machine
from pipetune.core.profile import ConsumerProfile, Diagnosis, OperatorProfile, Profile, Stage, Verdict
from pipetune.core.session import Session
from pipetune.core.settings import Command, Settings
from pipetune.core.time_plan import TimePlan
from pipetune.journal import Journal, Listener
from pipetune.measure.machine import read_machine
from pipetune.pipelines import call_sites, live
from pipetune.stages.study import Study, Subject
from tests.core.sessions import MACHINE

PROFILE = Profile((), ConsumerProfile("none"))
DIAGNOSIS = Diagnosis(Verdict.INPUT_BOUND, "")


def numbers() -> Any:
    return tf.data.Dataset.range(512).map(lambda x: x * 2).shuffle(16).batch(8)


def study_of(
    dataset: Any,
    *others: Consumption,
    consumer: Consumer | None = None,
    machine: Machine = MACHINE,
    failed: dict[str, str] | None = None,
    directory: str = "",
    **settings: Any,
) -> Study:
    """The study of a script that trains on `dataset` and also has `others`, by default with a budget of 10 s."""
    use = Consumption(dataset, "train", "training", "Model.fit")
    read = tuple((live.read(one.dataset, name=one.name), one) for one in others)
    subject = Subject(live.read(dataset, name="train"), consumer or NoConsumer("nobody trains"), use, read)
    chosen = Settings(**{"budget_seconds": 10.0, **settings})
    session = Session("0", Command(directory=directory), machine=machine, datasets=subject.results())
    return Study(subject, chosen, machine, Journal(session, TimePlan.of(chosen), Listener()), failed=failed or {})


def study_here(dataset: Any, *others: Consumption, **more: Any) -> Study:
    """A study on this machine, by default without trials."""
    return study_of(dataset, *others, **{"machine": read_machine(), "trials": False, "budget_seconds": 60.0, **more})


def operators_of(study: Study, stage: Stage = Stage.TRANSFORM, **measured: float) -> tuple[OperatorProfile, ...]:
    """Measurements that are the same for every operator."""
    return tuple(OperatorProfile(node.id, stage, **measured) for node in study.subject.source.pipeline)


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Records call sites, without datasets that the previous test created at the same ones."""
    call_sites.clear()
    gc.collect()
    with call_sites.Recorder():
        yield


def executed(path: Path, text: str) -> dict[str, Any]:
    """Runs a script, recorded under its file name; returns its globals."""
    made: dict[str, Any] = {"__name__": "__main__"}
    with recorded():
        exec(compile(text, str(path), "exec"), made)
    return made
