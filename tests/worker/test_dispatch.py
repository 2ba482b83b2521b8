"""Messages of the worker to the command during measurements."""

from __future__ import annotations

import os

from pipetune.core.messages import LogLine, MessageWriter, VerdictKnown, from_line
from pipetune.core.profile import Diagnosis, Finding, Verdict
from pipetune.core.results import Interval
from pipetune.worker.dispatch import PipeListener


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
