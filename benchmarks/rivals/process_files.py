"""The files through which the processes of one workload pass values to each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.rivals.results import WorkloadResult
from pipetune.core.codec import decode, encode
from pipetune.core.edits import Plan
from pipetune.core.files import write_text
from pipetune.core.machine import Machine

RATES_FILE = "measured.json"

Value = TypeVar("Value")


@dataclass(frozen=True)
class RatesMeasurement:
    """What was measured of one workload."""

    machine: Machine
    plans: Mapping[str, Plan]  # by rival
    result: WorkloadResult  # rates, ratios, plans in words, caches, failures


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of one rival, in addition to that of the process before the first element."""

    mib: float | None  # None: the operating system does not report it


def memory_file(rival: str) -> str:
    """Returns the name of the file with the peak memory of a rival."""
    return f"peak-{rival}.json"


def write_value(value: object, path: Path) -> None:
    """Writes a dataclass for another process."""
    write_text(path, json.dumps(encode(value), allow_nan=False))


def read_value(kind: type[Value], path: Path) -> Value:
    """Returns the dataclass of type `kind` that another process has written.

    Raises:
        PipetuneError, OSError, ValueError: the file does not exist, or is damaged.
    """
    return decode(kind, json.loads(path.read_text(encoding="utf-8")))
