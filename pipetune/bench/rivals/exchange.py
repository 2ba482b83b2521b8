"""What the processes of one workload hand each other, in files of its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pipetune.bench import Say
from pipetune.core.benchmarks import CacheUse, Workload, find_workloads
from pipetune.core.codec import decode, encode
from pipetune.core.edits import Plan
from pipetune.core.files import write_text
from pipetune.core.machine import Machine
from pipetune.core.messages import Job, MessageWriter, Progress
from pipetune.core.results import Interval, Rate

Value = TypeVar("Value")

MEASURED_FILE = "measured.json"


def peak_file(rival: str) -> str:
    """The name of the file that holds the peak of a rival."""
    return f"peak-{rival}.json"


@dataclass(frozen=True)
class Measured:
    """One workload, its contenders' windows judged."""

    machine: Machine
    rivals: Mapping[str, Rate]
    ratio_over: Mapping[str, Interval]
    without_cache: Mapping[str, Interval]
    over_defaults: Mapping[str, Interval]
    plans: Mapping[str, Plan]  # by rival
    sets: Mapping[str, str]  # the same in words
    caches: Mapping[str, CacheUse] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peak:
    """Memory of one contender above what the process held before its first element."""

    mib: float | None  # None: the system does not tell


def workload_of(job: Job, name: str) -> Workload:
    """The workload of that name in the folder of examples that the job is about."""
    return find_workloads(Path(job.workload.examples))[name]


def teller(job: Job, writer: MessageWriter) -> Say:
    """Says what is being done with the workload of the job, and how long all of the run took so far."""
    label, started = job.workload.label, job.workload.started

    def say(doing: str) -> None:
        writer.send(Progress("bench", f"{label}: {doing}", elapsed_seconds=time.monotonic() - started))

    return say


def hand_over(value: object, path: Path) -> None:
    """Write a value for the process that started this one."""
    write_text(path, json.dumps(encode(value), allow_nan=False))


def take(kind: type[Value], path: Path) -> Value:
    """The value a process left, of that dataclass.

    Raises:
        PipetuneError, OSError, ValueError: it left none.
    """
    return decode(kind, json.loads(path.read_text(encoding="utf-8")))
