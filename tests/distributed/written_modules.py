"""Modules as `distribute` writes them, and their functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from pipetune.core.session import DistributedResult
from pipetune.distributed.writing import distribute
from pipetune.pipelines import live


def emit(dataset: Any, kind: str, folder: Path) -> DistributedResult:
    source = live.read(dataset)
    return distribute(source, source.pipeline, kind=kind, out_file=folder / "distributed.py", script="train.py")


def load(result: DistributedResult) -> Any:
    spec = importlib.util.spec_from_file_location("written_module", result.file)
    assert spec is not None and spec.loader is not None, result.notes
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
