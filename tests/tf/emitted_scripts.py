"""Runs a script beside an emitted module, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.starting import search_path


def run(script: str, folder: Path, *, path: Path | None = None) -> str:
    """What `script` prints, run in `folder`; it must end well.

    Args:
        path: another folder that it imports from.
    """
    (folder / "run.py").write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, "run.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": search_path(folder, path or folder), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
