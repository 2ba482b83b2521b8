"""Runs a job of `pipetune bench` in this process and collects its messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.messages import Job, Message, Mode, from_line, write_job


def messages_of(
    main: Callable[[], int], folder: Path, monkeypatch: pytest.MonkeyPatch, **job: Any
) -> tuple[list[Message], int]:
    """Returns the messages that `main` sends, and its exit code."""
    read_end, write_end = os.pipe()
    write_job(Job(Mode.BENCH, write_end, out=str(folder), **job), folder / "job.json")
    monkeypatch.setattr(sys, "argv", ["bench", str(folder / "job.json")])
    code = main()
    os.close(write_end)
    with open(read_end, "rb") as stream:
        return [from_line(line) for line in stream], code
