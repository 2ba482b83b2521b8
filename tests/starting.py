"""Helpers for tests that start processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def search_path(*folders: Path) -> str:
    """Returns the PYTHONPATH of a process that searches these folders first."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*map(str, folders), *given])))


def output_of(module: str, **variables: str) -> str:
    """Returns what a module of the tests prints that runs in a process of its own, without a GPU."""
    own = {"PYTHONPATH": search_path(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, **own, **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
