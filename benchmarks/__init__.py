"""Benchmarks of pipetune itself, run from a clone of the repository; no part of the package.

`pipetune bench` starts them: `rivals`, or with --decisions `decisions`. Each has a `suite.py` with the figures, and a
`__main__.py` that measures them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
EXAMPLES = CLONE / "examples"


def module_command(name: str) -> Sequence[str]:
    """Returns the command that runs a module of this folder."""
    return sys.executable, "-P", "-m", f"benchmarks.{name}"


def module_environment() -> Mapping[str, str]:
    """Returns the variables with which `module_command` finds the module."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(CLONE), os.environ.get("PYTHONPATH"))))}
