"""Helpers for tests that start processes."""

from __future__ import annotations

import os
from pathlib import Path


def search_path(*folders: Path) -> str:
    """Returns the PYTHONPATH of a process that searches these folders first."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*map(str, folders), *given])))
