"""Modules as `distribute` writes them, their functions, and scripts that use them in a process of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from pipetune.core.session import DistributedResult
from pipetune.distributed.writing import distribute
from pipetune.pipelines import live
from tests.starting import search_path


def emit(dataset: Any, kind: str, folder: Path) -> DistributedResult:
    source = live.read(dataset)
    return distribute(source, source.pipeline, kind=kind, out_file=folder / "distributed.py", script="train.py")


def load(result: DistributedResult) -> Any:
    spec = importlib.util.spec_from_file_location("written_module", result.file)
    assert spec is not None and spec.loader is not None, result.notes
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script: str, folder: Path, *, path: Path | None = None) -> str:
    """The output of `script`, run in `folder`; it must succeed, and all processes it starts are killed in the end.

    Args:
        path: a second folder from which it imports.
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
