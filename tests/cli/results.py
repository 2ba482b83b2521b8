"""What a command line gives, and a results folder for tests: of a script whose call to `map` becomes parallel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipetune.core import session_file
from pipetune.core.session import Session
from pipetune.supervisor.results_folder import Results

BEFORE = """import tensorflow as tf


def training():
    dataset = tf.data.Dataset.range(10)
    return dataset.map(decode)
"""
AFTER = BEFORE.replace("map(decode)", "map(decode, num_parallel_calls=2)")


class Done(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


Shell = Callable[..., Done]


def run(value: Session) -> Path:
    """The folder of a run of reports/train with this result."""
    results = Results(Path("reports/train")).with_new_run()
    results.write_all(value)
    return results.folder


def saved(folder: Path, value: Session, name: str = "one") -> str:
    """The path of a session.json in `folder`, in a folder of this name."""
    path = folder / name / "session.json"
    session_file.save(value, path)
    return str(path)
