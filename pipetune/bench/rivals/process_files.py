"""The files through which the processes of one workload pass values to each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pipetune.bench.rivals.rounds import RateComparison
from pipetune.core.benchmarks import CacheUse, Workload, find_workloads
from pipetune.core.codec import decode, encode
from pipetune.core.edits import Plan
from pipetune.core.files import write_text
from pipetune.core.machine import Machine
from pipetune.core.messages import Job

Value = TypeVar("Value")

RATES_FILE = "measured.json"


def memory_file(rival: str) -> str:
    """Returns the name of the file with the peak memory of a rival."""
    return f"peak-{rival}.json"


@dataclass(frozen=True)
class RatesMeasurement:
    """What was measured of one workload. Mappings are by rival, and have the meaning of `WorkloadResult`."""

    machine: Machine
    compared: RateComparison
    plans: Mapping[str, Plan]
    plan_texts: Mapping[str, str]  # what each plan sets, in words
    caches: Mapping[str, CacheUse] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of one rival, in addition to that of the process before the first element."""

    mib: float | None  # None: the operating system does not report it


def find_workload(job: Job, name: str) -> Workload:
    """Returns the workload with this name in the job's folder of examples."""
    return find_workloads(Path(job.workload.examples))[name]


def write_value(value: object, path: Path) -> None:
    """Writes a dataclass for another process."""
    write_text(path, json.dumps(encode(value), allow_nan=False))


def read_value(kind: type[Value], path: Path) -> Value:
    """Returns the dataclass of type `kind` that another process has written.

    Raises:
        PipetuneError, OSError, ValueError: the file does not exist, or is damaged.
    """
    return decode(kind, json.loads(path.read_text(encoding="utf-8")))
