"""A session goes on only with the same pipeline, on a machine like the one it is of; what is told of it, once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core import session_file
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Interval
from pipetune.core.messages import Job, LogLine, MessageWriter, Mode, VerdictKnown, from_line
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Finding, Verdict
from pipetune.worker.dispatch import PipeListener
from pipetune.worker.study import resumed_session
from tests.core.sessions import MACHINE, session


@pytest.fixture
def job(tmp_path: Path) -> Job:
    session_file.save(session(), tmp_path / "session.json")
    return Job(Mode.ANALYZE, -1, resumed=str(tmp_path / "session.json"))


def test_same_pipeline_on_the_same_machine_goes_on(job: Job) -> None:
    pipeline = session().datasets[0].pipeline
    assert resumed_session(job, pipeline, MACHINE) == session_file.load(job.resumed)
    assert resumed_session(replace(job, resumed=""), pipeline, MACHINE) is None


def test_another_pipeline_is_refused_with_the_first_difference_and_so_is_another_machine(job: Job) -> None:
    pipeline = session().datasets[0].pipeline
    shorter = Pipeline(pipeline.nodes[:-1], pipeline.name)
    with pytest.raises(PipetuneError, match="another pipeline than the one of the session: ") as failure:
        resumed_session(job, shorter, MACHINE)
    assert "again" in failure.value.hint
    with pytest.raises(PipetuneError, match="its number of cores is 2, here it is 8"):
        resumed_session(job, pipeline, replace(MACHINE, cores_affinity=8))


def test_warning_and_bottleneck_are_sent_once() -> None:
    """Warnings come in the final summary; the bottleneck is sent once its final costs are known."""
    reading, writing = os.pipe()
    telling = PipeListener(MessageWriter(writing))
    wait = Interval(0.3, 0.2, 0.4, 8)
    diagnosis = Diagnosis(Verdict.INPUT_BOUND, "Training waits.", wait, bottleneck_sentence="The map binds.")
    telling.verdict(diagnosis, (Finding("validation-leak", "It leaks.", file="train.py", line=3),))
    telling.bottleneck("The map binds.")
    os.close(writing)
    with open(reading, "rb") as stream:
        sent = [from_line(line) for line in stream]
    assert sent == [VerdictKnown("Training waits.", "input-bound"), LogLine("The map binds.")]
