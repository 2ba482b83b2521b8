"""`pipetune analyze` on a script with every kind of write: which of its files are not restored."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.files import writes

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"loop": ("loop", "except", "finally", "atexit"), "fit": ("callback", "except", "finally", "atexit")}
"""How the script trains, and the places where it writes."""

_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))},
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True)
class Trial:
    """The effects of one analysis on the files of the script."""

    ended: subprocess.CompletedProcess[str]
    tried: int  # kinds of writes, over all places
    lost: dict[str, dict[str, list[str]]]  # place, kind: paths that differ
    own: Path  # folder of the script's files
    results: Path


def run(base: Path, how: str) -> Trial:
    """Analyzes the script, which trains with a "loop" or with "fit", with its files in `base`."""
    own, results = base / "own", base / "out"
    kinds = {place: writes.prepared(own / place) for place in PLACES[how]}
    (own / "caches").mkdir(parents=True)
    before = {place: writes.trees(own / place, found) for place, found in kinds.items()}
    command = [sys.executable, "-m", "pipetune", "analyze", "--quick", "--no-trials", "--out", str(results)]
    command += ["tests/scripts/writes_files.py", str(own), how]
    ended = subprocess.run(
        command, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, text=True, timeout=280, check=False
    )
    lost = {place: writes.lost(own / place, before[place]) for place in kinds}
    found = {place: kinds for place, kinds in lost.items() if kinds}
    return Trial(ended, sum(map(len, kinds.values())), found, own, results)


def count_files(base: Path) -> dict[str, int]:
    """`files_tried` and `files_lost` of reports/soundness.json: kinds of writes in each place of two scripts.

    Args:
        base: an empty folder for the results, which are kept.
    """
    trials = [run(base / how, how) for how in PLACES]
    for trial in trials:
        trial.ended.check_returncode()
    lost = sum(len(kinds) for trial in trials for kinds in trial.lost.values())
    return {"files_tried": sum(trial.tried for trial in trials), "files_lost": lost}
