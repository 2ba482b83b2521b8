"""Runs a job of `pipetune bench` in this process and collects its messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measuring_process import Measure, run_job
from pipetune.core.messages import Job, Message, Mode, from_line, write_job


def messages_of(
    measure: Measure, folder: Path, monkeypatch: pytest.MonkeyPatch, quick_seconds: float = 300.0, **job: Any
) -> tuple[list[Message], int]:
    """Returns the messages about figures that `measure` measures, and the exit code."""
    monkeypatch.setattr(sys, "argv", ["bench", str(folder / "job.json")])
    read_end, write_end = os.pipe()
    write_job(Job(Mode.BENCH, write_end, out=str(folder), **job), folder / "job.json")
    code = run_job(measure, quick_seconds=quick_seconds)
    os.close(write_end)
    with open(read_end, "rb") as stream:
        return [from_line(line) for line in stream], code
