"""Runs a script beside an emitted module, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.starting import search_path


def run(script: str, folder: Path, *, path: Path | None = None) -> str:
    """What `script` prints, run in `folder`; it must end well, and all that it started is ended with it.

    Args:
        path: another folder that it imports from.
    """
    (folder / "run.py").write_text(textwrap.dedent(script))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "run.py"],
            cwd=folder,
            stdout=out,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": search_path(folder, path or folder), "TF_CPP_MIN_LOG_LEVEL": "3"},
            start_new_session=True,
        )
        try:
            code = process.wait(240)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        errors.seek(0)
        assert code == 0, errors.read()[-2000:]
        return out.read()
