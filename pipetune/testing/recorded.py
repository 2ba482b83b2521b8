"""Recorded windows: how long real steps took, slice by slice, on a machine with and without other load.

The file `recorded_windows.json` in this folder holds series of consecutive windows of a real pipeline, alone
("input") and inside a real training step ("training"), each on a fresh iterator, on two cores: with nothing else
running ("quiet"), with a process that takes a core for a second now and then ("neighbour"), and with test suites and
compilers of other users ("shared"). `python -m pipetune.bench.recording` creates it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipetune.core.codec import decode, encode
from pipetune.core.files import write_text

FILE = Path(__file__).with_name("recorded_windows.json")

CONDITIONS = ("quiet", "neighbour", "shared")
UNITS = ("input", "training")

SCALE = 1000
"""Durations are stored in thousandths of the median of the series: 1000 is the median."""


@dataclass(frozen=True)
class RecordedWindow:
    """One window: its startup overhead, then its slices in order.

    Seconds and CPU seconds per step of each slice are relative to the median of the series, in thousandths.
    """

    overhead_ms: int  # from the request to the first counted step, without the warm-up
    wall: tuple[int, ...]
    cpu: tuple[int, ...]
    converged: bool = True


@dataclass(frozen=True)
class Series:
    """Consecutive windows of one pipeline under one condition."""

    step_seconds: float  # median over all slices
    cpu_step_seconds: float
    slice_steps: int  # steps of one slice of a training window; 0 if slices have a fixed duration
    slice_seconds: float  # of a slice at the median
    windows: tuple[RecordedWindow, ...]


@dataclass(frozen=True)
class Recording:
    """All series, by "unit, condition"; `about` describes the machine they were recorded on."""

    about: str
    series: Mapping[str, Series]

    def of(self, unit: str, condition: str) -> Series:
        return self.series[f"{unit}, {condition}"]


def save(recording: Recording, path: Path = FILE) -> None:
    """Write a recording compactly, with one line per window."""
    data = encode(recording)
    assert isinstance(data, dict)
    for series in data["series"].values():
        series["windows"] = [list(window.values()) for window in series["windows"]]
    lines = json.dumps(data, separators=(",", ":")).replace("[[", "[\n[").replace("],[", "],\n[")
    write_text(path, lines.replace("]]},", "]]},\n") + "\n")


@cache
def load(path: Path = FILE) -> Recording:
    """Load a recording that `save` wrote.

    Raises:
        Malformed: the file is damaged.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    names = ("overhead_ms", "wall", "cpu", "converged")
    for series in data["series"].values():
        series["windows"] = [dict(zip(names, window, strict=True)) for window in series["windows"]]
    return decode(Recording, data)
