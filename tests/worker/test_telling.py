"""What a worker tells the command while it measures."""

from __future__ import annotations

import os

from pipetune.core.measurement import Interval
from pipetune.core.messages import Log, MessageWriter, VerdictKnown, from_line
from pipetune.core.profile import Diagnosis, Finding, Verdict
from pipetune.worker.telling import Telling


def test_a_warning_and_the_bottleneck_are_said_once() -> None:
    """Warnings are in the summary at the end; the bottleneck waits for its final costs, which may name another line."""
    reading, writing = os.pipe()
    telling = Telling(MessageWriter(writing))
    diagnosis = Diagnosis(
        Verdict.INPUT_BOUND, "Training waits.", Interval(0.3, 0.2, 0.4, 8), bottleneck_sentence="The map binds."
    )
    telling.verdict(diagnosis, (Finding("validation-leak", "It leaks.", file="train.py", line=3),))
    telling.bottleneck("The map binds.")
    os.close(writing)
    with open(reading, "rb") as stream:
        sent = [from_line(line) for line in stream]
    assert sent == [VerdictKnown("Training waits.", "input-bound"), Log("The map binds.")]
